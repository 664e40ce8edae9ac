#include "protocols/client/status_values.hpp"

namespace parcae {

void put(schema::Change::Builder to, const change_status& x) {
  to.setNumber(x.number);
  to.setTo(x.to);
  to.setTrigger(x.trigger);
  to.setConfiguration(x.configuration);
  to.setKind(x.kind);
  to.setBytes(x.bytes);
  to.setReplayedSteps(x.replayed_steps);
  to.setDecidedMs(x.decided_ms);
  to.setPlannedMs(x.planned_ms);
  to.setPreparedMs(x.prepared_ms);
  to.setStoppedMs(x.stopped_ms);
  to.setReadyMs(x.ready_ms);
  to.setActiveMs(x.active_ms);
  to.setFirstCommitMs(x.first_commit_ms);
  to.setStallMs(x.stall_ms);
  to.setPredictedMs(x.predicted_ms);
  to.setPlans(x.plans);
  to.setWaited(x.waited);
  to.setAtUs(x.at_us);
}

change_status get(schema::Change::Reader from) {
  return {.number = from.getNumber(),
          .to = from.getTo(),
          .trigger = from.getTrigger().cStr(),
          .configuration = from.getConfiguration().cStr(),
          .kind = from.getKind().cStr(),
          .bytes = from.getBytes(),
          .replayed_steps = from.getReplayedSteps(),
          .decided_ms = from.getDecidedMs(),
          .planned_ms = from.getPlannedMs(),
          .prepared_ms = from.getPreparedMs(),
          .stopped_ms = from.getStoppedMs(),
          .ready_ms = from.getReadyMs(),
          .active_ms = from.getActiveMs(),
          .first_commit_ms = from.getFirstCommitMs(),
          .stall_ms = from.getStallMs(),
          .predicted_ms = from.getPredictedMs(),
          .plans = from.getPlans(),
          .waited = from.getWaited(),
          .at_us = from.getAtUs()};
}

void put(schema::Choice::Builder to, const weighed_choice& x) {
  to.setConfiguration(x.configuration);
  to.setSamples(x.samples);
}

weighed_choice get(schema::Choice::Reader from) {
  return {from.getConfiguration().cStr(), from.getSamples()};
}

void put(schema::Outlook::Builder to, const forecast_outlook& x) {
  to.setMean(x.mean);
  to.setLow(x.low);
  to.setHigh(x.high);
}

forecast_outlook get(schema::Outlook::Reader from) {
  return {from.getMean(), from.getLow(), from.getHigh()};
}

void put(schema::Configuration::Builder to, const configuration_status& x) {
  to.setWidth(x.width);
  to.setDepth(x.depth);
  to.setPredictedSamplesPerS(x.predicted_samples_per_s);
  to.setSamplesPerS(x.samples_per_s);
  to.setLowSamplesPerS(x.low_samples_per_s);
  to.setHighSamplesPerS(x.high_samples_per_s);
  to.setMeasuredSteps(x.measured_steps);
  to.setVisits(x.visits);
  to.setMeasuredByCpu(x.measured_by_cpu);
}

configuration_status get(schema::Configuration::Reader from) {
  return {.width = from.getWidth(),
          .depth = from.getDepth(),
          .predicted_samples_per_s = from.getPredictedSamplesPerS(),
          .samples_per_s = from.getSamplesPerS(),
          .low_samples_per_s = from.getLowSamplesPerS(),
          .high_samples_per_s = from.getHighSamplesPerS(),
          .measured_steps = from.getMeasuredSteps(),
          .visits = from.getVisits(),
          .measured_by_cpu = from.getMeasuredByCpu()};
}

void put(schema::LayerCost::Builder to, const layer_cost& x) {
  to.setForwardMs(x.forward_ms);
  to.setBackwardMs(x.backward_ms);
  to.setOptimizerMs(x.optimizer_ms);
  to.setGradientBytes(x.gradient_bytes);
  to.setOutputBytes(x.output_bytes);
  to.setStateBytes(x.state_bytes);
  to.setActivationBytes(x.activation_bytes);
  to.setTiedBytes(x.tied_bytes);
  to.setWakingForwardMs(x.waking.forward_ms);
  to.setWakingBackwardMs(x.waking.backward_ms);
  to.setWakingOptimizerMs(x.waking.optimizer_ms);
}

layer_cost get(schema::LayerCost::Reader from) {
  return {{from.getForwardMs(), from.getBackwardMs(), from.getOptimizerMs()},
          from.getGradientBytes(),
          from.getOutputBytes(),
          from.getStateBytes(),
          from.getActivationBytes(),
          from.getTiedBytes(),
          {from.getWakingForwardMs(), from.getWakingBackwardMs(), from.getWakingOptimizerMs()}};
}

void put(schema::Memory::Builder to, const memory_status& x) {
  to.setSlot(x.slot);
  to.setPeakBytes(x.peak_bytes);
  to.setEstimatedBytes(x.estimated_bytes);
}

memory_status get(schema::Memory::Reader from) {
  return {
      .slot = from.getSlot().cStr(), .peak_bytes = from.getPeakBytes(), .estimated_bytes = from.getEstimatedBytes()};
}

void put(schema::Figures::Builder to, const change_figures& x) {
  to.setLinkBytesPerMs(x.link_bytes_per_ms);
  to.setDetectMs(x.detect_ms);
  to.setSettleMs(x.settle_ms);
  to.setLossMs(x.loss_ms);
  to.setPlanMs(x.plan_ms);
  to.setPrepareMs(x.prepare_ms);
  to.setTransferMs(x.transfer_ms);
  to.setActivateMs(x.activate_ms);
  to.setRankMs(x.rank_ms);
}

change_figures get(schema::Figures::Reader from) {
  return {.link_bytes_per_ms = from.getLinkBytesPerMs(),
          .detect_ms = from.getDetectMs(),
          .settle_ms = from.getSettleMs(),
          .loss_ms = from.getLossMs(),
          .plan_ms = from.getPlanMs(),
          .prepare_ms = from.getPrepareMs(),
          .transfer_ms = from.getTransferMs(),
          .activate_ms = from.getActivateMs(),
          .rank_ms = from.getRankMs()};
}

void put(schema::LossPoint::Builder to, const loss_point& x) {
  to.setSteps(x.steps);
  to.setLoss(x.loss);
}

loss_point get(schema::LossPoint::Reader from) {
  return {from.getSteps(), from.getLoss()};
}

void put(schema::KeeperStatus::Builder to, const keeper_status& x) {
  to.setKeeper(x.keeper);
  to.setSteps(x.steps);
  to.setLayers(x.layers);
}

keeper_status get(schema::KeeperStatus::Reader from) {
  return {from.getKeeper().cStr(), from.getSteps(), from.getLayers()};
}

void put(schema::ChainLink::Builder to, const chain_link& x) {
  to.setBy(x.by.value);
  to.setBase(x.base);
  to.setLast(x.last);
}

chain_link get(schema::ChainLink::Reader from) {
  return {{from.getBy()}, from.getBase(), from.getLast()};
}

void put(schema::Decision::Builder to, const decision& x) {
  to.setNumber(x.number);
  to.setAtUs(x.at_us);
  to.setTrigger(x.trigger);
  to.setPolicy(x.policy);
  put_all(to.initForecast(x.forecast.size()), x.forecast);
  put(to.initChosen(), x.chosen);
  put_all(to.initRunnersUp(x.runners_up.size()), x.runners_up);
  to.setReason(x.reason);
  to.setGeneration(x.generation);
  to.setExpectedMs(x.expected_ms);
  to.setRealisedMs(x.realised_ms);
}

decision get(schema::Decision::Reader from) {
  return {.number = from.getNumber(),
          .at_us = from.getAtUs(),
          .trigger = from.getTrigger().cStr(),
          .policy = from.getPolicy().cStr(),
          .forecast = get_all<forecast_outlook>(from.getForecast()),
          .chosen = get(from.getChosen()),
          .runners_up = get_all<weighed_choice>(from.getRunnersUp()),
          .reason = from.getReason().cStr(),
          .generation = from.getGeneration(),
          .expected_ms = from.getExpectedMs(),
          .realised_ms = from.getRealisedMs()};
}

// --- messages ------------------------------------------------------------------------------------

void put(schema::InstanceStatus::Builder to, const instance_status& x) {
  to.setName(x.name);
  to.setIncarnation(x.incarnation);
  to.setRole(x.role);
  to.setState(x.state);
  to.setSlots(x.slots);
  to.setHost(x.host);
  to.setPort(x.port);
  to.setProcessor(x.processor);
  to.setAgeMs(x.age_ms);
  to.setExpiresInMs(x.expires_in_ms);
  to.setLostAtUs(x.lost_at_us);
}

instance_status get(schema::InstanceStatus::Reader from) {
  return {.name = from.getName().cStr(),
          .incarnation = from.getIncarnation(),
          .role = from.getRole().cStr(),
          .state = from.getState().cStr(),
          .slots = from.getSlots(),
          .host = from.getHost().cStr(),
          .port = from.getPort(),
          .processor = from.getProcessor().cStr(),
          .age_ms = from.getAgeMs(),
          .expires_in_ms = from.getExpiresInMs(),
          .lost_at_us = from.getLostAtUs()};
}

void put(schema::Event::Builder to, const event_status& x) {
  to.setNumber(x.number);
  to.setAtUs(x.at_us);
  to.setLevel(x.level);
  to.setText(x.text);
}

event_status get(schema::Event::Reader from) {
  return {from.getNumber(), from.getAtUs(), from.getLevel().cStr(), from.getText().cStr()};
}

void put(schema::Failure::Builder to, const failure_status& x) {
  to.setNumber(x.number);
  to.setAtUs(x.at_us);
  to.setInstance(x.instance);
  to.setWhat(x.what);
  put_texts(to.initLines(x.lines.size()), x.lines);
  to.setJob(x.job);
}

failure_status get(schema::Failure::Reader from) {
  return {from.getNumber(),           from.getAtUs(), from.getInstance().cStr(), from.getWhat().cStr(),
          get_texts(from.getLines()), from.getJob()};
}

void put(schema::JobStatus::Builder to, const job_status& x) {
  to.setId(x.id);
  to.setName(x.name);
  to.setState(x.state);
  to.setPhase(x.phase);
  to.setProblem(x.problem);
  to.setGeneration(x.generation);
  to.setSteps(x.steps);
  to.setStepsDone(x.steps_done);
  to.setWidth(x.width);
  to.setDepth(x.depth);
  put_texts(to.initGrid(x.grid.size()), x.grid);
  to.setLoss(x.loss);
  to.setEvaluatedSteps(x.evaluated_steps);
  to.setValidationLoss(x.validation_loss);
  to.setGradientNorm(x.gradient_norm);
  to.setLearningRate(x.learning_rate);
  to.setStepMs(x.step_ms);
  to.setSamplesPerS(x.samples_per_s);
  to.setProtectedSteps(x.protected_steps);
  to.setProtectedNow(x.protected_now);
  to.setReplayedSteps(x.replayed_steps);
  to.setIntraStage(x.intra_stage);
  to.setInterStage(x.inter_stage);
  to.setPipeline(x.pipeline);
  to.setUnmoved(x.unmoved);
  auto depths = to.initStepsByDepth(x.steps_by_depth.size());
  unsigned i = 0;
  for (auto [depth, steps] : x.steps_by_depth) {
    depths[i].setDepth(depth);
    depths[i++].setSteps(steps);
  }
  to.setChangeCount(x.change_count);
  put_all(to.initChanges(x.changes.size()), x.changes);
  put_all(to.initChain(x.chain.size()), x.chain);
  to.setParametersSha256(x.parameters_sha256);
  to.setEventCount(x.event_count);
  put_all(to.initEvents(x.events.size()), x.events);
  to.setCheckpointSteps(x.checkpoint_steps);
  to.setCheckpointProblem(x.checkpoint_problem);
  auto folders = to.initCheckpointFolders(x.checkpoint_folders.size());
  for (unsigned k = 0; k < x.checkpoint_folders.size(); ++k) {
    folders[k].setKeeper(x.checkpoint_folders[k].keeper);
    folders[k].setFolder(x.checkpoint_folders[k].folder);
  }
  to.setDecisionCount(x.decision_count);
  put_all(to.initDecisions(x.decisions.size()), x.decisions);
  auto lives = to.initGridLives(x.grid_lives.size());
  for (unsigned k = 0; k < x.grid_lives.size(); ++k)
    lives.set(k, x.grid_lives[k]);
  put_all(to.initLosses(x.losses.size()), x.losses);
  put_all(to.initValidationLosses(x.validation_losses.size()), x.validation_losses);
  to.setTimeLeftMs(x.time_left_ms);
  put_all(to.initKeepers(x.keepers.size()), x.keepers);
  to.setLayers(x.layers);
  put_all(to.initConfigurations(x.configurations.size()), x.configurations);
  put_all(to.initLayerCosts(x.layer_costs.size()), x.layer_costs);
  put_all(to.initMemory(x.memory.size()), x.memory);
  put(to.initFigures(), x.figures);
  to.setOtherMs(x.other_ms);
  to.setDetailed(x.detailed);
  to.setPriority(x.priority);
  to.setLossSteps(x.loss_steps);
  to.setIdle(x.idle);
}

job_status get(schema::JobStatus::Reader from) {
  job_status x;
  x.id = from.getId();
  x.name = from.getName().cStr();
  x.state = from.getState().cStr();
  x.phase = from.getPhase().cStr();
  x.problem = from.getProblem().cStr();
  x.generation = from.getGeneration();
  x.steps = from.getSteps();
  x.steps_done = from.getStepsDone();
  x.width = from.getWidth();
  x.depth = from.getDepth();
  x.grid = get_texts(from.getGrid());
  x.loss = from.getLoss();
  x.evaluated_steps = from.getEvaluatedSteps();
  x.validation_loss = from.getValidationLoss();
  x.gradient_norm = from.getGradientNorm();
  x.learning_rate = from.getLearningRate();
  x.step_ms = from.getStepMs();
  x.samples_per_s = from.getSamplesPerS();
  x.protected_steps = from.getProtectedSteps();
  x.protected_now = from.getProtectedNow();
  x.replayed_steps = from.getReplayedSteps();
  x.intra_stage = from.getIntraStage();
  x.inter_stage = from.getInterStage();
  x.pipeline = from.getPipeline();
  x.unmoved = from.getUnmoved();
  for (auto d : from.getStepsByDepth())
    x.steps_by_depth[d.getDepth()] = d.getSteps();
  x.change_count = from.getChangeCount();
  x.changes = get_all<change_status>(from.getChanges());
  x.chain = get_all<chain_link>(from.getChain());
  x.parameters_sha256 = from.getParametersSha256().cStr();
  x.event_count = from.getEventCount();
  x.events = get_all<event_status>(from.getEvents());
  x.checkpoint_steps = from.getCheckpointSteps();
  x.checkpoint_problem = from.getCheckpointProblem().cStr();
  for (auto f : from.getCheckpointFolders())
    x.checkpoint_folders.push_back({f.getKeeper().cStr(), f.getFolder().cStr()});
  x.decision_count = from.getDecisionCount();
  x.decisions = get_all<decision>(from.getDecisions());
  for (auto life : from.getGridLives())
    x.grid_lives.push_back(life);
  x.losses = get_all<loss_point>(from.getLosses());
  x.validation_losses = get_all<loss_point>(from.getValidationLosses());
  x.time_left_ms = from.getTimeLeftMs();
  x.keepers = get_all<keeper_status>(from.getKeepers());
  x.layers = from.getLayers();
  x.configurations = get_all<configuration_status>(from.getConfigurations());
  x.layer_costs = get_all<layer_cost>(from.getLayerCosts());
  x.memory = get_all<memory_status>(from.getMemory());
  x.figures = get(from.getFigures());
  x.other_ms = from.getOtherMs();
  x.detailed = from.getDetailed();
  x.priority = from.getPriority();
  x.loss_steps = from.getLossSteps();
  x.idle = from.getIdle().cStr();
  return x;
}

} // namespace parcae

#include "actors/manager/status.hpp"

#include "actors/manager/job_obstacle.hpp"
#include "planner/situation/memory.hpp"
#include "protocols/base/text.hpp"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>

namespace parcae {

namespace {

const char* name_of(migration x) {
  switch (x) {
  case migration::none:
    return "none";
  case migration::intra_stage:
    return "intra_stage";
  case migration::inter_stage:
    return "inter_stage";
  case migration::pipeline:
    return "pipeline";
  }
  return "unknown";
}

// One digest of all parameters: SHA-256 of the layers' digests, in hexadecimal and in layer order, one after the other.
std::string digest_of(const std::vector<layer_digest>& layers) {
  if (layers.empty())
    return {};
  std::string all;
  for (const auto& x : layers)
    all += x.sha256;
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(all.data()), all.size(), digest);
  std::string result;
  for (auto byte : digest)
    result += fmt::format("{:02x}", byte);
  return result;
}

change_status status_of(std::uint64_t number, const change_record& x) {
  return {.number = number,
          .to = x.to.value,
          .trigger = x.trigger,
          .configuration = x.configuration,
          .kind = name_of(x.kind),
          .bytes = x.bytes,
          .replayed_steps = x.replayed_steps,
          .decided_ms = x.decided_ms,
          .planned_ms = x.planned_ms,
          .prepared_ms = x.prepared_ms,
          .stopped_ms = x.stopped_ms,
          .ready_ms = x.ready_ms,
          .active_ms = x.active_ms,
          .first_commit_ms = x.first_commit_ms,
          .stall_ms = x.stall_ms,
          .predicted_ms = x.predicted_ms,
          .plans = x.plans,
          .waited = x.waited,
          .at_us = microseconds_of(x.at)};
}

configuration_status status_of(const configuration& x) {
  return {.width = x.width,
          .depth = x.depth,
          .predicted_samples_per_s = x.predicted_samples_per_s,
          .samples_per_s = x.samples_per_s,
          .low_samples_per_s = x.low_samples_per_s,
          .high_samples_per_s = x.high_samples_per_s,
          .measured_steps = x.measured_steps,
          .visits = x.visits,
          .measured_by_cpu = x.measured_by_cpu};
}

// What the planner knows and reckons with.
void add_planning(job_status& to, const job_view& x, const job_specification& job) {
  for (const auto& y : x.configurations)
    to.configurations.push_back(status_of(y));
  to.layer_costs = x.costs;
  if (x.grid && !x.costs.empty())
    for (const auto& [rank, bytes] : x.peak_bytes)
      to.memory.push_back({to_string(x.grid->participants.at(rank).slot), bytes,
                           memory_of(job, x.costs, x.grid->first_layer, x.grid->stage_of(rank), x.grid->width,
                                     x.on_devices ? 0 : static_cast<std::uint32_t>(x.keepers.size()))
                               .total()});
  to.change_figures = x.figures;
  to.other_ms = x.other_ms;
}

void add_place(job_status& to, const slot_id& slot) {
  to.grid.push_back(to_string(slot));
  to.grid_incarnations.push_back(slot.life);
}

// What the training was like so far, and may be.
void add_course(job_status& to, const job_view& x, const status_request& wanted) {
  const auto add = [&](std::vector<loss_point>& points, const loss_curve& curve) {
    std::ranges::copy_if(curve.points(), std::back_inserter(points),
                         [&](const auto& p) { return p.steps >= wanted.losses_from; });
  };
  add(to.losses, x.losses);
  add(to.validation_losses, x.validation_losses);
  for (const auto& keeper : x.keepers)
    to.keepers.push_back({keeper.where.instance, keeper.newest.steps, keeper.layers});
  to.layers = x.layers;
  const auto steps_left = static_cast<double>(to.steps - std::min(to.steps, x.steps_done));
  if (!x.grid || x.now == phase::ended)
    return; // nothing runs, and who knows when
  if (x.steps_per_s > 0)
    to.time_left_ms = 1000 * steps_left / x.steps_per_s;
  else if (x.step_ms > 0)
    to.time_left_ms = steps_left * x.step_ms;
}

void add_data_waits(job_status& to, const job_view& x) {
  for (const auto& [rank, wait] : x.data_waits)
    if (x.grid && rank < x.grid->ranks() && wait.first > to.data_wait_ms) {
      to.data_wait_ms = wait.first;
      to.data_wait_for = to_string(x.grid->participants[rank].slot) + ": " + wait.second;
    }
}

// All of a generation change over after the same step; who has not said so yet will.
void add_transport(job_status& to, const job_view& x) {
  std::set<std::string> devices;
  for (const auto& [rank, said] : x.transports) {
    if (!x.grid || rank >= x.grid->ranks())
      continue;
    to.transport.by = to.transport.by == "nccl" ? to.transport.by : said.by;
    devices.insert(said.device);
    if (to.transport.reason.empty() && !said.reason.empty())
      to.transport.reason = to_string(x.grid->participants[rank].slot) + ": " + said.reason;
  }
  for (const auto& device : devices)
    to.transport.device += (to.transport.device.empty() ? "" : ", ") + device;
}

void add_view(job_status& to, const job_view& x, const job_specification& job, const status_request& wanted) {
  to.phase = to_string(x.now);
  to.generation = x.current.value;
  to.steps_done = x.steps_done;
  if (x.grid) {
    to.width = x.grid->width;
    to.depth = x.grid->depth;
    for (std::uint32_t rank = 0; rank < x.grid->ranks(); ++rank)
      add_place(to, x.grid->participants[rank].slot);
  }
  to.loss = x.last_result.loss;
  if (!x.losses.points().empty()) // one that goes on from a checkpoint has none before its first step
    to.loss_steps = static_cast<std::int64_t>(x.losses.points().back().steps);
  if (x.last_evaluation) {
    to.evaluated_steps = static_cast<std::int64_t>(x.last_evaluation->steps);
    to.validation_loss = x.last_evaluation->loss;
  }
  to.gradient_norm = x.last_result.gradient_norm;
  to.learning_rate = x.last_result.learning_rate;
  to.step_ms = x.step_ms;
  if (x.step_ms > 0 && x.grid)
    to.samples_per_s = job.global_batch * 1000.0 / x.step_ms;
  to.protected_steps = x.protected_version.steps;
  to.protected_now = x.protected_now;
  to.copies = x.copies;
  to.copied_steps = x.copied_version.steps;
  to.copies_problem = x.copies_problem;
  to.replayed_steps = x.replayed_steps;
  auto count = [&](migration kind) { return x.counts[static_cast<std::size_t>(kind)]; };
  to.migrations = {.none = count(migration::none),
                   .intra_stage = count(migration::intra_stage),
                   .inter_stage = count(migration::inter_stage),
                   .pipeline = count(migration::pipeline)};
  to.steps_by_depth = x.steps_by_depth;
  // Changes are numbered by how many there were before; the view keeps the newest.
  to.change_count = std::max<std::uint64_t>(std::accumulate(std::begin(x.counts), std::end(x.counts), std::uint64_t{0}),
                                            x.changes.size());
  auto number = to.change_count - x.changes.size();
  for (const auto& change : x.changes) {
    if (number >= wanted.changes_from)
      to.changes.push_back(status_of(number, change));
    ++number;
  }
  to.decision_count = x.decision_count;
  std::ranges::copy_if(x.decisions, std::back_inserter(to.decisions),
                       [&](const decision& y) { return y.number >= wanted.decisions_from; });
  add_course(to, x, wanted);
  to.chain = x.chain;
  to.parameters_sha256 = digest_of(x.layer_digests);
  to.checkpoint_steps = x.checkpoint.steps;
  for (const auto& [keeper, folder] : x.checkpoint_folders)
    to.checkpoint_folders.push_back({keeper.instance, folder});
  to.checkpoint_problem = x.checkpoint_problem;
  add_planning(to, x, job);
  add_data_waits(to, x);
  add_transport(to, x);
  if (to.problem.empty())
    to.problem = x.problem;
}

} // namespace

const char* name_of(severity x) {
  switch (x) {
  case severity::information:
    return "information";
  case severity::warning:
    return "warning";
  case severity::error:
    return "error";
  }
  return "unknown";
}

instance_status status_of(const instance_record& x, time_point now) {
  auto ms = [](auto duration) { return std::chrono::duration_cast<milliseconds>(duration).count(); };
  return {.name = x.facts.name,
          .incarnation = x.facts.life,
          .role = to_string(x.facts.role),
          .state = to_string(x.state),
          .slots = x.facts.slots,
          .host = x.facts.host,
          .port = x.facts.port,
          .processor = x.facts.processor,
          .age_ms = static_cast<std::uint64_t>(ms(now - x.joined)),
          .expires_in_ms = x.expires ? std::max<std::int64_t>(0, ms(*x.expires - now)) : -1,
          .lost_at_us = x.lost_at ? microseconds_of(*x.lost_at) : -1,
          .warning = x.facts.warning,
          .slots_needed = 0};
}

std::string idle_reason(const job_specification& job, const job_status& x,
                        const std::vector<instance_status>& instances) {
  const auto used = x.width * x.depth;
  if (used == 0 || x.phase != "running")
    return {};
  const auto first = x.grid.front().substr(0, x.grid.front().rfind('/'));
  const auto like = std::ranges::find_if(
      instances, [&](const auto& i) { return i.name == first && i.incarnation == x.grid_incarnations.front(); });
  std::uint32_t slots = 0, others = 0;
  for (const auto& i : instances)
    if (i.role == "worker" && i.state == "alive")
      (!has_layers_of(job, i.processor) ||
               (job.reproducible && like != instances.end() && i.processor != like->processor)
           ? others
           : slots) += i.slots;
  std::string text;
  if (slots > used) {
    text = counted(slots - used, "slot") + " idle: ";
    const auto widest = std::min(job.max_width, job.virtual_replicas);
    const auto deepest = x.layers > 0 ? std::min(job.max_depth, x.layers) : job.max_depth;
    if (x.width >= widest) {
      text += fmt::format("{} = {} allows no more pipelines",
                          job.virtual_replicas <= job.max_width ? "parallel.virtual_replicas" : "parallel.max_width",
                          widest);
      text += x.depth >= deepest ? ", nor can there be more stages" : ", and more stages promise less";
    } else if (slots - used < x.depth) {
      text += fmt::format("too few for another pipeline of {}", counted(x.depth, "stage"));
    } else {
      text += "the plan promises more samples without them";
    }
  }
  if (others > 0)
    text += (text.empty() ? "" : "; ") + counted(others, "slot") + " idle: another processor" +
            (job.model.kind == "plugin" ? " or plug-in" : "") + " would compute other bits";
  return text;
}

job_status status_of(job_id id, const job_entry& x, const job_picture& picture, const status_request& wanted) {
  job_status result;
  result.id = id.value;
  result.name = x.specification.name;
  result.state = to_string(x.state);
  result.problem = x.why;
  result.steps = x.specification.steps;
  result.priority = x.priority;
  result.min_instances = x.specification.min_instances;
  if (picture.view)
    add_view(result, *picture.view, x.specification, wanted);
  if (picture.lines) {
    result.event_count = picture.first_line + picture.lines->size();
    auto number = picture.first_line;
    for (const auto& line : *picture.lines) {
      if (number >= wanted.events_from)
        result.events.push_back({number, microseconds_of(line.at), name_of(line.level), line.text});
      ++number;
    }
  }
  return result;
}

job_status status_of(job_id id, const job_entry& x, const job_memory& memory) {
  job_view view;
  view.now = phase::ended;
  view.current = memory.last;
  view.chain = memory.chain;
  if (!memory.chain.empty() && memory.chain.back().last != UINT64_MAX)
    view.steps_done = memory.chain.back().last;
  view.last_result = memory.result;
  view.checkpoint = memory.checkpoint;
  for (const auto& [keeper, folder] : memory.checkpoint_folders)
    view.checkpoint_folders.emplace_back(keeper, folder);
  view.layer_digests = memory.layer_digests;
  job_picture picture;
  picture.view = std::make_shared<job_view>(std::move(view));
  return status_of(id, x, picture, {});
}

job_status part_of(job_status x, const status_request& wanted) {
  std::erase_if(x.changes, [&](const auto& y) { return y.number < wanted.changes_from; });
  std::erase_if(x.decisions, [&](const auto& y) { return y.number < wanted.decisions_from; });
  std::erase_if(x.events, [&](const auto& y) { return y.number < wanted.events_from; });
  for (auto* losses : {&x.losses, &x.validation_losses})
    std::erase_if(*losses, [&](const auto& y) { return y.steps < wanted.losses_from; });
  return x;
}

} // namespace parcae

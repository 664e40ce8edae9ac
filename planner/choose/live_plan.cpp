#include "planner/choose/live_plan.hpp"

#include "planner/choose/liveput.hpp"
#include "planner/cost/keeper_cost.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>

namespace parcae {

namespace {

using std::chrono::milliseconds;

/// Costs of the change that would come now.
class present_change {
public:
  present_change(const profile& workload, const keeper_setup& kept, bool feed, const situation& now) :
      now_(now), costs_(workload, {now.figures, now.running, 1, kept, feed}) {}

  /// From STOPPED, or the loss, until all train again, and the first step's wait for moments; nothing if nothing
  /// changes.
  change_cost cost(const shape& to) {
    if (now_.running && to == now_.current && gone() == 0)
      return {};
    auto result = cost_of(now_.figures, now_.running ? std::nullopt : std::optional(gone()), to.slots(), 0);
    const auto change = now_.current.width == 0 ? costs_.start(to, true) : costs_.given(now_.current, to, now_.left);
    result.bytes_ms = change.bytes_ms;
    result.late_ms = change.late_ms;
    return result;
  }

  /// Slots of the current configuration that cannot be used any more.
  std::uint32_t gone() const { return now_.current.slots() - std::accumulate(now_.left.begin(), now_.left.end(), 0u); }

private:
  const situation& now_;
  realistic_cost costs_;
};

// Where nobody keeps anything yet, later moves are taken to find one keeper.
keeper_setup kept_by(const job_specification& job, const situation& now) {
  return {.keepers = std::max(now.keepers, 1u),
          .copies = job.keeper_copies,
          .every = static_cast<double>(job.keeper_every),
          .share_of_link = job.keeper_share_of_link,
          .processors = !now.memory.of_device};
}

step_knowledge knowledge_of(const situation& now) {
  step_knowledge x{now.costs, now.platform, now.measured, now.memory, now.keepers};
  if (now.memory.of_device)
    x.platform.chunk_bytes = static_cast<double>(pace_of_devices.chunk_bytes);
  return x;
}

std::vector<configuration> fitting(const job_specification& job, const situation& now, std::uint32_t slots) {
  auto all = configurations(job, knowledge_of(now), slots);
  std::erase_if(all, [](const configuration& x) { return x.width == 0; });
  return all;
}

std::vector<forecast_outlook> outlook_of(const fleet_forecast& x) {
  std::vector<forecast_outlook> result;
  for (const auto& p : availability_of(x.future)) {
    if (result.size() == outlook_intervals)
      break;
    double mean = 0;
    for (std::size_t n = 0; n < p.size(); ++n)
      mean += p[n] * static_cast<double>(n);
    result.push_back({mean * x.devices, quantile(p, 0.1) * x.devices, quantile(p, 0.9) * x.devices});
  }
  return result;
}

// Why what `x` has chosen is better than the rest. `fastest`: of the present slots; width 0: none.
std::string reason_of(const decision& x, const situation& now, const shape& fastest, milliseconds interval,
                      std::size_t intervals) {
  std::string text = "liveput: ";
  if (now.current.width > 0 && x.chosen.configuration == to_string(now.current))
    text += "stays at ";
  text += x.chosen.configuration + ", " + text_of_quantity(x.chosen.samples) + " samples expected in the next " +
          text_of_duration(interval * static_cast<int>(intervals));
  if (!x.forecast.empty()) {
    const auto& last = x.forecast.back();
    const auto later = last.low == last.high ? std::to_string(last.low)
                                             : std::to_string(last.low) + " to " + std::to_string(last.high);
    text += ", with " + counted(now.slots, "slot") + " now and probably " + later + " in " +
            text_of_duration(interval * static_cast<int>(x.forecast.size()));
  }
  if (x.runners_up.empty())
    return text;
  auto other = std::ranges::find(x.runners_up, to_string(fastest), &weighed_choice::configuration);
  if (other != x.runners_up.end() && fastest.width > 0) {
    text += "; " + other->configuration + ", the fastest now,";
  } else {
    other = x.runners_up.begin();
    text += "; " + other->configuration;
  }
  return text + " would give " + text_of_quantity(x.chosen.samples - other->samples) + " less";
}

// State that follows when ranks compute already, in parameters' bytes. NCCL moves all of it before.
double late_part(const job_specification& job, std::span<const std::uint64_t> state_bytes,
                 std::span<const layer_cost> costs) {
  double state = 0, parameters = 0;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    state += static_cast<double>(state_bytes[i]);
    parameters += static_cast<double>(costs[i].gradient_bytes);
  }
  return job.transport != "nccl" && parameters > 0 ? std::max(state / parameters - 1, 0.0) : 0;
}

} // namespace

profile profile_of(const job_specification& job, std::span<const std::uint64_t> state_bytes,
                   std::span<const layer_cost> costs, std::span<const configuration> all) {
  profile result;
  result.name = job.name;
  result.global_batch = job.global_batch;
  result.micro_batch = job.micro_batch;
  result.optimizer_tensors = late_part(job, state_bytes, costs);
  result.value_bytes = 1;
  for (std::size_t i = 0; i < costs.size(); ++i)
    result.layers.push_back({static_cast<double>(state_bytes[i]) / (1 + result.optimizer_tensors), costs[i].forward_ms,
                             costs[i].backward_ms, costs[i].optimizer_ms, 0});
  result.min_depth = job.min_depth;
  result.max_depth = std::min(job.max_depth, static_cast<std::uint32_t>(costs.size()));
  for (auto depth = result.min_depth; depth <= result.max_depth; ++depth)
    result.model_build_ms[depth] = 0; // part of PREPARE
  for (const auto& x : all)
    result.samples_per_s[{x.width, x.depth}] = x.samples_per_s;
  return result;
}

profile profile_of(const job_specification& job, std::span<const std::uint64_t> state_bytes, const situation& now,
                   std::uint32_t slots) {
  return profile_of(job, state_bytes, now.costs, fitting(job, now, slots));
}

plan_answer decide_by_throughput(const job_specification& job, std::span<const std::uint64_t> state_bytes,
                                 const situation& now) {
  plan_answer result;
  result.choice = best_configuration(job, knowledge_of(now), now.slots);
  result.all = fitting(job, now, now.slots);
  const shape target{result.choice.width, result.choice.depth};
  result.why.policy = "throughput";
  result.why.chosen = {to_string(target), result.choice.samples_per_s * static_cast<double>(job.planning_interval_ms) /
                                              1000 * job.look_ahead};
  result.why.reason = result.choice.reason;
  if (target.width > 0)
    result.why.expected_ms =
        present_change(profile_of(job, state_bytes, now.costs, {}), kept_by(job, now), job.feed, now)
            .cost(target)
            .stall_ms();
  return result;
}

plan_answer decide_by_liveput(const job_specification& job, std::span<const std::uint64_t> state_bytes,
                              const situation& now, const fleet_forecast& forecast) {
  const auto devices = forecast.devices;
  const auto units = now.slots / devices;
  std::uint32_t most = units;
  for (const auto& stage : forecast.future.stages)
    for (const auto& node : stage)
      most = std::max(most, node.available);
  const auto table_units = std::max(most, (now.current.slots() + devices - 1) / devices);
  auto all = fitting(job, now, table_units * devices);
  const auto workload = profile_of(job, state_bytes, now.costs, all);
  const realistic_options later{now.figures, forecast.announced, devices, kept_by(job, now), job.feed};
  realistic_cost costs(workload, later);
  move_table table(workload, costs, table_units, static_cast<double>(job.planning_interval_ms) / 1000);
  present_change change(workload, kept_by(job, now), job.feed, now);

  interval_state state;
  state.at = now.current.width > 0 ? table.index_of(now.current) : move_table::idle;
  state.begun = now.current.width > 0;
  // What has happened is the first change known, whatever training has heard of it; the forecaster may know more.
  const auto gone = (change.gone() + devices - 1) / devices;
  const auto held = std::max(units + gone, (now.current.slots() + devices - 1) / devices);
  std::vector<fleet_change> known{{0, held - units}};
  const auto expected = forecast.future.stages.at(0).at(0).available;
  if (expected != units)
    known.push_back({expected > units ? expected - units : 0, expected < units ? units - expected : 0});
  liveput_options options;
  options.first_ms = [&](std::uint32_t target) { return change.cost(table.shapes()[target]).total_ms(); };
  const auto ranked = plan_liveput(table, state, held, known, forecast.future, options);

  const auto shape_of = [&](const liveput_choice& x) {
    return x.target == move_table::idle ? shape{} : table.shapes()[x.target];
  };
  const auto target = shape_of(ranked[0]), fastest = workload.fastest(now.slots);
  // The plan is in whole instances. Where some of an instance's slots cannot be used, others may do.
  if (target.width == 0 && fastest.width > 0)
    return decide_by_throughput(job, state_bytes, now);
  plan_answer result;
  result.why.policy = "liveput";
  result.why.forecast = outlook_of(forecast);
  result.why.chosen = {to_string(target), ranked[0].samples};
  for (std::size_t i = 1; i < ranked.size(); ++i)
    result.why.runners_up.push_back({to_string(shape_of(ranked[i])), ranked[i].samples});
  if (target.width > 0) {
    for (const auto& x : all)
      if (shape{x.width, x.depth} == target)
        result.choice = x;
    result.why.expected_ms = change.cost(target).stall_ms();
    result.why.reason = reason_of(result.why, now, fastest, milliseconds(job.planning_interval_ms),
                                  forecast.future.look_ahead() + known.size());
  } else {
    result.why.reason = best_configuration(job, knowledge_of(now), now.slots).reason;
  }
  result.choice.reason = result.why.reason;
  result.all = std::move(all);
  return result;
}

} // namespace parcae

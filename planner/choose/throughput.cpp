#include "planner/choose/throughput.hpp"

#include "planner/situation/memory.hpp"
#include "planner/situation/placement.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>
#include <map>

namespace parcae {

namespace {

std::string name_of(const configuration& x) {
  return to_string(shape{x.width, x.depth}) + " (" + text_of_quantity(x.samples_per_s) + " samples/s)";
}

// Fewer slots win a tie, then the shallower.
bool better(const configuration& a, const configuration& b) {
  const double tie = 1e-9 * std::max(a.samples_per_s, b.samples_per_s);
  if (a.samples_per_s > b.samples_per_s + tie)
    return true;
  if (b.samples_per_s > a.samples_per_s + tie)
    return false;
  const auto slots_a = a.width * a.depth, slots_b = b.width * b.depth;
  return slots_a != slots_b ? slots_a < slots_b : a.depth < b.depth;
}

} // namespace

void refine(std::vector<configuration>& all, const job_specification& job, std::span<const measured_step> measured) {
  const auto other_way = [&](double x) {
    return x > 0 ? job.global_batch * 1000.0 / x : 0;
  }; // ms to samples/s and back
  std::map<shape, const measured_step*> visited;
  for (const auto& x : measured)
    visited[x.what] = &x;
  const auto visit_of = [&](const configuration& x) {
    const auto found = visited.find({x.width, x.depth});
    return found == visited.end() ? nullptr : found->second;
  };
  std::vector<model_error::check> checks;
  for (const auto& x : all)
    if (const auto* visit = visit_of(x))
      checks.push_back({other_way(x.predicted_samples_per_s), visit->ms});
  const model_error error(checks);
  for (auto& x : all) {
    if (x.width == 0)
      continue;
    auto estimate = error.corrected(other_way(x.predicted_samples_per_s));
    if (const auto* visit = visit_of(x)) {
      estimate = {visit->ms, visit->ms * (1 - visit->error), visit->ms * (1 + visit->error)};
      x.measured_steps = visit->steps;
      x.visits = visit->visits;
      x.measured_by_cpu = visit->by_cpu;
    }
    x.samples_per_s = other_way(estimate.ms);
    x.low_samples_per_s = other_way(estimate.high_ms);
    x.high_samples_per_s = other_way(estimate.low_ms);
    x.reason = name_of(x);
  }
}

std::vector<configuration> configurations(const job_specification& job, const step_knowledge& known,
                                          std::uint32_t slots) {
  const auto& layers = known.layers;
  std::vector<double> layer_ms;
  for (const auto& x : layers)
    layer_ms.push_back(x.forward_ms + x.backward_ms);
  auto most = slots; // what was measured with more slots than there are now says something about the model too
  for (const auto& x : known.measured)
    most = std::max(most, x.what.slots());
  const auto deepest = std::min({job.max_depth, static_cast<std::uint32_t>(layers.size()), most});
  const auto widest = std::min(job.max_width, job.virtual_replicas);
  std::vector<configuration> result;
  for (auto depth = job.min_depth; depth <= deepest; ++depth) {
    const auto first_layer = partition_layers(layer_ms, depth);
    auto width = job.min_width;
    for (const double ms :
         steps_ms(job, layers, first_layer, job.min_width, std::min(widest, most / depth), known.platform)) {
      result.push_back({width++, depth, first_layer, 0, {}});
      result.back().predicted_samples_per_s = ms > 0 ? job.global_batch * 1000.0 / ms : 0;
    }
  }
  refine(result, job, known.measured);
  std::erase_if(result, [&](const configuration& x) { return x.width * x.depth > slots; });
  for (auto& x : result)
    if (const auto problem = memory_problem(job, layers, x.first_layer, x.width, known.keepers, known.memory);
        !problem.empty())
      x = {0, 0, {}, 0, to_string(shape{x.width, x.depth}) + ": " + problem};
  return result;
}

std::vector<configuration> predicted_configurations(const job_specification& job, const step_knowledge& known,
                                                    double single_ms, std::uint32_t slots) {
  auto all = configurations(job, known, slots);
  std::erase_if(all, [](const auto& x) { return x.width == 0; });
  for (auto& x : all)
    if (x.width == 1 && x.depth == 1) {
      x.samples_per_s = x.low_samples_per_s = x.high_samples_per_s = job.global_batch * 1000.0 / single_ms;
      x.measured_steps = 1;
    }
  return all;
}

configuration best_configuration(const job_specification& job, const step_knowledge& known, std::uint32_t slots) {
  auto all = configurations(job, known, slots);
  std::string too_large; // one of them, the last: the widest and deepest
  std::size_t excluded = 0;
  std::erase_if(all, [&](const configuration& x) {
    if (x.width == 0) {
      too_large = x.reason;
      ++excluded;
    }
    return x.width == 0;
  });
  if (all.empty() && excluded > 0) {
    configuration wait;
    wait.reason = "waits: " + counted(slots, "slot") + ", no configuration fits their memory; " + too_large;
    return wait;
  }
  if (all.empty()) {
    configuration wait;
    const shape least{job.min_width, job.min_depth};
    wait.reason = "waits: " + counted(slots, "slot") + ", the least configuration " + to_string(least) + " needs " +
                  std::to_string(least.slots());
    return wait;
  }
  // Ties within 1e-9 are not transitive, so the winner is the last one standing in a fixed order, not a sort's.
  std::size_t best = 0;
  for (std::size_t i = 1; i < all.size(); ++i)
    if (better(all[i], all[best]))
      best = i;
  std::size_t second = all.size();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i != best && (second == all.size() || better(all[i], all[second])))
      second = i;
  auto result = std::move(all[best]);
  result.reason = "throughput: " + name_of(result) +
                  (known.platform.machine_cores > 0 ? " of " : " with one core per slot, of ") + std::to_string(slots) +
                  " slots";
  if (second < all.size())
    result.reason += "; next best " + name_of(all[second]);
  if (excluded > 0)
    result.reason += "; " + std::to_string(excluded) + " do not fit, " + too_large;
  return result;
}

} // namespace parcae

#include "planner/throughput.hpp"

#include "planner/memory.hpp"
#include "planner/placement.hpp"

#include <algorithm>
#include <cstdio>

namespace parcae {

namespace {

std::string name_of(const configuration& x) {
  char text[80];
  std::snprintf(text, sizeof text, "%ux%u (%.4g samples/s)", x.width, x.depth, x.samples_per_s);
  return text;
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

double step_ms(const job_specification& job, std::span<const layer_cost> layers,
               std::span<const std::uint32_t> first_layer, std::uint32_t width, const link_cost& link) {
  const auto depth = first_layer.size() - 1;
  const auto replicas = job.virtual_replicas;
  const auto micro_batches = (replicas + width - 1) / width * (job.micro_batches() / replicas);
  auto wire_ms = [&](double bytes) { return link.latency_ms + bytes / link.bytes_per_ms; };
  double slowest_ms = 0; // one micro-batch in the slowest stage or on the slowest link, forward and backward
  double fill_ms = 0;    // the first micro-batch through all stages and back
  double tail_ms = 0;    // all-reduce and apply of the slowest stage
  for (std::size_t stage = 0; stage < depth; ++stage) {
    double compute = 0, optimizer = 0, gradients = 0;
    for (auto i = first_layer[stage]; i < first_layer[stage + 1]; ++i) {
      compute += layers[i].forward_ms + layers[i].backward_ms;
      optimizer += layers[i].optimizer_ms;
      gradients += static_cast<double>(layers[i].gradient_bytes);
    }
    double transfer = 0; // output to the next stage, and its gradient back
    if (stage + 1 < depth)
      transfer = 2 * wire_ms(static_cast<double>(layers[first_layer[stage + 1] - 1].output_bytes));
    slowest_ms = std::max({slowest_ms, compute, transfer});
    fill_ms += compute + transfer;
    // Reduce-scatter and all-gather: each sends (D−1)/D of the gradients, in D−1 rounds.
    const double reduce =
        width > 1 ? 2.0 * (width - 1) * (link.latency_ms + gradients / width / link.bytes_per_ms) : 0.0;
    tail_ms = std::max(tail_ms, reduce + optimizer);
  }
  const double exchange_ms = width * depth > 1 ? link.latency_ms : 0;
  return fill_ms + (micro_batches - 1) * slowest_ms + tail_ms + exchange_ms;
}

std::vector<configuration> configurations(const job_specification& job, std::span<const layer_cost> layers,
                                          const link_cost& link, std::uint32_t slots, std::uint64_t slot_bytes) {
  std::vector<double> layer_ms;
  for (const auto& x : layers)
    layer_ms.push_back(x.forward_ms + x.backward_ms);
  const auto deepest = std::min({job.max_depth, static_cast<std::uint32_t>(layers.size()), slots});
  const auto widest = std::min(job.max_width, job.virtual_replicas);
  std::vector<configuration> result;
  for (auto depth = job.min_depth; depth <= deepest; ++depth) {
    const auto first_layer = partition_layers(layer_ms, depth);
    for (auto width = job.min_width; width <= std::min(widest, slots / depth); ++width) {
      const double ms = step_ms(job, layers, first_layer, width, link);
      configuration x{width, depth, first_layer, ms > 0 ? job.global_batch * 1000.0 / ms : 0, {}};
      x.reason = name_of(x);
      if (const auto problem = memory_problem(job, layers, first_layer, width, slot_bytes); !problem.empty())
        x = {0, 0, {}, 0, std::to_string(width) + "x" + std::to_string(depth) + ": " + problem};
      result.push_back(std::move(x));
    }
  }
  return result;
}

configuration best_configuration(const job_specification& job, std::span<const layer_cost> layers,
                                 const link_cost& link, std::uint32_t slots, std::uint64_t slot_bytes) {
  auto all = configurations(job, layers, link, slots, slot_bytes);
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
    wait.reason = "waits: " + std::to_string(slots) + " slots, no configuration fits their memory; " + too_large;
    return wait;
  }
  if (all.empty()) {
    configuration wait;
    wait.reason = "waits: " + std::to_string(slots) + " slots, the least configuration " +
                  std::to_string(job.min_width) + "x" + std::to_string(job.min_depth) + " needs " +
                  std::to_string(job.min_width * job.min_depth);
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
  result.reason = "throughput: " + name_of(result) + " with one core per slot, of " + std::to_string(slots) + " slots";
  if (second < all.size())
    result.reason += "; next best " + name_of(all[second]);
  if (excluded > 0)
    result.reason += "; " + std::to_string(excluded) + " do not fit, " + too_large;
  return result;
}

} // namespace parcae

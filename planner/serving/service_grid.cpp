#include "planner/serving/service_grid.hpp"

#include "planner/situation/placement.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>

namespace parcae::serving {

namespace {

std::string megabytes(std::uint64_t bytes) {
  return text_of_quantity(static_cast<double>(bytes) / 1e6) + " MB";
}

/// Empty, or which stage does not fit and what it needs.
std::string problem_with(std::span<const served_layer> layers, const std::vector<std::uint32_t>& first,
                         const grid_terms& terms) {
  for (std::size_t s = 0; s + 1 < first.size(); ++s) {
    const auto stage = layers.subspan(first[s], first[s + 1] - first[s]);
    const auto of = "stage " + std::to_string(s) + " of " + std::to_string(first.size() - 1);
    if (const auto room = positions_in(stage, largest_cache(layers), terms.cache_bytes); room < terms.context)
      return "serve.cache has room for " + counted(room, "position") + " in " + of + ", and a request may have " +
             std::to_string(terms.context) + "; give more, or a smaller serve.context";
    const auto memory = memory_of_stage(stage, terms);
    if (terms.slot_bytes > 0 && memory.total() > terms.slot_bytes)
      return of + " takes " + megabytes(memory.total()) + " (weights " + megabytes(memory.weights + memory.arriving) +
             ", caches " + megabytes(memory.caches) + ", passes " + megabytes(memory.rows) + ") and a slot has " +
             megabytes(terms.slot_bytes);
  }
  return {};
}

} // namespace

grid_memory memory_of_stage(std::span<const served_layer> layers, const grid_terms& terms) {
  grid_memory result;
  for (const auto& x : layers) {
    result.weights += x.weight_bytes;
    result.rows = std::max(result.rows, max_pass_rows * x.row_bytes);
  }
  result.arriving = result.weights;
  result.caches = terms.cache_bytes;
  return result;
}

std::uint64_t largest_cache(std::span<const served_layer> model) {
  std::uint64_t result = 0;
  for (const auto& x : model)
    result = std::max(result, x.cached_bytes);
  return result;
}

std::uint64_t positions_in(std::span<const served_layer> layers, std::uint64_t largest, std::uint64_t cache_bytes) {
  const auto keeping =
      static_cast<std::uint64_t>(std::ranges::count_if(layers, [](const auto& x) { return x.cached_bytes > 0; }));
  if (keeping == 0)
    return UINT64_MAX;
  const auto blocks = cache_bytes / (largest * positions_of_block); // of one size, so that any layer may have any
  return blocks / keeping * positions_of_block;
}

grid_choice choose_grid(std::span<const served_layer> layers, const grid_terms& terms, std::uint32_t slots) {
  grid_choice result;
  if (slots < terms.min_depth * terms.min_width) {
    result.why = "waits for slots: " + std::to_string(slots) + " of the " +
                 std::to_string(terms.min_depth * terms.min_width) + " that parallel.min_width and min_depth ask for";
    return result;
  }
  std::vector<double> ms;
  for (const auto& x : layers)
    ms.push_back(x.ms);
  const auto deepest = std::min({terms.max_depth, slots / terms.min_width, static_cast<std::uint32_t>(layers.size())});
  for (auto depth = terms.min_depth; depth <= deepest; ++depth) {
    auto first = partition_layers(ms, depth);
    if (auto problem = problem_with(layers, first, terms); !problem.empty()) {
      result.why = "nothing fits " + counted(slots, "slot") + ": " + problem;
      continue;
    }
    const auto width = std::min(terms.max_width, slots / depth);
    return {width, depth, std::move(first),
            counted(width, "pipeline") + " of " + counted(depth, "stage") + ": the fewest stages that fit a slot, on " +
                counted(slots, "slot")};
  }
  return result;
}

} // namespace parcae::serving

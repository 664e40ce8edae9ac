#include "actors/manager/service_planning.hpp"

#include "protocols/model/model_description.hpp"
#include "protocols/values/shape.hpp"

#include <vector>

namespace parcae {

namespace {

std::vector<serving::served_layer> layers_of(const job_specification& job) {
  const auto model = describe(job.model);
  const auto cached = cached_values(job.model);
  std::vector<serving::served_layer> result;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const auto& x = model.layers[i];
    result.push_back({.weight_bytes = x.parameters() * sizeof(float),
                      .row_bytes = static_cast<std::uint64_t>(x.activation_values / job.model.sequence * sizeof(float)),
                      .cached_bytes = cached[i] * sizeof(float),
                      .ms = x.forward_flop});
  }
  return result;
}

} // namespace

serving::grid_choice grid_for(const job_specification& job, std::uint32_t slots, const slot_memory& memory) {
  return serving::choose_grid(layers_of(job),
                              {.min_depth = job.min_depth,
                               .max_depth = job.max_depth,
                               .min_width = job.min_width,
                               .max_width = job.max_width,
                               .context = job.context(),
                               .cache_bytes = job.serve.cache_bytes,
                               .slot_bytes = memory.bytes},
                              slots);
}

plan_answer decide_for_service(const job_specification& job, const situation& now) {
  auto grid = grid_for(job, now.slots, now.memory);
  plan_answer result;
  result.choice = {
      .width = grid.width, .depth = grid.depth, .first_layer = std::move(grid.first_layer), .reason = grid.why};
  result.why.policy = "serve";
  result.why.chosen.configuration = to_string(shape{grid.width, grid.depth});
  result.why.reason = grid.why;
  return result;
}

} // namespace parcae

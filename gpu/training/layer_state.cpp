#include "gpu/training/layer_state.hpp"

#include "gpu/layers/model.hpp"
#include "gpu/training/layer_room.hpp"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

namespace parcae {

namespace {

at::Tensor new_course() {
  layer_state x;
  x.course = at::zeros({2}, at::kFloat);
  set_course(x, {});
  return x.course;
}

} // namespace

layer_state allocate_layer(const model_description& model, std::uint32_t number, const job_specification& job,
                           const tensor_device& on, layer_room& room) {
  const auto& layer = model.layers.at(number);
  const auto values = static_cast<std::int64_t>(layer.parameters());
  layer_state state;
  state.parameters = room.take(values);
  for (std::uint32_t i = 0; i < moments_of(job.optimizer); ++i)
    state.moments.push_back(room.take(values));
  if (const auto n = layer.buffer_values(); n > 0)
    state.buffers = at::zeros({static_cast<std::int64_t>(n)}, on.floats());
  if (job.patience > 0 && number + 1 == model.layers.size())
    state.course = new_course();
  return state;
}

layer_state seed_layer(const model_description& model, std::uint32_t layer, const job_specification& job,
                       const tensor_device& on) {
  layer_state state;
  if (is_stored(job.model)) {
    const auto stored = stored_state_of(job.model, layer);
    state.parameters = stored.parameters.to(on.place());
    if (stored.buffers.defined())
      state.buffers = stored.buffers.to(on.place());
  } else {
    state.parameters = initial_parameters(model, layer, job.seed, on);
    state.buffers = initial_buffers(model.layers[layer], on);
  }
  for (std::uint32_t i = 0; i < moments_of(job.optimizer); ++i)
    state.moments.push_back(at::zeros_like(state.parameters));
  if (job.patience > 0 && layer + 1 == model.layers.size())
    state.course = new_course();
  return state;
}

validation_course course_of(const layer_state& x) {
  const auto* values = x.course.data_ptr<float>();
  return {values[0], values[1]};
}

void set_course(layer_state& x, const validation_course& to) {
  auto* values = x.course.data_ptr<float>();
  values[0] = to.best;
  values[1] = to.worse;
}

inventory inventory_of(const layer_store& store) {
  inventory held;
  held.reserve(store.size());
  for (const auto& [layer, state] : store)
    held.push_back({layer, state.at});
  return held;
}

} // namespace parcae

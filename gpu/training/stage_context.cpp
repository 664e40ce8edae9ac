#include "gpu/training/stage_context.hpp"

#include <ATen/ops/empty.h>

namespace parcae {

layer_state& stage_context::layer(std::uint32_t number) const {
  const auto known = arriving->find(number);
  return known != arriving->end() ? known->second : store->at(number);
}

bool stage_context::reads_extras() const {
  for (auto i = first_layer(); i < last_layer(); ++i)
    if (model->layers[i].reads_extras)
      return true;
  return false;
}

at::Tensor stage_context::empty_input(std::int64_t samples) const {
  auto shape = model->layers[first_layer() - 1].output;
  shape.insert(shape.begin(), samples);
  return at::empty(shape, on.floats());
}

void stage_context::check_abort() const {
  if (aborted->load(std::memory_order_relaxed))
    throw generation_aborted{};
}

at::Tensor stage_context::on_host(const at::Tensor& x) const {
  return results->bring(x, [this] { check_abort(); });
}

void stage_context::fault(const char* phase, std::uint64_t step, std::uint32_t index) const {
  if (options->on_fault_point)
    options->on_fault_point({phase, what->next, step, index});
}

void device_lead::limit() {
  constexpr std::size_t max_ahead = 2;
  constexpr std::chrono::milliseconds look{20};
  if (c_.on.of().facts().host)
    return;
  passes_.push_back(c_.on.compute().record());
  for (; passes_.size() > max_ahead; passes_.pop_front())
    while (!passes_.front()->wait(look))
      c_.check_abort();
}

} // namespace parcae

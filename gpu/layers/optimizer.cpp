#include "gpu/layers/optimizer.hpp"

#include "gpu/device/optimizer.hpp"

namespace parcae {

namespace {

/// Of elements that are treated alike.
struct run_of_values {
  float* parameters;
  float* first;
  float* second; ///< AdamW's
  const float* gradient;
  bfloat16* copy; ///< null: none
  std::size_t count;
};

void step_of_run(const optimizer_specification& x, const run_of_values& v, std::uint64_t steps, double rate,
                 double clip, stream& to) {
  if (x.kind == "adamw")
    to.step_adamw(adamw_step(x, steps, rate, clip), v.parameters, v.first, v.second, v.gradient, v.copy, v.count);
  else
    to.step_sgd(sgd_step(x, steps, rate, clip), v.parameters, x.momentum == 0 ? nullptr : v.first, v.gradient, v.copy,
                v.count);
}

} // namespace

void apply_optimizer(const optimizer_specification& x, at::Tensor& parameters, std::vector<at::Tensor>& moments,
                     const at::Tensor& gradient, std::uint64_t steps, double rate, double clip,
                     std::span<const parameter_run> runs, const tensor_device& on, const at::Tensor& copy) {
  run_of_values next{on.values_of(parameters),
                     on.values_of(moments.at(0)),
                     x.kind == "adamw" ? on.values_of(moments.at(1)) : nullptr,
                     on.values_of(gradient),
                     copy.defined() ? on.halves_of(copy) : nullptr,
                     static_cast<std::size_t>(parameters.numel())};
  if (runs.empty())
    return step_of_run(x, next, steps, rate, clip, on.compute());
  for (const auto& run : runs) {
    next.count = static_cast<std::size_t>(run.values);
    auto own = x;
    if (!run.decays)
      own.weight_decay = 0;
    step_of_run(own, next, steps, rate * run.rate_factor, clip, on.compute());
    next.parameters += next.count;
    next.first += next.count;
    next.second += next.second ? next.count : 0;
    next.gradient += next.count;
    next.copy += next.copy ? next.count : 0;
  }
}

} // namespace parcae

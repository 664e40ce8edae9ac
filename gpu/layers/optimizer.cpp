#include "gpu/layers/optimizer.hpp"

#include "gpu/device/kernels.hpp"
#include "gpu/device/optimizer.hpp"
#include "gpu/layers/tensor_kernels.hpp"

namespace parcae {

namespace {

/// Of elements that are treated alike.
struct run_of_values {
  std::span<float> parameters, first, second; ///< `second`: AdamW's
  std::span<const float> gradient;
};

void step_of_run(const optimizer_specification& x, const run_of_values& v, std::uint64_t steps, double rate,
                 double clip) {
  if (x.kind == "adamw") {
    const auto factors = adamw_step(x, steps, rate, clip);
    in_parts(v.parameters.size(), 1, [&](std::size_t begin, std::size_t n) {
      step_adamw(factors, &v.parameters[begin], &v.first[begin], &v.second[begin], &v.gradient[begin], nullptr, n);
    });
  } else {
    const auto factors = sgd_step(x, steps, rate, clip);
    in_parts(v.parameters.size(), 1, [&](std::size_t begin, std::size_t n) {
      step_sgd(factors, &v.parameters[begin], x.momentum == 0 ? nullptr : &v.first[begin], &v.gradient[begin], nullptr,
               n);
    });
  }
}

} // namespace

void apply_optimizer(const optimizer_specification& x, at::Tensor& parameters, std::vector<at::Tensor>& moments,
                     const at::Tensor& gradient, std::uint64_t steps, double rate, double clip,
                     std::span<const parameter_run> runs) {
  const run_of_values all{values_of(parameters), values_of(moments.at(0)),
                          x.kind == "adamw" ? values_of(moments.at(1)) : std::span<float>(), values_of(gradient)};
  if (runs.empty())
    return step_of_run(x, all, steps, rate, clip);
  std::size_t begin = 0;
  for (const auto& run : runs) {
    const auto part = [&](const auto& whole) {
      return whole.empty() ? whole : whole.subspan(begin, static_cast<std::size_t>(run.values));
    };
    auto own = x;
    if (!run.decays)
      own.weight_decay = 0;
    step_of_run(own, {part(all.parameters), part(all.first), part(all.second), part(all.gradient)}, steps,
                rate * run.rate_factor, clip);
    begin += static_cast<std::size_t>(run.values);
  }
}

} // namespace parcae

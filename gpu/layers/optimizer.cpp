#include "gpu/layers/optimizer.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace parcae {

namespace {

// ATen's kernels compute the elements after the last whole vector with other roundings. Values in one vector's reach of
// the end are therefore done in a padded copy, so that an element's result does not depend on where in its buffer it
// lies: the two copies of tied embeddings must stay equal in every bit. 64 bytes is also the unit of the kernels'
// splitting among threads.
constexpr std::int64_t vector_values = 16;

void fused_step(const optimizer_specification& x, const at::Tensor& parameters, const std::vector<at::Tensor>& moments,
                const at::Tensor& gradient, std::uint64_t steps, double rate) {
  if (x.kind == "adamw") {
    // The kernel expects the count with this step included.
    auto count = at::full({}, static_cast<double>(steps + 1), at::kFloat);
    at::_fused_adamw_({parameters}, {gradient}, {moments[0]}, {moments[1]}, {}, {count}, rate, x.beta1, x.beta2,
                      x.weight_decay, x.epsilon, false, false);
  } else {
    // Without momentum the kernel takes no buffers.
    auto buffers = x.momentum == 0 ? std::vector<at::Tensor>{} : moments;
    at::_fused_sgd_({parameters}, {gradient}, buffers, x.weight_decay, x.momentum, rate, 0, false, false, steps == 0);
  }
}

/// Of elements that are treated alike.
void step_of_run(const optimizer_specification& x, const at::Tensor& parameters, const std::vector<at::Tensor>& moments,
                 const at::Tensor& gradient, std::uint64_t steps, double rate) {
  const auto n = parameters.numel();
  const auto rest = n % vector_values;
  const auto body = n - rest;
  auto all_of = [&](auto&& part) {
    std::vector<at::Tensor> result;
    for (const auto& moment : moments)
      result.push_back(part(moment));
    return result;
  };
  if (body > 0) {
    auto part = [&](const at::Tensor& whole) { return whole.narrow(0, 0, body); };
    fused_step(x, part(parameters), all_of(part), part(gradient), steps, rate);
  }
  if (rest > 0) {
    auto part = [&](const at::Tensor& whole) { return whole.narrow(0, body, rest); };
    auto padded = [&](const at::Tensor& whole) { return at::constant_pad_nd(part(whole), {0, vector_values - rest}); };
    auto tail = padded(parameters);
    auto tail_moments = all_of(padded);
    fused_step(x, tail, tail_moments, padded(gradient), steps, rate);
    part(parameters).copy_(tail.narrow(0, 0, rest));
    for (std::size_t i = 0; i < moments.size(); ++i)
      part(moments[i]).copy_(tail_moments[i].narrow(0, 0, rest));
  }
}

} // namespace

void apply_optimizer(const optimizer_specification& x, at::Tensor& parameters, std::vector<at::Tensor>& moments,
                     const at::Tensor& gradient, std::uint64_t steps, double rate,
                     std::span<const parameter_run> runs) {
  c10::NoGradGuard no_grad;
  if (runs.empty())
    return step_of_run(x, parameters, moments, gradient, steps, rate);
  std::int64_t begin = 0;
  for (const auto& run : runs) {
    const auto part = [&](const at::Tensor& whole) {
      return whole.narrow(0, begin, static_cast<std::int64_t>(run.values));
    };
    std::vector<at::Tensor> run_moments;
    for (const auto& moment : moments)
      run_moments.push_back(part(moment));
    auto own = x;
    if (!run.decays)
      own.weight_decay = 0;
    step_of_run(own, part(parameters), run_moments, part(gradient), steps, rate * run.rate_factor);
    begin += static_cast<std::int64_t>(run.values);
  }
}

} // namespace parcae

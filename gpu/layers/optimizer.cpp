#include "gpu/layers/optimizer.hpp"

#include "gpu/device/kernels.hpp"
#include "gpu/device/optimizer.hpp"
#include "gpu/layers/tensor_kernels.hpp"

namespace parcae {

void apply_optimizer(const optimizer_specification& x, at::Tensor& parameters, std::vector<at::Tensor>& moments,
                     const at::Tensor& gradient, std::uint64_t steps, double rate, double clip) {
  const auto p = values_of(parameters), first = values_of(moments.at(0));
  const auto g = values_of(gradient);
  if (x.kind == "adamw") {
    const auto second = values_of(moments.at(1));
    const auto factors = adamw_step(x, steps, rate, clip);
    in_parts(p.size(), 1, [&](std::size_t begin, std::size_t n) {
      step_adamw(factors, &p[begin], &first[begin], &second[begin], &g[begin], nullptr, n);
    });
  } else {
    const auto factors = sgd_step(x, steps, rate, clip);
    in_parts(p.size(), 1, [&](std::size_t begin, std::size_t n) {
      step_sgd(factors, &p[begin], x.momentum == 0 ? nullptr : &first[begin], &g[begin], nullptr, n);
    });
  }
}

} // namespace parcae

#include "gpu/device/optimizer.hpp"

#include <cmath>

namespace parcae {

namespace {

double power(double x, std::uint64_t n) {
  double result = 1;
  for (; n > 0; n /= 2, x *= x)
    if (n % 2 == 1)
      result *= x;
  return result;
}

float narrow(double x) {
  return static_cast<float>(x);
}

} // namespace

adamw_factors adamw_step(const optimizer_specification& x, std::uint64_t steps, double rate, double clip) {
  return {
      .clip = narrow(clip),
      .keep = narrow(1 - rate * x.weight_decay),
      .beta1 = narrow(x.beta1),
      .rest1 = narrow(1 - x.beta1),
      .beta2 = narrow(x.beta2),
      .rest2 = narrow(1 - x.beta2),
      .rate = narrow(rate / (1 - power(x.beta1, steps + 1))),
      .root = narrow(1 / std::sqrt(1 - power(x.beta2, steps + 1))),
      .epsilon = narrow(x.epsilon),
  };
}

sgd_factors sgd_step(const optimizer_specification& x, std::uint64_t steps, double rate, double clip) {
  return {
      .clip = narrow(clip),
      .decay = narrow(x.weight_decay),
      .momentum = steps == 0 ? 0 : narrow(x.momentum),
      .rate = narrow(rate),
  };
}

} // namespace parcae

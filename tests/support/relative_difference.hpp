#pragma once

#include <ATen/ATen.h>

namespace parcae {

/// Of a from b: the norm of what differs over b's, in double precision.
inline double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  const auto x = a.to(at::kDouble), y = b.to(at::kDouble);
  return ((x - y).norm() / y.norm()).item<double>();
}

} // namespace parcae

#pragma once

// The kernels of gpu/device on tensors: float32, contiguous, on the processor. They use as many threads as LibTorch's
// own operators would; bits do not depend on it.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <span>

namespace parcae {

/// A tensor's values. Throws std::invalid_argument if it is not as described above.
std::span<float> values_of(const at::Tensor& x);

/// f(begin, count) for parts of [0, n) side by side, which begin at multiples of `unit`.
void in_parts(std::size_t n, std::size_t unit, const std::function<void(std::size_t, std::size_t)>& f);

/// to = left + right, of equal sizes; `to` may be either of them.
void add_tensors(const at::Tensor& to, const at::Tensor& left, const at::Tensor& right);

/// The sum of squares, in an order of its own.
double squared_norm(const at::Tensor& x);

} // namespace parcae

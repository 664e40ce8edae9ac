#include "gpu/layers/tensor_kernels.hpp"

#include "gpu/device/kernels.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace parcae {

std::span<float> values_of(const at::Tensor& x) {
  if (!x.device().is_cpu() || x.scalar_type() != at::kFloat || !x.is_contiguous())
    throw std::invalid_argument("values_of: not contiguous float32 values in memory");
  return {x.data_ptr<float>(), static_cast<std::size_t>(x.numel())};
}

void in_parts(std::size_t n, std::size_t unit, const std::function<void(std::size_t, std::size_t)>& f) {
  constexpr std::size_t worth_a_thread = 32'768; // as many values as LibTorch's own operators take
  const auto units = static_cast<std::int64_t>((n + unit - 1) / unit);
  at::parallel_for(0, units, static_cast<std::int64_t>((worth_a_thread + unit - 1) / unit),
                   [&](std::int64_t first, std::int64_t last) {
                     const auto begin = static_cast<std::size_t>(first) * unit;
                     f(begin, std::min(n, static_cast<std::size_t>(last) * unit) - begin);
                   });
}

void add_tensors(const at::Tensor& to, const at::Tensor& left, const at::Tensor& right) {
  const auto sum = values_of(to), x = values_of(left), y = values_of(right);
  if (x.size() != sum.size() || y.size() != sum.size())
    throw std::invalid_argument("add_tensors: sizes differ");
  in_parts(sum.size(), 1, [&](std::size_t begin, std::size_t n) { add_values(&sum[begin], &x[begin], &y[begin], n); });
}

double squared_norm(const at::Tensor& x) {
  const auto values = values_of(x);
  std::vector<double> chunks((values.size() + sum_chunk - 1) / sum_chunk);
  in_parts(values.size(), sum_chunk,
           [&](std::size_t begin, std::size_t n) { sum_squares(&values[begin], n, &chunks[begin / sum_chunk]); });
  return sum_of(chunks);
}

} // namespace parcae

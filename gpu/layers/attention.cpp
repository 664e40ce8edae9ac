#include "gpu/layers/layers.hpp"

#include <ATen/ATen.h>

#include <array>
#include <cmath>
#include <limits>
#include <mutex>

namespace parcae {

namespace {

/// Held while a device's generator is that of one call. Several slots may be on one device; the generator's own mutex
/// is LibTorch's, which takes it in that call.
std::mutex& draws_from_generator_of(c10::Device place) {
  static std::array<std::mutex, std::numeric_limits<c10::DeviceIndex>::max() + 1> all;
  return all.at(static_cast<std::size_t>(place.index()));
}

} // namespace

at::Tensor attention(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values, bool is_causal,
                     const at::Tensor& causal, dropout& drop) {
  if (!drop.active())
    return at::scaled_dot_product_attention(queries, keys, values, {}, 0.0, is_causal);
  if (!queries.is_cpu()) { // its fused kernels drop by numbers of the device's generator, which nothing else draws from
    // Kernels are given seed and place in the call: what comes after it changes nothing.
    const std::lock_guard drawing(draws_from_generator_of(queries.device()));
    auto numbers = at::globalContext().defaultGenerator(queries.device());
    {
      const std::lock_guard held(numbers.mutex());
      numbers.set_current_seed(drop.next_seed());
    }
    return at::scaled_dot_product_attention(queries, keys, values, {}, drop.probability(), is_causal);
  }
  // The fused kernels have no dropout on the CPU. One product scales the scores and adds the causal mask.
  const auto samples = queries.size(0), heads = queries.size(1), sequence = queries.size(2), size = queries.size(3);
  auto flat = [&](const at::Tensor& x) { return x.reshape({samples * heads, sequence, size}); };
  const auto scale = 1 / std::sqrt(static_cast<double>(size));
  const auto q = flat(queries), k = flat(keys).transpose(1, 2);
  const auto future = is_causal ? causal.narrow(0, 0, sequence).narrow(1, 0, sequence) : at::Tensor();
  const auto type = q.scalar_type();
  at::Tensor scores;
  if (type == at::kBFloat16)
    scores = is_causal ? at::add(future, at::bmm(q, k), scale) : converted(at::bmm(q, k), at::kFloat) * scale;
  else
    scores = is_causal ? at::baddbmm(future, q, k, 1, scale) : at::bmm(q * scale, k);
  return at::bmm(converted(drop(at::softmax(scores, -1)), type), flat(values)).view({samples, heads, sequence, size});
}

} // namespace parcae

#include "gpu/layers/layers.hpp"

#include <ATen/ATen.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <mutex>

namespace parcae {

namespace {

/// Held while a device's generator is that of one call. Several slots may be on one device; the generator's own mutex
/// is LibTorch's, which takes it in that call.
std::mutex& draws_from_generator_of(c10::Device place) {
  static std::array<std::mutex, std::numeric_limits<c10::DeviceIndex>::max() + 1> all;
  return all.at(place.is_cpu() ? 0 : static_cast<std::size_t>(place.index()));
}

at::Tensor state_of(at::Generator& numbers) {
  const std::lock_guard held(numbers.mutex());
  return numbers.get_state();
}

/// While it lives a device's generator begins with this seed, for its thread only; then it is as it was, so that who
/// else draws from it shows (try_own_model).
class seeded_generator {
public:
  seeded_generator(c10::Device place, std::uint64_t seed) :
      drawing_(draws_from_generator_of(place)), numbers_(at::globalContext().defaultGenerator(place)),
      before_(state_of(numbers_)) {
    const std::lock_guard held(numbers_.mutex());
    numbers_.set_current_seed(seed);
  }
  ~seeded_generator() {
    const std::lock_guard held(numbers_.mutex());
    numbers_.set_state(before_);
  }
  seeded_generator(const seeded_generator&) = delete;

private:
  const std::lock_guard<std::mutex> drawing_;
  at::Generator numbers_;
  const at::Tensor before_;
};

} // namespace

at::Tensor generator_state(at::Device place) {
  const std::lock_guard drawing(draws_from_generator_of(place));
  auto numbers = at::globalContext().defaultGenerator(place);
  return state_of(numbers);
}

at::Tensor attention(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values, bool is_causal,
                     const at::Tensor& causal, dropout& drop) {
  if (!drop.active())
    return at::scaled_dot_product_attention(queries, keys, values, {}, 0.0, is_causal);
  if (!queries.is_cpu()) { // its fused kernels drop by numbers of the device's generator, which nothing else draws from
    // Kernels are given seed and place in the call: what comes after it changes nothing.
    const seeded_generator numbers(queries.device(), drop.next_seed());
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

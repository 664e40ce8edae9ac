#include "gpu/layers/tensor_device.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace parcae {

namespace {

void share_among_threads(std::size_t n, std::size_t unit, const std::function<void(std::size_t, std::size_t)>& f) {
  constexpr std::size_t worth_a_thread = 32'768; // as many values as LibTorch's own operators take
  const auto units = static_cast<std::int64_t>((n + unit - 1) / unit);
  at::parallel_for(0, units, static_cast<std::int64_t>((worth_a_thread + unit - 1) / unit),
                   [&](std::int64_t first, std::int64_t last) {
                     const auto begin = static_cast<std::size_t>(first) * unit;
                     f(begin, std::min(n, static_cast<std::size_t>(last) * unit) - begin);
                   });
}

} // namespace

float* tensor_device::values_of(const at::Tensor& x) const {
  if (x.device() != place_ || x.scalar_type() != at::kFloat || !x.is_contiguous())
    throw std::invalid_argument("values_of: not contiguous float32 values on " + place_.str());
  return x.data_ptr<float>();
}

bfloat16* tensor_device::halves_of(const at::Tensor& x) const {
  if (x.device() != place_ || x.scalar_type() != at::kBFloat16 || !x.is_contiguous())
    throw std::invalid_argument("halves_of: not contiguous bfloat16 values on " + place_.str());
  return static_cast<bfloat16*>(x.data_ptr());
}

memory_view tensor_device::memory_of(const at::Tensor& x) const {
  if ((x.device() != place_ && !x.is_cpu()) || !x.is_contiguous())
    throw std::invalid_argument("memory_of: not contiguous on " + place_.str() + " or the host");
  return {std::span(static_cast<std::byte*>(x.data_ptr()), x.nbytes()), x.is_cpu() ? nullptr : of_};
}

void tensor_device::add(const at::Tensor& to, const at::Tensor& left, const at::Tensor& right) const {
  if (left.numel() != to.numel() || right.numel() != to.numel())
    throw std::invalid_argument("add: sizes differ");
  const auto n = static_cast<std::size_t>(to.numel());
  if (to.scalar_type() == at::kBFloat16)
    compute().add_values(halves_of(to), halves_of(left), halves_of(right), n);
  else if (right.scalar_type() == at::kBFloat16)
    compute().add_values(values_of(to), values_of(left), halves_of(right), n);
  else
    compute().add_values(values_of(to), values_of(left), values_of(right), n);
}

void tensor_device::convert(const at::Tensor& to, const at::Tensor& from) const {
  if (from.numel() != to.numel())
    throw std::invalid_argument("convert: sizes differ");
  const auto n = static_cast<std::size_t>(to.numel());
  if (to.scalar_type() == from.scalar_type())
    to.copy_(from);
  else if (to.scalar_type() == at::kBFloat16)
    compute().round_values(halves_of(to), values_of(from), n);
  else
    compute().widen_values(values_of(to), halves_of(from), n);
}

void tensor_device::note_end(const std::exception& x) const {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&x))
    of_->note_told_shortage();
}

bool tensor_device::nothing_did_without_memory() const {
  constexpr std::chrono::milliseconds look{1}, longest{1'000}; // until another thread has said what came to it
  for (auto waited = look * 0; of_->shortages() > of_->told_shortages(); waited += look) {
    if (waited >= longest)
      return false;
    std::this_thread::sleep_for(look);
  }
  return true;
}

// From ordinary memory the copy would wait for all that was given. LibTorch keeps the pinned memory until it is done.
at::Tensor sent_to(at::Device place, const at::Tensor& x) {
  return place.is_cuda() ? x.pin_memory().to(place, true) : x.to(place);
}

const tensor_device& processor() {
  static const auto all = make_cpu_device({.type = "cpu", .place = "cpu", .name = "cpu", .computes_as = {}, .bytes = 0},
                                          share_among_threads);
  static const tensor_device result(*all);
  return result;
}

} // namespace parcae

#include "gpu/training/host_results.hpp"

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>

namespace parcae {

namespace {

constexpr std::chrono::milliseconds look_up{20};
constexpr std::size_t least_bytes = 4096;

} // namespace

host_results::~host_results() {
  try {
    wait([] {});
  } catch (const device_error&) {
    return; // nothing is written any more
  }
}

void host_results::wait(const std::function<void()>& look) {
  while (copied_ && !copied_->wait(look_up))
    look();
  copied_.reset();
}

at::Tensor host_results::bring(const at::Tensor& x, const std::function<void()>& look) {
  if (x.is_cpu())
    return x;
  wait(look); // for one that was given up
  const auto from = on_.memory_of(x).bytes;
  if (from.size() > bytes_) {
    bytes_ = std::max(least_bytes, std::bit_ceil(from.size()));
    pinned_ = on_.of().allocate_pinned(bytes_);
  }
  on_.compute().copy(pinned_.get(), from.data(), from.size());
  copied_ = on_.compute().record();
  wait(look);
  const auto result = at::empty_like(x, at::kCPU);
  std::memcpy(result.data_ptr(), pinned_.get(), from.size());
  return result;
}

} // namespace parcae

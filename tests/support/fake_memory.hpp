#pragma once

// The memory of fake devices, and of the host for them; of fake_device.cpp.

#include "gpu/device/device.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <vector>

namespace parcae {

inline constexpr std::size_t arena_bytes = std::size_t{8} << 30; ///< addresses; memory is taken when it is used

/// The host's pinned memory, of all devices.
class pinned_memory {
public:
  std::byte* take(std::size_t n) {
    const std::lock_guard held(mutex_);
    const auto spare = spare_.extract(n);
    auto* x = spare ? spare.mapped() : static_cast<std::byte*>(::operator new (n, std::align_val_t{256}));
    parts_[x] = n;
    return x;
  }
  void give_back(std::byte* x, std::size_t n) {
    const std::lock_guard held(mutex_);
    parts_.erase(x);
    spare_.emplace(n, x);
  }
  bool has(const std::byte* x, std::size_t n) {
    const std::lock_guard held(mutex_);
    auto after = parts_.upper_bound(x);
    if (after == parts_.begin())
      return false;
    --after;
    return x + n <= after->first + after->second;
  }
  std::size_t bytes() {
    const std::lock_guard held(mutex_);
    return std::transform_reduce(parts_.begin(), parts_.end(), std::size_t{0}, std::plus{},
                                 [](const auto& x) { return x.second; });
  }

private:
  std::mutex mutex_;
  std::map<const std::byte*, std::size_t> parts_;
  std::multimap<std::size_t, std::byte*> spare_; ///< by size; kept, as a GPU's is
};

inline pinned_memory pinned;

/// Bytes of a device that are in use.
struct watched_memory {
  watched_memory(const std::byte* begin, const std::byte* end, bool given_back) :
      begin(begin), end(end), given_back(given_back) {}

  const std::byte *const begin, *const end;
  std::atomic<bool> given_back; ///< some of it
};

/// A device's memory, in parts whose sizes are powers of two.
class arena {
public:
  explicit arena(std::uint32_t number) : of(number) {
    const int file = ::memfd_create("fake device", 0);
    if (file < 0 || ::ftruncate(file, arena_bytes) != 0)
      throw device_error("no memory for a fake device");
    given_ = map(file, PROT_NONE);
    readable_ = map(file, PROT_READ | PROT_WRITE);
    ::close(file);
  }

  std::byte* allocate(std::size_t bytes) {
    const auto n = std::bit_ceil(std::max<std::size_t>(bytes, 256));
    std::byte* result = nullptr;
    {
      const std::lock_guard held(mutex_);
      if (limit_ > 0 && taken_ + kept_ + n > limit_)
        throw device_error("a fake device is full");
      auto& free = free_[std::countr_zero(n)];
      if (!free.empty()) {
        result = free.back();
        free.pop_back();
      } else {
        if (used_ + n > arena_bytes)
          throw device_error("a fake device has no addresses left");
        result = given_ + used_;
        used_ += n;
      }
      sizes_[result] = n;
      peak_ = std::max(peak_, taken_ += n);
    }
    std::memset(readable(result), 0xA5, bytes); // whoever thinks that it is 0 is wrong
    return result;
  }

  void free(std::byte* x) {
    const std::lock_guard held(mutex_);
    const auto part = sizes_.extract(x);
    for (const auto& each : watched_)
      if (const auto y = each.lock(); y && y->begin < x + part.mapped() && x < y->end)
        y->given_back = true;
    taken_ -= part.mapped();
    free_[std::countr_zero(part.mapped())].push_back(x);
  }

  bool is_given_out(const std::byte* x, std::size_t n) {
    const std::lock_guard held(mutex_);
    return has_given(x, n);
  }

  /// For as long as it is kept.
  std::shared_ptr<const watched_memory> watch(const std::byte* x, std::size_t n) {
    const std::lock_guard held(mutex_);
    const auto result = std::make_shared<watched_memory>(x, x + n, !has_given(x, n));
    std::erase_if(watched_, [](const auto& each) { return each.expired(); });
    watched_.push_back(result);
    return result;
  }

  void limit(std::size_t left, std::size_t kept, std::uint32_t again) {
    const std::lock_guard held(mutex_);
    limit_ = taken_ + left + kept;
    kept_ = kept;
    again_ = again;
    given_back_ = 0;
  }
  void unlimit() {
    const std::lock_guard held(mutex_);
    limit_ = kept_ = 0;
  }
  void give_back_kept() {
    const std::lock_guard held(mutex_);
    if (++given_back_ > again_)
      kept_ = 0;
  }
  std::uint32_t given_back() {
    const std::lock_guard held(mutex_);
    return given_back_;
  }

  std::size_t peak() {
    const std::lock_guard held(mutex_);
    return peak_;
  }
  void begin_peak() {
    const std::lock_guard held(mutex_);
    peak_ = taken_;
  }

  bool has(const void* x) const {
    return static_cast<const std::byte*>(x) >= given_ && static_cast<const std::byte*>(x) < given_ + arena_bytes;
  }
  std::byte* readable(const void* x) const { return readable_ + (static_cast<const std::byte*>(x) - given_); }

  const std::uint32_t of; ///< the device's number

private:
  static std::byte* map(int file, int protection) {
    void* x = ::mmap(nullptr, arena_bytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (x == MAP_FAILED)
      throw device_error("no addresses for a fake device");
    return static_cast<std::byte*>(x);
  }

  bool has_given(const std::byte* x, std::size_t n) {
    auto after = sizes_.upper_bound(const_cast<std::byte*>(x));
    if (after == sizes_.begin())
      return false;
    --after;
    return x + n <= after->first + after->second;
  }

  std::byte* given_ = nullptr;
  std::byte* readable_ = nullptr;
  std::mutex mutex_;
  std::size_t used_ = 0;
  std::size_t taken_ = 0, peak_ = 0; ///< of what is given out
  std::size_t limit_ = 0, kept_ = 0; ///< of all; 0: none. By LibTorch's library
  std::uint32_t again_ = 0, given_back_ = 0;
  std::array<std::vector<std::byte*>, 64> free_; ///< by the logarithm of the size
  std::map<std::byte*, std::size_t> sizes_;      ///< of what is given out
  std::vector<std::weak_ptr<watched_memory>> watched_;
};

} // namespace parcae

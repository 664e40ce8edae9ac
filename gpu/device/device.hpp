#pragma once

// What a slot computes on: memory, streams of work, and the kernels. Torch-free. There is one for processors
// (make_cpu_device), and one for NVIDIA GPUs in the plug-in (gpu/cuda, opened by cuda_library.hpp).

#include "gpu/device/attention.hpp"
#include "gpu/device/kernels.hpp"

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace parcae {

/// What a device's driver or library says went wrong, on one line. Of a GPU nothing can be used after it: its errors
/// stay until the process ends.
struct device_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct device_facts {
  std::string type;         ///< "cpu" or "cuda"
  std::string place;        ///< as LibTorch says it: "cpu", "cuda:1"
  std::string name;         ///< for people
  std::string computes_as;  ///< what decides about bits, on one line: slots that say the same compute the same
  std::uint64_t bytes = 0;  ///< of its memory, as far as it was free when it was opened
  bool host = false;        ///< that is the host's own
  bool has_bfloat16 = true; ///< in products of matrices
  std::string unique{};     ///< names it among all GPUs, as the driver says it; empty: nothing does
};

class device;

/// A moment in a stream's work.
class event {
public:
  virtual ~event() = default;
  /// Whether all work before it is done. Never waits. Throws device_error.
  virtual bool done() const = 0;
  /// Waits for it; not for threads that compute. False: the limit is over. Throws device_error.
  virtual bool wait(std::chrono::milliseconds limit) const = 0;
  /// How long it came after another one of this device, in ms. Both are done, and were recorded with their time. Throws
  /// device_error.
  virtual double ms_since(const event& before) const = 0;
};

/// Work that is done in the order in which it is given; the calls do not wait for it. Kernels are those of kernels.hpp,
/// all pointers to the device's memory. One thread at a time. Calls throw device_error, also for what went wrong in
/// earlier work.
class stream {
public:
  virtual ~stream() = default;

  /// Between memory of the device and pinned memory of the host, either way, or within one of them.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  /// From memory of another device of the same kind, or of this one, to this one's.
  virtual void copy_from(void* to, const device& of, const void* from, std::size_t bytes) = 0;
  virtual std::shared_ptr<event> record() = 0;
  /// With its time, which costs a GPU more: for who measures.
  virtual std::shared_ptr<event> record_time() { return record(); }
  /// What is given from now on is done after the event, which may be another device's of the same kind.
  virtual void wait_for(const event& x) = 0;

  virtual void add_values(float* to, const float* left, const float* right, std::size_t n) = 0;
  virtual void add_values(float* to, const float* left, const bfloat16* right, std::size_t n) = 0;
  virtual void add_values(bfloat16* to, const bfloat16* left, const bfloat16* right, std::size_t n) = 0;
  virtual void round_values(bfloat16* to, const float* from, std::size_t n) = 0;
  virtual void widen_values(float* to, const bfloat16* from, std::size_t n) = 0;
  virtual void add_in_order(const addition_order& order, float* to, std::span<const float* const> sums,
                            std::size_t n) = 0;
  virtual void add_in_order(const addition_order& order, bfloat16* to, std::span<const bfloat16* const> sums,
                            std::size_t n) = 0;
  virtual void step_adamw(const adamw_factors& x, float* parameters, float* first, float* second, const float* gradient,
                          bfloat16* copy, std::size_t n) = 0;
  virtual void step_sgd(const sgd_factors& x, float* parameters, float* moment, const float* gradient, bfloat16* copy,
                        std::size_t n) = 0;
  /// *to = the sum of squares.
  virtual void squared_norm(const float* x, std::size_t n, double* to) = 0;
  virtual void draw_normal(float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first) = 0;
  virtual void draw_uniform(float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first) = 0;
  virtual void drop_values(float* to, const float* from, std::size_t n, const dropout_mask& mask,
                           std::uint64_t first) = 0;
  /// Those of attention.hpp; what `rows` points to is there, too.
  virtual void keep_rows(const attention_shape& shape, const cached_rows& rows, const float* keys, const float* values,
                         std::size_t stride) = 0;
  virtual void attend_rows(const attention_shape& shape, const cached_rows& rows, float scale, const float* queries,
                           std::size_t stride, float* to) = 0;
};

/// Memory, given back when it goes; the device outlives it.
using device_memory = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;

/// Any thread. Outlives its streams, events and memory, and what LibTorch has there.
class device {
public:
  virtual ~device() = default;
  virtual const device_facts& facts() const = 0;
  /// Of its memory, now: others may have given some back since it was opened. Any thread. Throws device_error.
  virtual std::uint64_t free_bytes() const { return facts().bytes; }
  /// Both at multiples of 256 bytes. Throw device_error if there is not enough memory.
  virtual device_memory allocate(std::size_t bytes) = 0;
  /// Of the host, for copies. What was given back is kept for who asks for as much again.
  virtual device_memory allocate_pinned(std::size_t bytes) = 0;
  virtual std::unique_ptr<stream> make_stream() = 0;
  /// What the calling thread asks of the device's library without naming a device is about this one; a call of a stream
  /// or an event has it about theirs.
  virtual void choose() {}
  /// Whether each of the two, of one kind, reads the other's memory without the host's between. Throws device_error.
  virtual bool reaches(const device&) const { return true; }
  /// The most memory that was in use at once since begin_peak(), by tensors and beside them; what LibTorch's library
  /// keeps for tensors to come is not. Any thread. 0: not known, as for a host (training/tensor_account).
  virtual std::uint64_t peak_bytes() const { return 0; }
  /// The same with what is kept: what others could not have.
  virtual std::uint64_t peak_reserved_bytes() const { return 0; }
  virtual void begin_peak() {}
  /// Others can have the memory then that LibTorch's library keeps for tensors to come. Any thread. May wait for what
  /// the device has to do.
  virtual void give_back_kept() {}
  /// How often LibTorch's library found no memory for who asked; it throws each time. Any thread. 0: not known.
  virtual std::uint64_t shortages() const { return 0; }
  /// And how often that ended what asked. Any thread.
  std::uint64_t told_shortages() const { return told_shortages_; }
  void note_told_shortage() { ++told_shortages_; }
  /// The stream that LibTorch's operators use: kernels given here and operators are done in one order. Any number of
  /// threads.
  virtual stream& compute() = 0;

private:
  std::atomic<std::uint64_t> told_shortages_ = 0;
};

/// Bytes, and whose memory they are in. To be made of all that a std::span can be made of.
template <class Byte>
struct basic_memory_view {
  basic_memory_view() = default;
  template <class Bytes>
  requires std::convertible_to<Bytes, std::span<Byte>> basic_memory_view(Bytes&& x, device* y = nullptr) :
      bytes(std::forward<Bytes>(x)), on(y && !y->facts().host ? y : nullptr) {}
  /// What may be written may be read.
  operator basic_memory_view<const Byte>() const requires(!std::is_const_v<Byte>) {
    return {std::span<const Byte>(bytes), on};
  }

  std::span<Byte> bytes;
  device* on = nullptr; ///< null: the host
};
using memory_view = basic_memory_view<std::byte>;
using const_memory_view = basic_memory_view<const std::byte>;

/// f(begin, count) for parts of [0, n) side by side, which begin at multiples of `unit`.
using work_sharing =
    std::function<void(std::size_t n, std::size_t unit, const std::function<void(std::size_t, std::size_t)>& f)>;

/// The processor; `share` lets several threads do parts of a kernel, empty: one does it all.
std::unique_ptr<device> make_cpu_device(device_facts facts, work_sharing share = {});

} // namespace parcae

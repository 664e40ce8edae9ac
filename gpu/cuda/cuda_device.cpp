#include "gpu/cuda/cuda_device.hpp"

#include "gpu/cuda/kernels.hpp"
#include "protocols/base/back_off.hpp"

#include <ATen/cuda/PeerToPeerAccess.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>
#include <torch/version.h>

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <regex>
#include <thread>
#include <utility>
#include <vector>

namespace parcae::cuda {

namespace {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess)
    return;
  cudaGetLastError(); // else the next kernel of this thread, LibTorch's too, is told of it
  throw device_error(std::string(what) + ": " + cudaGetErrorString(status));
}

std::string first_line(const std::string& x) {
  return x.substr(0, x.find('\n'));
}

/// Calls of this thread are about that GPU. Before every call: one of a thread that has not chosen is about GPU 0, and
/// makes a context there, half a GiB of its memory.
void use(int number) {
  check(cudaSetDevice(number), "choosing the GPU");
}

/// A GPU's events. A step takes hundreds, and the driver has one lock for making and ending them, so what was given
/// back is used again.
class cuda_events {
public:
  cuda_events(int number, unsigned flags) : number_(number), flags_(flags) {}
  ~cuda_events() {
    cudaSetDevice(number_);
    for (const auto x : spare_)
      cudaEventDestroy(x);
  }
  cuda_events(const cuda_events&) = delete;

  int number() const { return number_; }
  cudaEvent_t take() {
    {
      const std::lock_guard held(mutex_);
      if (!spare_.empty()) {
        const auto x = spare_.back();
        spare_.pop_back();
        return x;
      }
    }
    use(number_);
    cudaEvent_t x = nullptr;
    check(cudaEventCreateWithFlags(&x, flags_), "making an event");
    return x;
  }
  void give_back(cudaEvent_t x) {
    const std::lock_guard held(mutex_);
    spare_.push_back(x);
  }

private:
  const int number_;
  const unsigned flags_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> spare_; ///< guarded by mutex_
};

class cuda_event final : public event {
public:
  /// In a stream of that GPU.
  cuda_event(cuda_events& from, cudaStream_t stream) : from_(from), number_(from.number()), event_(from.take()) {
    use(number_);
    if (const auto status = cudaEventRecord(event_, stream); status != cudaSuccess) {
      from_.give_back(event_);
      check(status, "recording an event");
    }
  }
  /// Who waits for it in a stream does so for what was recorded when that was asked for.
  ~cuda_event() override { from_.give_back(event_); }
  cuda_event(const cuda_event&) = delete;

  bool done() const override {
    use(number_);
    const auto status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) {
      cudaGetLastError(); // it counts as an error, too
      return false;
    }
    check(status, "the GPU's work");
    return true;
  }

  // CUDA's own wait has no limit.
  bool wait(std::chrono::milliseconds limit) const override {
    using clock = std::chrono::steady_clock;
    const auto end = clock::now() + limit;
    constexpr back_off pauses{std::chrono::microseconds(20), std::chrono::microseconds(500)};
    for (unsigned times = 1; !done(); ++times) {
      if (clock::now() >= end)
        return false;
      std::this_thread::sleep_for(pauses.after(times));
    }
    return true;
  }

  double ms_since(const event& before) const override {
    use(number_);
    float ms = 0;
    check(cudaEventElapsedTime(&ms, dynamic_cast<const cuda_event&>(before).event_, event_), "the GPU's time");
    return ms;
  }

  cudaEvent_t handle() const { return event_; }

private:
  cuda_events& from_;
  const int number_;
  const cudaEvent_t event_;
};

int number_of(const device& x);

/// Whether one GPU reads the memory of the other, and the other way round. LibTorch then has that opened, for its own
/// memory as well; its answer is for one thread at a time.
bool reach_each_other(int one, int other) {
  static std::mutex mutex;
  static std::map<std::pair<int, int>, bool> known;
  if (one == other)
    return true;
  const std::pair<int, int> pair = std::minmax(one, other);
  const std::lock_guard held(mutex);
  if (const auto found = known.find(pair); found != known.end())
    return found->second;
  try {
    const auto first = static_cast<c10::DeviceIndex>(pair.first), second = static_cast<c10::DeviceIndex>(pair.second);
    return known[pair] = at::cuda::get_p2p_access(first, second) && at::cuda::get_p2p_access(second, first);
  } catch (const std::exception& e) {
    throw device_error(first_line(e.what()));
  }
}

class cuda_stream final : public stream {
public:
  cuda_stream(device& of, cuda_events& events, cuda_events& timed) :
      of_(of), events_(events), timed_(timed), number_(events.number()) {}
  ~cuda_stream() override {
    if (!stream_)
      return;
    cudaSetDevice(number_);
    cudaStreamDestroy(stream_); // which lets what was given end
  }
  cuda_stream(const cuda_stream&) = delete;

  /// One of its own; else it is the device's default stream, which LibTorch takes. Its kernels come before those of
  /// LibTorch: they are few, NCCL's, and others wait for them.
  void separate() {
    use(number_);
    int least = 0, first = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &first), "asking for the priorities of streams");
    check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, first), "making a stream");
  }

  void copy(void* to, const void* from, std::size_t bytes) override {
    use(number_);
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "copying");
  }
  /// By the link between the GPUs, where each reaches the other's memory; else the driver takes it through the host's,
  /// and has to be told whose memory it is: of LibTorch's, which it maps by itself, CUDA does not know.
  void copy_from(void* to, const device& of, const void* from, std::size_t bytes) override {
    const auto there = number_of(of);
    if (reach_each_other(number_, there))
      return copy(to, from, bytes);
    use(number_);
    check(cudaMemcpyPeerAsync(to, number_, from, there, bytes, stream_), "copying between GPUs");
  }
  std::shared_ptr<event> record() override { return std::make_shared<cuda_event>(events_, stream_); }
  std::shared_ptr<event> record_time() override { return std::make_shared<cuda_event>(timed_, stream_); }
  void wait_for(const event& x) override {
    use(number_);
    check(cudaStreamWaitEvent(stream_, dynamic_cast<const cuda_event&>(x).handle(), 0), "waiting for an event");
  }

  void add_values(float* to, const float* left, const float* right, std::size_t n) override {
    launch([&] { cuda::add_values(stream_, to, left, right, n); });
  }
  void add_values(float* to, const float* left, const bfloat16* right, std::size_t n) override {
    launch([&] { cuda::add_values(stream_, to, left, right, n); });
  }
  void add_values(bfloat16* to, const bfloat16* left, const bfloat16* right, std::size_t n) override {
    launch([&] { cuda::add_values(stream_, to, left, right, n); });
  }
  void round_values(bfloat16* to, const float* from, std::size_t n) override {
    launch([&] { cuda::round_values(stream_, to, from, n); });
  }
  void widen_values(float* to, const bfloat16* from, std::size_t n) override {
    launch([&] { cuda::widen_values(stream_, to, from, n); });
  }
  void add_in_order(const addition_order& order, float* to, std::span<const float* const> sums,
                    std::size_t n) override {
    launch([&] { cuda::add_in_order(stream_, order, to, sums, n); });
  }
  void add_in_order(const addition_order& order, bfloat16* to, std::span<const bfloat16* const> sums,
                    std::size_t n) override {
    launch([&] { cuda::add_in_order(stream_, order, to, sums, n); });
  }
  void step_adamw(const adamw_factors& x, float* parameters, float* first, float* second, const float* gradient,
                  bfloat16* copy, std::size_t n) override {
    launch([&] { cuda::step_adamw(stream_, x, parameters, first, second, gradient, copy, n); });
  }
  void step_sgd(const sgd_factors& x, float* parameters, float* moment, const float* gradient, bfloat16* copy,
                std::size_t n) override {
    launch([&] { cuda::step_sgd(stream_, x, parameters, moment, gradient, copy, n); });
  }
  void squared_norm(const float* x, std::size_t n, double* to) override {
    const std::lock_guard held(norms_); // one norm's kernels are behind another's
    const auto bytes = std::bit_ceil((scratch_of(n) + 1) * sizeof(double));
    if (scratch_.empty() || scratch_.back().first < bytes)
      scratch_.emplace_back(bytes, of_.allocate(bytes));
    auto* scratch = reinterpret_cast<double*>(scratch_.back().second.get());
    launch([&] { cuda::squared_norm(stream_, x, n, scratch, to); });
  }
  void draw_normal(float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first) override {
    launch([&] { cuda::draw_normal(stream_, to, n, seed, scale, first); });
  }
  void draw_uniform(float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first) override {
    launch([&] { cuda::draw_uniform(stream_, to, n, seed, scale, first); });
  }
  void drop_values(float* to, const float* from, std::size_t n, const dropout_mask& mask,
                   std::uint64_t first) override {
    launch([&] { cuda::drop_values(stream_, to, from, n, mask, first); });
  }
  void keep_rows(const attention_shape& shape, const cached_rows& rows, const float* keys, const float* values,
                 std::size_t stride) override {
    launch([&] { cuda::keep_rows(stream_, shape, rows, keys, values, stride); });
  }
  void attend_rows(const attention_shape& shape, const cached_rows& rows, float scale, const float* queries,
                   std::size_t stride, float* to) override {
    launch([&] { cuda::attend_rows(stream_, shape, rows, scale, queries, stride, to); });
  }

  cudaStream_t handle() const { return stream_; }

private:
  template <class Launch>
  void launch(const Launch& f) {
    use(number_);
    f();
    check(cudaGetLastError(), "a kernel");
  }

  device& of_;
  cuda_events& events_;
  cuda_events& timed_;
  const int number_;
  cudaStream_t stream_ = nullptr;
  std::mutex norms_;
  /// For norms, by its size, the largest last. Doubled when it is too small, and what there was is kept: to give it
  /// back would wait for all of the GPU's work. Guarded by norms_.
  std::vector<std::pair<std::size_t, device_memory>> scratch_;
};

std::string dotted(int version, int first, int second) {
  return std::to_string(version / first) + "." + std::to_string(version % first / second);
}

/// Of the kernel module; the runtime only knows which CUDA it can do.
std::string driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  std::smatch found;
  return std::regex_search(line, found, std::regex(R"(\s(\d+\.\d+(\.\d+)?)\s)")) ? found[1].str() : "unknown";
}

// Of libraries that LibTorch brought with it.
std::string cublas_version() {
  const auto property = reinterpret_cast<int (*)(int, int*)>(dlsym(RTLD_DEFAULT, "cublasGetProperty"));
  int parts[3] = {};
  for (int i = 0; i < 3; ++i)
    if (!property || property(i, &parts[i]) != 0)
      return "unknown";
  return std::to_string(parts[0]) + "." + std::to_string(parts[1]) + "." + std::to_string(parts[2]);
}

std::string cudnn_version() {
  const auto version = reinterpret_cast<std::size_t (*)()>(dlsym(RTLD_DEFAULT, "cudnnGetVersion"));
  return version ? std::to_string(version()) : "unknown";
}

/// As nvidia-smi shows it.
std::string unique_name(const cudaUUID_t& x) {
  std::string result = "GPU";
  for (std::size_t i = 0; i < sizeof x.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10)
      result += '-';
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(x.bytes[i]));
    result += two;
  }
  return result;
}

/// Others may have some, a display for one.
std::uint64_t free_bytes_of(int number) {
  use(number);
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for the GPU's memory");
  return free;
}

device_facts facts_of(int number) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, number), "asking the GPU");
  int runtime = 0;
  check(cudaRuntimeGetVersion(&runtime), "asking the CUDA runtime");
  device_facts x;
  x.type = "cuda";
  x.place = "cuda:" + std::to_string(number);
  x.name = properties.name;
  // Kernels are there for GPUs up to sm_90 (compile_kernels); for others the driver compiles them.
  const auto compiler = properties.major > 9 ? ", driver " + driver_version() : std::string();
  x.computes_as = x.name + " sm_" + std::to_string(properties.major) + std::to_string(properties.minor) + " " +
                  std::to_string(properties.multiProcessorCount) + " SMs" + compiler + ", CUDA " +
                  dotted(runtime, 1000, 10) + ", cuBLAS " + cublas_version() + ", cuDNN " + cudnn_version() +
                  ", LibTorch " TORCH_VERSION ", cuda";
  x.bytes = free_bytes_of(number);
  x.unique = unique_name(properties.uuid);
  x.has_bfloat16 = properties.major >= 8;
  return x;
}

class cuda_device final : public device {
public:
  explicit cuda_device(int number) : number_(number), facts_(facts_of(number)) {}
  ~cuda_device() override {
    cudaSetDevice(number_);
    for (const auto& [bytes, memory] : spare_pinned_)
      cudaFreeHost(memory);
  }

  const device_facts& facts() const override { return facts_; }
  std::uint64_t free_bytes() const override { return free_bytes_of(number_); }
  device_memory allocate(std::size_t bytes) override {
    use(number_);
    void* memory = nullptr;
    auto status = cudaMalloc(&memory, bytes);
    if (status == cudaErrorMemoryAllocation) { // LibTorch may hold more than its tensors need
      cudaGetLastError();
      c10::cuda::CUDACachingAllocator::emptyCache();
      status = cudaMalloc(&memory, bytes);
    }
    check(status, "memory of the GPU");
    const auto now = own_bytes_ += bytes;
    auto most = own_peak_.load();
    while (most < now && !own_peak_.compare_exchange_weak(most, now))
      continue;
    return {static_cast<std::byte*>(memory), [this, bytes](std::byte* x) {
              cudaSetDevice(number_);
              cudaFree(x);
              own_bytes_ -= bytes;
            }};
  }
  device_memory allocate_pinned(std::size_t bytes) override {
    const auto give_back = [this, bytes](std::byte* x) {
      const std::lock_guard held(pinned_mutex_);
      spare_pinned_.emplace(bytes, x);
    };
    {
      const std::lock_guard held(pinned_mutex_);
      if (auto found = spare_pinned_.extract(bytes))
        return {found.mapped(), give_back};
    }
    use(number_);
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "pinned memory");
    return {static_cast<std::byte*>(memory), give_back};
  }
  std::unique_ptr<stream> make_stream() override {
    auto x = std::make_unique<cuda_stream>(*this, events_, timed_);
    x->separate();
    return x;
  }
  void choose() override { use(number_); }
  bool reaches(const device& other) const override { return reach_each_other(number_, number_of(other)); }
  std::uint64_t peak_bytes() const override {
    return peak_of(c10::cuda::CUDACachingAllocator::getDeviceStats(index()).allocated_bytes) + own_peak_;
  }
  std::uint64_t peak_reserved_bytes() const override {
    return peak_of(c10::cuda::CUDACachingAllocator::getDeviceStats(index()).reserved_bytes) + own_peak_;
  }
  void begin_peak() override {
    c10::cuda::CUDACachingAllocator::resetPeakStats(index());
    own_peak_ = own_bytes_.load();
  }
  void give_back_kept() override {
    use(number_);
    try {
      c10::cuda::CUDACachingAllocator::emptyCache();
    } catch (const std::exception& e) {
      throw device_error(first_line(e.what()));
    }
  }
  std::uint64_t shortages() const override {
    namespace allocator = c10::cuda::CUDACachingAllocator;
    return allocator::get()->initialized() ? static_cast<std::uint64_t>(allocator::getDeviceStats(index()).num_ooms)
                                           : 0;
  }
  stream& compute() override { return compute_; }

private:
  static std::uint64_t peak_of(const c10::CachingAllocator::StatArray& x) {
    return static_cast<std::uint64_t>(x[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak);
  }
  c10::DeviceIndex index() const { return static_cast<c10::DeviceIndex>(number_); }

  friend int number_of(const device& x) { return dynamic_cast<const cuda_device&>(x).number_; }

  const int number_;
  const device_facts facts_;
  std::atomic<std::uint64_t> own_bytes_ = 0; ///< besides tensors
  std::atomic<std::uint64_t> own_peak_ = 0;
  std::mutex pinned_mutex_;
  /// By size, of which there are few: to make some takes milliseconds, and to give some back waits for all of the GPU's
  /// work. Guarded by pinned_mutex_.
  std::multimap<std::size_t, std::byte*> spare_pinned_;
  cuda_events events_{number_, cudaEventBlockingSync | cudaEventDisableTiming};
  cuda_events timed_{number_, cudaEventBlockingSync};
  cuda_stream compute_{*this, events_, timed_};
};

} // namespace

CUstream_st* handle_of(stream& x) {
  return dynamic_cast<cuda_stream&>(x).handle();
}

std::unique_ptr<device> make_device(std::uint32_t number) {
  int count = 0;
  check(cudaGetDeviceCount(&count), "asking for GPUs");
  if (number >= static_cast<std::uint32_t>(count))
    throw device_error("there is no GPU " + std::to_string(number) + ": CUDA counts " + std::to_string(count) +
                       " from 0");
  return std::make_unique<cuda_device>(static_cast<int>(number));
}

} // namespace parcae::cuda

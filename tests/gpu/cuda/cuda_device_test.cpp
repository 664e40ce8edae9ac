// The plug-in's device over a double of the CUDA runtime, whose functions are here: it knows which GPU each thread has
// chosen, and which one each thing is of.

#include "gpu/cuda/cuda_device.hpp"
#include "tests/support/names.hpp"

#include <ATen/cuda/PeerToPeerAccess.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

int major_version = 9; ///< of all GPUs
std::atomic<int> events_made = 0, memory_taken = 0;
std::vector<std::pair<unsigned, int>> made_streams; ///< flags and priority
std::size_t free_bytes = std::size_t{79} << 30;

thread_local int chosen = 0; ///< as CUDA has it until a thread says otherwise

std::string copied_between; ///< how the last copy between GPUs went

/// What was made, and what was called for the wrong GPU.
struct runtime_double {
  std::mutex mutex;
  std::map<const void*, int> owners;
  std::vector<std::string> strays;
  std::set<const void*> untimed; ///< events

  void* make() {
    const std::lock_guard held(mutex);
    auto* x = std::malloc(64);
    owners[x] = chosen;
    return x;
  }
  void note_use(const void* x, const char* call) {
    const std::lock_guard held(mutex);
    if (x && owners.at(x) != chosen)
      strays.push_back(std::string(call) + " on GPU " + std::to_string(chosen));
  }
};
runtime_double& double_of_runtime() {
  static auto* it = new runtime_double;
  return *it;
}

cudaError_t used(const void* x, const char* call) {
  double_of_runtime().note_use(x, call);
  return cudaSuccess;
}

template <class Handle>
cudaError_t make(Handle* to) {
  *to = static_cast<Handle>(double_of_runtime().make());
  return cudaSuccess;
}

} // namespace

extern "C" {
cudaError_t cudaGetDeviceCount(int* n) {
  *n = 3;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int n) {
  chosen = n;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* n) {
  *n = chosen;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* x) {
  *x = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* x, int) {
  *x = {};
  std::strcpy(x->name, "NVIDIA Double");
  x->major = major_version;
  x->multiProcessorCount = 132;
  for (int i = 0; i < 16; ++i)
    x->uuid.bytes[i] = static_cast<char>(0xf0 + i);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = free_bytes;
  *total = std::size_t{80} << 30;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t*, int) {
  return cudaErrorNotSupported;
}
cudaError_t cudaMallocAsync(void**, std::size_t, cudaStream_t) {
  return cudaErrorNotSupported;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* x, unsigned flags) {
  ++events_made;
  const auto status = make(x);
  const std::lock_guard held(double_of_runtime().mutex);
  if (flags & cudaEventDisableTiming)
    double_of_runtime().untimed.insert(*x);
  return status;
}
cudaError_t cudaEventRecord(cudaEvent_t x, cudaStream_t) {
  return used(x, "cudaEventRecord");
}
cudaError_t cudaEventQuery(cudaEvent_t x) {
  return used(x, "cudaEventQuery");
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t before, cudaEvent_t x) {
  *ms = 1;
  {
    const std::lock_guard held(double_of_runtime().mutex);
    for (const auto* y : {before, x})
      if (double_of_runtime().untimed.contains(y))
        return cudaErrorInvalidResourceHandle;
  }
  return used(x, "cudaEventElapsedTime");
}
cudaError_t cudaEventDestroy(cudaEvent_t x) {
  return used(x, "cudaEventDestroy");
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* first) {
  *least = 0; // that of the default stream
  *first = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* x, unsigned) {
  return cudaStreamCreateWithPriority(x, cudaStreamNonBlocking, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* x, unsigned flags, int priority) {
  made_streams.emplace_back(flags, priority);
  return make(x);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t x, cudaEvent_t, unsigned) {
  return used(x, "cudaStreamWaitEvent");
}
cudaError_t cudaStreamDestroy(cudaStream_t x) {
  return used(x, "cudaStreamDestroy");
}
cudaError_t cudaMalloc(void** x, std::size_t n) {
  ++memory_taken;
  return n > free_bytes ? cudaErrorMemoryAllocation : make(x);
}
cudaError_t cudaFree(void* x) {
  return used(x, "cudaFree");
}
cudaError_t cudaHostAlloc(void** x, std::size_t, unsigned) {
  return make(x);
}
cudaError_t cudaFreeHost(void* x) {
  return used(x, "cudaFreeHost");
}
cudaError_t cudaMemcpyAsync(void* to, const void*, std::size_t, cudaMemcpyKind, cudaStream_t by) {
  copied_between = "directly";
  const auto status = used(to, "cudaMemcpyAsync");
  return status == cudaSuccess ? used(by, "cudaMemcpyAsync") : status;
}
cudaError_t cudaMemcpyPeerAsync(void* to, int there, const void*, int from, std::size_t, cudaStream_t by) {
  copied_between = "by the driver from " + std::to_string(from) + " to " + std::to_string(there);
  const auto status = used(to, "cudaMemcpyPeerAsync");
  return status == cudaSuccess ? used(by, "cudaMemcpyPeerAsync") : status;
}
}

// Of LibTorch's library for CUDA, which is not here.
namespace at::cuda {
bool get_p2p_access(c10::DeviceIndex one, c10::DeviceIndex other) {
  return one + other == 1;
}
} // namespace at::cuda

namespace parcae {
namespace {

/// By a thread that has chosen no GPU.
void elsewhere(const std::function<void()>& f) {
  std::thread(f).join();
}

// given: things of GPU 1, looked at and given back by threads that never chose a GPU / expected: no call is about GPU
// 0, where it would make a context
TEST(cuda_device, no_thread_makes_a_context_on_another_gpu) {
  auto x = cuda::make_device(1);
  auto stream = x->make_stream();
  auto memory = x->allocate(1000), pinned = x->allocate_pinned(1000);
  auto first = stream->record_time(), second = stream->record_time();
  elsewhere([&] { EXPECT_TRUE(first->done()); });
  elsewhere([&] { EXPECT_TRUE(first->wait(std::chrono::seconds(1))); });
  elsewhere([&] { EXPECT_EQ(second->ms_since(*first), 1); });
  elsewhere([&] { x->compute().wait_for(*first); });
  elsewhere([&] { first.reset(); });
  elsewhere([&] { second.reset(); });
  elsewhere([&] { stream.reset(); });
  elsewhere([&] { memory.reset(); });
  elsewhere([&] { pinned.reset(); });
  elsewhere([&] { x.reset(); });
  EXPECT_EQ(double_of_runtime().strays, std::vector<std::string>());
}

// given: events that are recorded and dropped, at most two at a time / expected: two are made, and each is another
// one's only when that is dropped
TEST(cuda_device, events_are_used_again) {
  auto x = cuda::make_device(1);
  const auto before = events_made.load();
  for (int i = 0; i < 100; ++i) {
    const auto first = x->compute().record_time(), second = x->make_stream()->record_time();
    EXPECT_EQ(second->ms_since(*first), 1);
    EXPECT_EQ(events_made - before, 2);
  }
}

// given: events recorded with and without their time, in turn / expected: only the former have one; CUDA keeps none for
// the latter, also when they are used again
TEST(cuda_device, only_who_measures_has_events_with_time) {
  auto x = cuda::make_device(1);
  for (int i = 0; i < 3; ++i) {
    const auto timed = x->compute().record_time(), plain = x->compute().record();
    EXPECT_EQ(timed->ms_since(*timed), 1);
    EXPECT_THROW(plain->ms_since(*timed), device_error);
    EXPECT_THROW(timed->ms_since(*plain), device_error);
  }
}

// given: two GPUs that reach each other's memory, and a third, by a thread that computes on the first / expected: what
// it copies to another is given to that one's stream, directly where they do, and then it is about its own again
TEST(cuda_device, copies_from_one_gpu_to_another) {
  double_of_runtime().strays.clear();
  const auto first = cuda::make_device(0), second = cuda::make_device(1);
  const auto from = first->allocate(1000), to = second->allocate(1000);
  EXPECT_TRUE(first->reaches(*second));
  const auto left = first->compute().record();
  const auto by = second->make_stream();
  by->wait_for(*left);
  by->copy_from(to.get(), *first, from.get(), 1000);
  first->compute().wait_for(*by->record());
  EXPECT_EQ(copied_between, "directly");
  const auto third = cuda::make_device(2);
  const auto there = third->allocate(1000);
  EXPECT_FALSE(first->reaches(*third));
  third->make_stream()->copy_from(there.get(), *first, from.get(), 1000);
  EXPECT_EQ(copied_between, "by the driver from 0 to 2");
  EXPECT_EQ(chosen, 2);
  first->choose();
  EXPECT_EQ(chosen, 0);
  EXPECT_EQ(double_of_runtime().strays, std::vector<std::string>());
}

// given: a stream / expected: what it is given does not wait for the default stream, and its kernels come first
TEST(cuda_device, streams_come_before_the_default_one) {
  made_streams.clear();
  cuda::make_device(0)->make_stream();
  EXPECT_EQ(made_streams, (std::vector<std::pair<unsigned, int>>{{cudaStreamNonBlocking, -5}}));
}

// given: a GPU without pools of memory, as virtual ones may be, and norms in two of its streams / expected: scratch
// memory is taken for the first of a stream, and anew only for a greater array
TEST(cuda_device, scratch_is_kept) {
  double_of_runtime().strays.clear();
  {
    const auto x = cuda::make_device(1);
    const auto other = x->make_stream();
    const auto taken_for = [](stream& by, std::size_t n) {
      const auto before = memory_taken.load();
      chosen = 0;
      by.squared_norm(nullptr, n, nullptr);
      return memory_taken - before;
    };
    EXPECT_EQ(taken_for(x->compute(), 1 << 20), 1);
    EXPECT_EQ(taken_for(x->compute(), 1 << 20), 0);
    EXPECT_EQ(taken_for(x->compute(), 1'000), 0);
    EXPECT_EQ(taken_for(*other, 1'000), 1);
    EXPECT_EQ(taken_for(x->compute(), 1 << 24), 1);
    EXPECT_EQ(taken_for(x->compute(), 1 << 20), 0);
    chosen = 0;
  }
  EXPECT_EQ(double_of_runtime().strays, std::vector<std::string>());
}

// given: a GPU of which somebody else has the most / expected: what is left is promised, under the name that nvidia-smi
// has for it
TEST(cuda_device, promises_what_is_free) {
  free_bytes = std::size_t{30} << 30;
  const auto facts = cuda::make_device(0)->facts();
  EXPECT_EQ(facts.bytes, free_bytes);
  EXPECT_EQ(facts.unique, "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff");
}

// given: a GPU that a process which was killed had some of when it was opened, and then had not / expected: all that is
// free now
TEST(cuda_device, knows_what_is_free_later) {
  free_bytes = std::size_t{3} << 30;
  const auto x = cuda::make_device(1);
  EXPECT_EQ(x->facts().bytes, free_bytes);
  free_bytes = std::size_t{79} << 30;
  chosen = 0;
  EXPECT_EQ(x->free_bytes(), free_bytes);
  EXPECT_EQ(chosen, 1) << "of another GPU";
}

// given: LibTorch's allocator, which a GPU refuses memory / expected: that is counted, whether or not who asked lets
// anybody know
TEST(cuda_device, counts_what_libtorch_finds_no_memory_for) {
  const auto x = cuda::make_device(0);
  EXPECT_EQ(x->shortages(), 0u) << "nobody has asked it for any";
  auto* all = c10::cuda::CUDACachingAllocator::get();
  all->init(3);
  free_bytes = std::size_t{1} << 30;
  all->raw_delete(all->raw_alloc_with_stream(1000, nullptr));
  EXPECT_EQ(x->shortages(), 0u);
  EXPECT_THROW(all->raw_alloc_with_stream(std::size_t{2} << 30, nullptr), c10::OutOfMemoryError);
  EXPECT_EQ(x->shortages(), 1u);
  EXPECT_EQ(cuda::make_device(1)->shortages(), 0u);
}

// given: tensors of which LibTorch rounds the memory up to segments that it keeps, and memory beside them, all given
// back / expected: what was in use at most, and beside it what others could not have; from then on what is left of each
TEST(cuda_device, tells_what_is_used_from_what_is_kept) {
  free_bytes = std::size_t{79} << 30;
  const auto x = cuda::make_device(1);
  auto* all = c10::cuda::CUDACachingAllocator::get();
  all->init(3);
  x->choose();
  x->begin_peak();
  all->raw_delete(all->raw_alloc_with_stream(1'024, nullptr));
  x->allocate(1'000'000);
  EXPECT_EQ(x->peak_bytes(), 1'001'024u);
  EXPECT_EQ(x->peak_reserved_bytes(), (2u << 20) + 1'000'000);
  x->begin_peak();
  EXPECT_EQ(x->peak_bytes(), 0u);
  EXPECT_EQ(x->peak_reserved_bytes(), 2u << 20);
  x->give_back_kept();
  x->begin_peak();
  EXPECT_EQ(x->peak_reserved_bytes(), 0u);
}

// given: GPUs that kernels are compiled for, and one for which the driver compiles them / expected: only the second
// says with which driver it computes, as only there it can decide about bits
TEST(cuda_device, a_driver_that_compiles_nothing_changes_no_bit) {
  const auto facts_with = [](int major) {
    major_version = major;
    return cuda::make_device(0)->facts().computes_as;
  };
  EXPECT_THAT(facts_with(12), HasSubstr("sm_120 132 SMs, driver "));
  for (const int major : {7, 8, 9})
    EXPECT_THAT(facts_with(major), AllOf(HasSubstr("0 132 SMs, CUDA "), Not(HasSubstr("driver"))));
}

} // namespace
} // namespace parcae

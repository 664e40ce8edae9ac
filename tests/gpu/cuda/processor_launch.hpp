#pragma once

// What kernels.cu needs of CUDA to be compiled for the processor: each launch runs its threads one after the other.
// What has threads that talk to each other, norms and attention, only compiles.

#include <cstddef>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __launch_bounds__(n)
#define __grid_constant__
#define __shared__ static

struct place_in_launch {
  unsigned x;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline place_in_launch threadIdx{0}, blockIdx{0}, blockDim{256}, gridDim{1};

inline void on_processor(unsigned blocks, void*, const std::function<void()>& thread) {
  gridDim.x = blocks;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x)
      thread();
}

template <class Number>
Number min(Number x, Number y) {
  return x < y ? x : y;
}
inline double __shfl_down_sync(unsigned, double x, unsigned) {
  return x;
}
inline void __syncthreads() {}
inline int cudaMemsetAsync(void* to, int value, std::size_t n, void*) {
  std::memset(to, value, n);
  return 0;
}

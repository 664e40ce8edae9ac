// What gpu/device/cuda_library.cpp looks up. Exceptions pass: both sides have one C++ library.

#include "gpu/cuda/cuda_device.hpp"
#include "gpu/cuda/nccl.hpp"
#include "gpu/device/cuda_library.hpp"

extern "C" {
[[gnu::visibility("default")]] extern const std::uint32_t parcae_cuda_version;
const std::uint32_t parcae_cuda_version = parcae::cuda_library_version;

[[gnu::visibility("default")]] void parcae_cuda_open(std::uint32_t number, parcae::device** result) {
  *result = parcae::cuda::make_device(number).release();
}

[[gnu::visibility("default")]] void parcae_cuda_open_nccl(std::uint32_t number, parcae::nccl_library** result) {
  *result = parcae::cuda::make_nccl(number).release();
}
}

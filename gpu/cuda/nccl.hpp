#pragma once

#include "gpu/device/nccl_library.hpp"

#include <cstdint>
#include <memory>

namespace parcae::cuda {

/// NCCL on GPU `number`: the library that LibTorch's CUDA library brought with it. Throws device_error if that is of a
/// version with other structs than those this was compiled with.
std::unique_ptr<nccl_library> make_nccl(std::uint32_t number);

} // namespace parcae::cuda

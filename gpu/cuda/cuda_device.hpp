#pragma once

#include "gpu/device/device.hpp"

#include <cstdint>
#include <memory>

struct CUstream_st; ///< what a cudaStream_t points to

namespace parcae::cuda {

/// GPU `number`, as the CUDA runtime counts. Throws device_error.
std::unique_ptr<device> make_device(std::uint32_t number);

/// Of a stream of such a device.
CUstream_st* handle_of(stream& x);

} // namespace parcae::cuda

#pragma once

#include "gpu/device/device.hpp"

#include <cstdint>
#include <memory>

namespace parcae::cuda {

/// GPU `number`, as the CUDA runtime counts. Throws device_error.
std::unique_ptr<device> make_device(std::uint32_t number);

} // namespace parcae::cuda

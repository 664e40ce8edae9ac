#pragma once

// Whether what LibTorch computes in this process has the bits that it has in others.

#include "gpu/executor/executor.hpp"
#include "gpu/layers/tensor_device.hpp"

namespace parcae {

/// Before what was computed is said to others: if some of it may have other bits for want of memory, who made the
/// executor is told, and if that returns, std::runtime_error is thrown.
void require_usual_bits(const tensor_device& on, const executor_options& options);

} // namespace parcae

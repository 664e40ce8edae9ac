#pragma once

#include "gpu/layers/tensor_device.hpp"
#include "protocols/model/parameter_runs.hpp"
#include "protocols/values/job_specification.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace parcae {

/// One optimizer step on flat float32 buffers of a device, in place, with the kernels of gpu/device. `moments` as many
/// as moments_of says; `steps` is the version before the step (0: the first step); `clip`: what the gradient, which is
/// left as it is, is multiplied with. `runs` covers the buffer; empty: all is treated alike. What becomes of an element
/// does not depend on its place in the buffer, on the runs around its own, or on the processor, so equal copies of a
/// tensor stay equal in every bit. `copy`, bfloat16 and as large: takes the parameters, rounded, in the same pass;
/// undefined: not wanted.
void apply_optimizer(const optimizer_specification& x, at::Tensor& parameters, std::vector<at::Tensor>& moments,
                     const at::Tensor& gradient, std::uint64_t steps, double rate, double clip = 1,
                     std::span<const parameter_run> runs = {}, const tensor_device& on = processor(),
                     const at::Tensor& copy = {});

} // namespace parcae

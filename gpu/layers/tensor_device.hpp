#pragma once

// A device as LibTorch sees it: where a slot's tensors are made, and the kernels of gpu/device on them.

#include "gpu/device/device.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

namespace parcae {

/// Refers to a device, which outlives it. Any thread. Calls do not wait for the device's work, whose order is that of
/// LibTorch's operators.
class tensor_device {
public:
  explicit tensor_device(device& of) : of_(&of), place_(of.facts().place) {}

  device& of() const { return *of_; }
  at::Device place() const { return place_; }
  stream& compute() const { return of_->compute(); }
  /// For new tensors there.
  at::TensorOptions floats() const { return at::TensorOptions(place_).dtype(at::kFloat); }
  at::TensorOptions wholes() const { return at::TensorOptions(place_).dtype(at::kLong); }

  /// The values of a float32 tensor, contiguous and there, for kernels. Else throws std::invalid_argument.
  float* values_of(const at::Tensor& x) const;
  /// The same of a tensor of bfloat16.
  bfloat16* halves_of(const at::Tensor& x) const;
  /// The bytes of a contiguous tensor, there or on the host.
  memory_view memory_of(const at::Tensor& x) const;

  /// to = left + right, of equal sizes; `to` may be either of them. float32, but `right` may be bfloat16.
  void add(const at::Tensor& to, const at::Tensor& left, const at::Tensor& right) const;

private:
  device* of_;
  at::Device place_;
};

/// A tensor of the host, there. A GPU copies it behind what it was given before; nobody waits for that.
at::Tensor sent_to(at::Device place, const at::Tensor& x);

/// The processor, whose kernels take as many threads as LibTorch's own operators would; bits do not depend on it.
const tensor_device& processor();

} // namespace parcae

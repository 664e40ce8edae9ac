#pragma once

// A device as LibTorch sees it: where a slot's tensors are made, and the kernels of gpu/device on them.

#include "gpu/device/device.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <exception>

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

  /// to = left + right, of equal sizes; `to` may be either of them. float32, but `right` may be bfloat16; or all of
  /// them are bfloat16, and the sum is rounded.
  void add(const at::Tensor& to, const at::Tensor& left, const at::Tensor& right) const;
  /// to = from, of equal sizes, each float32 or bfloat16: rounded as kernels round, on any device.
  void convert(const at::Tensor& to, const at::Tensor& from) const;

  /// To be called once for each exception that ends what computes or asks for memory there: it may be one of memory.
  void note_end(const std::exception& x) const;
  /// Whether nothing ever went on without memory that it had asked for there: all that found none ended, or is ending.
  /// Else LibTorch did it in another way, perhaps with other bits, and its threads keep what they chose: a convolution
  /// takes cuDNN's next plan where the workspace of the first has no room. Takes a second if it is false.
  bool nothing_did_without_memory() const;

private:
  device* of_;
  at::Device place_;
};

/// A tensor of the host, there. A GPU copies it behind what it was given before; nobody waits for that.
at::Tensor sent_to(at::Device place, const at::Tensor& x);

/// The processor, whose kernels take as many threads as LibTorch's own operators would; bits do not depend on it.
const tensor_device& processor();

} // namespace parcae

#pragma once

// The layers of a stage: what they compute, and what they compute it with.

#include "gpu/layers/model.hpp"
#include "gpu/training/stage_context.hpp"
#include "protocols/model/parameter_runs.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace parcae {

/// The parameters in the store as autograd and the optimizer see them. Training thread.
class stage_parameters {
public:
  explicit stage_parameters(const stage_context& c);

  /// All layers of the stage are in the store: from here on these are meant.
  void bind();

  /// What a layer of the stage makes of `input`, contiguous. `pass`: all but pixels and device, which are known here.
  at::Tensor forward(std::uint32_t layer, const at::Tensor& input, forward_pass pass) const;

  /// What autograd has left at a layer's parameters is taken from there: one tensor for each.
  std::vector<at::Tensor> take_gradients(std::uint32_t layer);

  /// A step's optimizer on a layer, from which no snapshot is copied any more. `steps` is the version before.
  void apply(std::uint32_t layer, const at::Tensor& gradient, std::uint64_t steps, const commit_result& result);

  /// The first of the layers whose parameters or running statistics are not all finite. Waits for the device.
  std::optional<std::uint32_t> layer_not_finite() const;

private:
  struct bound_layer {
    std::vector<parameter_run> runs; ///< how the optimizer treats its parameters
    std::vector<at::Tensor> leaves;  ///< they share the store's memory,
    at::Tensor copy;                 ///< or, matrices in bfloat16, that of this: rounded parameters; else undefined
  };

  void bind(std::uint32_t number);
  bound_layer& bound(std::uint32_t layer) { return bound_[layer - c_.first_layer()]; }

  const stage_context& c_;
  const std::vector<std::unique_ptr<layer>> layers_; ///< of the whole model; stateless
  const pixel_scale pixels_;
  std::vector<bound_layer> bound_; ///< of the stage
};

} // namespace parcae

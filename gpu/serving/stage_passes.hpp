#pragma once

// A stage of a served model: rows go through its layers.

#include "gpu/serving/row_proof.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace parcae {

/// The layers of a stage, with what they compute with.
struct stage_layers {
  std::vector<std::unique_ptr<layer>> all; ///< of the whole model
  std::uint32_t first = 0, last = 0;       ///< [first, last) are the stage's
  /// By layer of the stage: views of the flat parameters, and the flat buffers.
  std::vector<std::vector<at::Tensor>> parameters;
  std::vector<at::Tensor> buffers;

  bool begins() const { return first == 0; }
  bool ends() const { return last == all.size(); }
};

/// The thread that computes.
class stage_passes {
public:
  /// All outlive this object. The store computes the stage's layers.
  stage_passes(const stage_layers& layers, const row_proof& proof, cache_store& caches, const tensor_device& on);

  /// One pass. First, in each layer, the keys and values of all rows are kept; then each attends to what its request
  /// has up to it. Rows are padded to `size`, one of the proof's; `input`: of a stage that does not begin, what the one
  /// before returned. Returns [size, …], of a stage that ends the logits of the rows in `wanted` [wanted, vocabulary].
  /// Throws std::invalid_argument, by which nothing has changed, and what layers throw.
  at::Tensor run(std::span<const request_row> rows, std::size_t size, at::Tensor input,
                 std::span<const std::uint32_t> wanted);

private:
  at::Tensor tokens_of(std::span<const request_row> rows, std::size_t size) const;
  at::Tensor forward(std::uint32_t layer, const at::Tensor& input, const row_context& rows) const;
  at::Tensor logits(at::Tensor x, row_context rows, std::span<const std::uint32_t> wanted) const;

  const stage_layers& layers_;
  const row_proof& proof_;
  cache_store& caches_;
  const tensor_device on_;
};

} // namespace parcae

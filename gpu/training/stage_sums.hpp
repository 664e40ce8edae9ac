#pragma once

// What the micro-batches of a step come to, for the layers of a stage.

#include "gpu/dataplane/reduction.hpp"
#include "gpu/training/batch_statistics.hpp"
#include "gpu/training/gradient_sums.hpp"
#include "gpu/training/stage_context.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace parcae {

/// Gradients, summed over micro-batches, over the replicas of the stage, and over both uses of a tied tensor; and what
/// goes into running statistics. Training thread. After an exception the communicator must be aborted before this is
/// destroyed.
class stage_sums {
public:
  /// `complete`: called by begin_reduction() with a layer whose gradient is what it will be after finish().
  stage_sums(const stage_context& c, std::function<void(std::uint32_t layer)> complete);

  /// The sums of step `step` begin.
  void begin(std::uint64_t step);
  /// There are none.
  void clear();

  /// Between steps: as those of gradient_sums.
  std::vector<at::Tensor> take_buffers() { return gradients_.take_buffers(); }
  void use(std::vector<at::Tensor> buffers) { gradients_.use(std::move(buffers)); }

  /// A layer's gradient of the micro-batch at `position`, as autograd left it; positions come in order.
  void add(std::uint32_t layer, std::uint32_t position, std::vector<at::Tensor> pieces);
  /// All of the layer's were added: they are on their way to the other replicas while layers before it are computed.
  /// Waits for nothing.
  void begin_reduction(std::uint32_t layer);

  /// To be filled by a layer's forward pass of a micro-batch of the job; undefined if it has no running statistics.
  at::Tensor statistics_row(std::uint32_t layer, std::uint32_t micro_batch) {
    return statistics_.row(layer, micro_batch);
  }

  /// All of all layers were added: waits for what the other ranks have. Throws communication_error, generation_aborted.
  void finish(std::uint64_t step);

  /// After finish().
  const at::Tensor& gradient(std::uint32_t layer) const { return gradients_.gradient(layer); }
  /// What of it counts in the norm: a tied tensor counts with its first use.
  std::vector<at::Tensor> counted_once(std::uint32_t layer) const;
  void add_statistics(at::Tensor& buffers, std::uint32_t layer) const { statistics_.add_to(buffers, layer); }

private:
  bool is_complete(std::uint32_t layer) const;
  void add_tied(std::uint64_t step);
  void gather_statistics(std::uint64_t step);

  const stage_context& c_;
  const std::function<void(std::uint32_t)> complete_;
  const sum_type type_;
  const std::uint32_t per_sum_;         ///< micro-batches that autograd sums: a virtual replica's
  std::vector<std::uint32_t> replicas_; ///< ranks of this stage, by pipeline
  gradient_sums gradients_;
  batch_statistics statistics_;
  std::optional<tree_all_reduce> reduction_; ///< of the step in progress
  device_scratch scratch_;
  at::Tensor posted_tied_;
};

} // namespace parcae

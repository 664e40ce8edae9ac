#pragma once

// A step's micro-batches on their way through a stage.

#include "gpu/training/sample_reader.hpp"
#include "gpu/training/stage_clock.hpp"
#include "gpu/training/stage_parameters.hpp"
#include "gpu/training/stage_sums.hpp"
#include "protocols/schedule/pipeline_schedule.hpp"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace parcae {

/// Runs them forward and backward by 1F1B, between the stages before and behind. Training thread. After an exception
/// the communicator must be aborted before this is destroyed: transmissions under way use its buffers.
class micro_batches {
public:
  /// All but `c` are used by run(). They outlive this object.
  micro_batches(const stage_context& c, stage_parameters& parameters, stage_sums& sums, stage_clock& clock,
                device_lead& lead);

  /// Samples are read from here on. Once, before the first step.
  void start(std::uint64_t step);

  /// All of a step, up to its gradients in the sums, which were begun. Throws communication_error, generation_aborted,
  /// data_error, or what LibTorch throws.
  void run(std::uint64_t step);

  /// Of the step that was run: one scalar for each on the device, in the last stage; else empty.
  const std::vector<at::Tensor>& losses() const { return losses_; }

  /// Time spent waiting for samples since the last call.
  sample_reader::waits take_waits() { return reader_ ? reader_->take_waits() : sample_reader::waits{}; }

private:
  struct layer_activation {
    at::Tensor input;
    at::Tensor output; ///< with its graph, or, if activations are recomputed, without
  };

  struct micro_batch_state {
    std::vector<layer_activation> layers;
    at::Tensor loss;
    at::Tensor targets;             ///< if the last layer returns the loss
    std::vector<at::Tensor> extras; ///< if a layer of the stage reads them
    ticket sent_output;
    at::Tensor sent_tensor;
  };

  /// What comes from a neighbour.
  struct posted {
    at::Tensor to;
    ticket arrived;
  };

  /// Gives what goes to and comes from the stages beside this one between two operations.
  void meet(const pipeline_operation* made, const pipeline_operation* needs);
  void forward(std::uint32_t position);
  void backward(std::uint32_t position);
  at::Tensor gradient_of_loss(micro_batch_state& state);
  void post_input(std::uint32_t position);
  void post_gradient(std::uint32_t position);
  at::Tensor arrived(posted& x, std::uint32_t position);
  void end_sending(const ticket& x);
  sample_tensors load(std::uint32_t micro_batch);
  void record_load(const sample_tensors& loaded, std::uint32_t micro_batch) const;
  at::Tensor run_layer(std::uint32_t layer, const at::Tensor& input, std::uint32_t position,
                       const at::Tensor& statistics) const;
  step_ledger::stay in(step_part part, std::uint32_t position) { return clock_.parts().in(part, id(position)); }
  std::uint32_t id(std::uint32_t position) const { return owned_.first + position; }

  const stage_context& c_;
  stage_parameters& parameters_;
  stage_sums& sums_;
  stage_clock& clock_;
  device_lead& lead_;
  const replica_range owned_; ///< ids of this pipeline's
  const std::uint32_t count_; ///< of them
  const std::vector<pipeline_operation> schedule_;
  const bool reads_extras_;             ///< a layer of the stage does
  std::optional<sample_reader> reader_; ///< if it reads samples

  std::uint64_t step_ = 0;
  std::vector<micro_batch_state> in_flight_; ///< by position
  std::vector<at::Tensor> losses_;           ///< by position
  posted input_, gradient_;
  std::vector<std::pair<ticket, at::Tensor>> sent_gradients_;
};

} // namespace parcae

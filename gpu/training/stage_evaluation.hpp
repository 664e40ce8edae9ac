#pragma once

// The validation loss of a version, and what follows from it for the job.

#include "gpu/data/samples.hpp"
#include "gpu/training/stage_parameters.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace parcae {

/// One stage's part of evaluations. Leaves no trace in anything that training uses. Training thread. After an exception
/// the communicator must be aborted before this is destroyed.
class stage_evaluation {
public:
  /// Both are used with the parameters that are bound, and outlive this object.
  stage_evaluation(const stage_context& c, const stage_parameters& parameters, device_lead& lead);

  /// Sums of losses over the validation samples of some virtual replicas.
  struct sums_of_losses {
    std::uint32_t first_replica = 0;
    std::vector<double> sums; ///< one for each of this pipeline's replicas; empty but in the last stage
    double mean = 0;          ///< over all validation samples; in every stage
  };

  /// Losses at that version, which is the present one. Micro-batch j of the validation samples belongs to virtual
  /// replica j mod V, so that the sums do not depend on (D, P). All ranks call it between the same two steps. Throws
  /// communication_error, generation_aborted, data_error, or what LibTorch throws.
  sums_of_losses evaluate(std::uint64_t steps);

  /// The one at this version, once done, said that validation does not get better: no step follows.
  bool ends_at(std::uint64_t steps) const { return ends_at_ == steps; }

  /// The course of validation with the evaluation since the last call, for the next version's state; none: nothing new.
  std::optional<validation_course> take_course() { return std::exchange(course_, std::nullopt); }

  /// Passes on zeros of all sizes that there will be: libraries choose kernels by them, and load what they choose.
  void rehearse() const;

private:
  struct micro_batch {
    std::uint32_t number;  ///< of the validation samples
    std::uint32_t replica; ///< among this pipeline's
    std::uint64_t first_sample;
    std::int64_t samples;
  };

  std::vector<micro_batch> own_micro_batches() const;
  /// `loss`: where its mean goes, in the last stage.
  void evaluate_one(const micro_batch& x, std::uint64_t steps, const at::Tensor& loss);
  sample_tensors load(const micro_batch& x) const;
  /// What the stage makes of a micro-batch, the last one its loss. `input` is the stage's, if that is not the first.
  at::Tensor run(const sample_tensors& samples, at::Tensor input) const;
  at::Tensor room_for_losses(std::size_t count) const;
  double conclude(const std::vector<double>& sums, std::uint64_t steps);

  const stage_context& c_;
  const stage_parameters& parameters_;
  device_lead& lead_;
  const sample_source samples_;
  at::Tensor posted_input_;
  std::deque<std::pair<ticket, at::Tensor>> sent_; ///< outputs under way
  std::vector<std::vector<double>> said_;          ///< by rank of the last stage
  std::optional<validation_course> course_;        ///< with the newest evaluation
  std::optional<std::uint64_t> ends_at_;
};

} // namespace parcae

#pragma once

// What a job's samples are: which of the data's, in what order, and what is hidden in them. Torch-free.

#include "gpu/model/dataset.hpp"

#include <memory>
#include <span>

namespace parcae {

/// Stands for a place where nothing is to be predicted.
inline constexpr std::int64_t no_target = -100;

/// BERT's masks (Devlin et al., appendix A.1; as there a fixed number, 15 % of the places, at least one): the places to
/// predict keep their token in `target`, all others have no_target; in `input` 80 % of them become the mask token, 10 %
/// any token, the rest stays. A pure function of the seed.
void mask_tokens(const model_specification& model, std::uint64_t seed, std::span<std::int64_t> input,
                 std::span<std::int64_t> target);

/// The samples of one job. Number n of the job is a pure function of (seed, n), masks included. Not thread-safe.
class sample_source {
public:
  sample_source(const job_specification& job, std::shared_ptr<const dataset> data);

  /// Sample number n of the job, for training.
  void training(std::uint64_t number, std::span<std::int64_t> input, std::span<std::int64_t> target);

  /// One of the job's data.validation samples. Its masks are always the same.
  void validation(std::uint64_t index, std::span<std::int64_t> input, std::span<std::int64_t> target) const;

private:
  model_specification model_;
  std::uint64_t seed_;
  std::shared_ptr<const dataset> data_;
  std::uint64_t training_samples_; ///< an epoch; those after it are for validation
  sample_order order_;
};

} // namespace parcae

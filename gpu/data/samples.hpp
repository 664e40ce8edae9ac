#pragma once

// What a job's samples are: which of the data's, in what order, and what is hidden in them. Torch-free.

#include "gpu/data/dataset.hpp"
#include "protocols/model/model_description.hpp"

#include <memory>
#include <span>
#include <vector>

namespace parcae {

/// BERT's masks (Devlin et al., appendix A.1; as there a fixed number, 15 % of the places, at least one): the places to
/// predict keep their token in `target`, all others have no_target; in `input` 80 % of them become the mask token, 10 %
/// any token, the rest stays. A pure function of the seed.
void mask_tokens(const model_specification& model, std::uint64_t seed, std::span<std::int64_t> input,
                 std::span<std::int64_t> target);

/// The samples of one job. Number n of the job is a pure function of (seed, n), masks included. Not thread-safe.
class sample_source {
public:
  sample_source(const job_specification& job, std::shared_ptr<const dataset> data);

  /// Sample number n of the job, for training. `input` may be empty: it is not wanted, unless the targets follow from
  /// it (targets_need_input).
  void training(std::uint64_t number, std::span<std::int64_t> input, std::span<std::int64_t> target);

  /// The place in the data of sample number n.
  std::uint64_t place_of(std::uint64_t number);

  bool targets_need_input() const { return masks_; }

  /// One of the job's data.validation_samples(), those of the first source first. Its masks are always the same.
  void validation(std::uint64_t index, std::span<std::int64_t> input, std::span<std::int64_t> target) const;

private:
  model_specification model_;
  std::uint64_t seed_;
  std::shared_ptr<const dataset> data_;
  bool masks_;                       ///< BERT's, drawn here
  std::uint64_t validation_;         ///< samples of each source, its last ones
  std::vector<std::uint64_t> first_; ///< sample of each source, and the end
  mixed_order order_;
};

} // namespace parcae

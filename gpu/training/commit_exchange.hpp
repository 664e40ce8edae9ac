#pragma once

// The end of a step: what a rank says to all others, and what all conclude from it (HOW_IT_WORKS.md, "A step, and when
// it counts").

#include "gpu/training/stage_clock.hpp"
#include "gpu/training/stage_parameters.hpp"
#include "gpu/training/stage_sums.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <vector>

namespace parcae {

/// The loss, the gradients or the parameters are not finite, and the job is not to go on with that; one line.
struct not_finite : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What is asked of the ranks between steps, and that all of them do the same about it. request_stop, request_snapshot,
/// want_snapshot: any thread; the rest: the training thread. After an exception the communicator must be aborted before
/// this is destroyed.
class commit_exchange {
public:
  explicit commit_exchange(const stage_context& c) : c_(c) {}

  /// `streaming` says whether an earlier snapshot is still on its way to the keepers, `resting` whether copying that
  /// has taken enough time for now; empty: never.
  void start(std::function<bool()> streaming, std::function<bool()> resting) {
    streaming_ = std::move(streaming);
    resting_ = std::move(resting);
  }

  /// What this rank has to say of a step whose sums are finished; `losses`: of its micro-batches, in the last stage.
  /// Waits for the device: when it returns, nothing of the step was cut off. Throws communication_error,
  /// generation_aborted, device_error.
  contribution contribution_of(const stage_sums& sums, std::span<const at::Tensor> losses, stage_clock& clock) const;

  /// Says it, and hears all others: the same result on all ranks. Throws communication_error, generation_aborted, and
  /// not_finite if there is no result that the job is to go on with.
  commit_result exchange(contribution mine, std::uint64_t step, const stage_parameters& parameters);

  void request_stop() { stop_ = true; }
  /// At the next commit, whatever is on its way to the keepers; nobody trains after it.
  void request_snapshot() { snapshot_ = true; }
  /// At the next commit at which no earlier one is on its way.
  void want_snapshot() { due_ = true; }
  /// One is due and was put off. A generation that follows has to be told.
  bool wants_snapshot() const { return due_; }

private:
  std::vector<contribution> hear_all(const contribution& mine, std::uint64_t step);
  void require_finite(const commit_result& result, const stage_parameters& parameters) const;

  const stage_context& c_;
  std::function<bool()> streaming_, resting_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> snapshot_ = false;
  std::atomic<bool> due_ = false;
  std::vector<ticket> sent_;
  std::vector<std::byte> said_;               ///< under way until sent_ is done
  std::vector<std::vector<std::byte>> heard_; ///< by rank
};

} // namespace parcae

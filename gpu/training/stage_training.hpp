#pragma once

// Training steps of one stage of one pipeline in one generation (HOW_IT_WORKS.md, "A step, and when it counts").

#include "gpu/executor/worker_machine.hpp"
#include "gpu/training/commit_exchange.hpp"
#include "gpu/training/micro_batches.hpp"
#include "gpu/training/stage_evaluation.hpp"
#include "gpu/training/state_feed.hpp"
#include "protocols/model/early_stop.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace parcae {

/// Bound to one rank. Single-threaded but for request_stop, request_snapshot, want_snapshot and the abort flag. After
/// an exception the communicator must be aborted before this is destroyed: transmissions under way use its buffers.
class stage_training {
public:
  explicit stage_training(stage_context c);

  /// All layers of the stage are there at `at`, but for moments; binds them. Call before the first step. `streaming`
  /// and `resting`: as commit_exchange's. `whole`: returns when moments are there as well, or throws what step() does;
  /// called in each step, before it contributes.
  void start(const version& at, std::function<bool()> streaming = {}, std::function<bool()> resting = {},
             std::function<void()> whole = {});

  /// From the next step on these are told of each, as long as they are there.
  void feed(std::weak_ptr<state_feeds> x) { feeds_ = std::move(x); }

  /// Computes the gradients of the next step, exchanges, applies, or skips it. Returns the result. Throws
  /// communication_error, generation_aborted, not_finite, or what LibTorch throws; afterwards version(),
  /// complete_step() and result() tell how far it got.
  const commit_result& step();

  /// Carries out a decision on the open step: with its result, gradients must be complete; else drops them.
  void apply(const commit_result& result);
  void drop_gradients();

  /// Instead of buffers for gradients that the first step would make. `take_buffers`: what another one can use, once
  /// nobody transmits from or to them; leaves no gradients.
  void use(std::vector<at::Tensor> buffers) { sums_.use(std::move(buffers)); }
  std::vector<at::Tensor> take_buffers();

  /// Of the present version. All ranks call it between the same two steps. A generation that begins there does it,
  /// whether or not another did. Throws as step() does.
  bool evaluation_is_due() const { return is_evaluated(at_.steps, c_.job()); }
  stage_evaluation::sums_of_losses evaluate() { return evaluation_.evaluate(at_.steps); }

  /// No step follows: it is the job's last, or the evaluation here, once done, says that validation does not get
  /// better.
  bool is_final() const { return at_.steps >= c_.job().steps || evaluation_.ends_at(at_.steps); }

  /// How far it is; what came before it began is left open.
  training_state state() const;
  version at() const { return at_; }
  std::uint64_t complete_step() const { return complete_; }
  const commit_result& result() const { return result_; }
  bool voided() const { return voided_; }            ///< an apply threw: the stage's shards are worth nothing
  std::uint64_t skipped() const { return skipped_; } ///< steps that changed nothing, as they were not finite
  /// Why what that step made is kept nowhere: parameters or running statistics of a layer are not finite, and the job
  /// does not say to go on. Empty: it may be. Waits for the device.
  std::string problem_before_snapshot(std::uint64_t step) const;
  std::uint32_t first_layer() const { return c_.first_layer(); }
  std::uint32_t last_layer() const { return c_.last_layer(); } ///< one past

  void request_stop() { exchange_.request_stop(); }
  void request_snapshot() { exchange_.request_snapshot(); }
  void want_snapshot() { exchange_.want_snapshot(); }
  bool wants_snapshot() const { return exchange_.wants_snapshot(); }

  /// Where the time of steps goes.
  step_ledger& parts() { return clock_.parts(); }
  stage_clock::times take_times() { return clock_.take(); }
  /// Time spent waiting for samples, per step, since the last call.
  sample_reader::waits take_waits();

private:
  void send_ahead(std::uint32_t layer);

  const stage_context c_; ///< the parts below refer to it, and to each other
  stage_clock clock_;
  device_lead lead_;
  stage_parameters parameters_;
  stage_sums sums_;
  micro_batches passes_;
  commit_exchange exchange_;
  stage_evaluation evaluation_;

  std::function<void()> whole_; ///< may be empty
  std::weak_ptr<state_feeds> feeds_;
  version at_;
  std::uint64_t complete_ = no_step;
  commit_result result_;
  bool voided_ = false;
  std::uint64_t skipped_ = 0;
  std::uint64_t waits_since_ = 0; ///< step
};

} // namespace parcae

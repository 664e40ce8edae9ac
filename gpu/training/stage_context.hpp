#pragma once

// What the parts of a stage's training share.

#include "gpu/dataplane/communicator.hpp"
#include "gpu/dataplane/contribution.hpp"
#include "gpu/executor/executor.hpp"
#include "gpu/training/host_results.hpp"
#include "gpu/training/layer_state.hpp"
#include "gpu/training/rank_transport.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>

namespace parcae {

class dataset;

/// Thrown between two layers when the generation is to end.
struct generation_aborted {};

// The conductor's watchdog ends a generation that makes no progress long before this; it only keeps waits for peers
// bounded if the manager is gone too.
inline constexpr std::chrono::hours peer_limit{1};

/// Which rank of which generation trains, and with what. Plain values: what they point to outlives all copies.
/// Used by the training thread.
struct stage_context {
  const prepare* what;
  std::uint32_t rank;
  const model_description* model;
  layer_store* store;
  layer_store* arriving; ///< layers of the stage whose moments may not be here: in the store once they are
  communicator* comm;
  rank_transport* transport; ///< what is behind `comm`
  std::shared_ptr<const dataset> data;
  tensor_device on;      ///< the slot's
  host_results* results; ///< of it
  const executor_options* options;
  const std::atomic<bool>* aborted; ///< the generation is to end

  const job_specification& job() const { return what->specification; }
  const placement& grid() const { return what->target; }
  exchange_shape shape() const { return {job(), grid()}; }
  std::uint32_t pipeline() const { return grid().pipeline_of(rank); }
  std::uint32_t stage() const { return grid().stage_of(rank); }
  bool is_first_stage() const { return stage() == 0; }
  bool is_last_stage() const { return stage() + 1 == grid().depth; }
  std::uint32_t first_layer() const { return grid().first_layer[stage()]; }
  std::uint32_t last_layer() const { return grid().first_layer[stage() + 1]; } ///< one past

  layer_state& layer(std::uint32_t number) const;
  /// A layer of the stage reads extra inputs.
  bool reads_extras() const;
  /// The stage reads samples, and inputs of them; else only targets.
  bool reads_samples() const { return reads_inputs() || is_last_stage(); }
  bool reads_inputs() const { return is_first_stage() || reads_extras(); }
  /// Room on the device for what a stage that is not the first is sent for `samples` samples.
  at::Tensor empty_input(std::int64_t samples) const;

  /// Throws generation_aborted if the generation is to end.
  void check_abort() const;
  /// The values of a tensor of the device, once that has computed them. Throws generation_aborted, device_error.
  at::Tensor on_host(const at::Tensor& x) const;
  /// The hook of `options`.
  void fault(const char* phase, std::uint64_t step, std::uint32_t index = 0) const;
};

/// Keeps the training thread two passes ahead of its device at most: an abort has to wait for what the device was given
/// (generation_state::end_work).
class device_lead {
public:
  explicit device_lead(const stage_context& c) : c_(c) {}

  /// A pass was given to the device. Waits for an earlier one, with an eye on the abort: throws generation_aborted.
  void limit();

private:
  const stage_context& c_;
  std::deque<std::shared_ptr<event>> passes_; ///< ends of those that the device may not have done
};

} // namespace parcae

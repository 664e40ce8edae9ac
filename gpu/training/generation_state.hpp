#pragma once

// One generation as one device sees it.

#include "gpu/dataplane/communicator.hpp"
#include "gpu/dataplane/data_port.hpp"
#include "gpu/executor/executor.hpp"
#include "gpu/training/host_results.hpp"
#include "gpu/training/layer_state.hpp"
#include "gpu/training/rank_transport.hpp"
#include "gpu/training/stage_training.hpp"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace parcae {

/// From PREPARE until it is replaced or aborted. Made with PREPARE; run_preparation() runs on the thread `preparation`;
/// the rest is the executor's main thread's once that thread was joined.
struct generation_state {
  /// `results` is used by the main thread, and outlives this object.
  generation_state(prepare x, const slot_id& self_slot, const tensor_device& on, host_results& results);
  /// Interrupts and joins the preparation.
  ~generation_state();

  /// Any thread. Interrupts whatever is under way.
  void end();
  /// After end(). Returns when the device has done what it was given. If that takes long, it returns when nothing but
  /// passes can be left: later work comes after these. Throws device_error.
  void end_work();

  /// Allocates buffers, from `room` where it has them, and connects. Returns why it could not. Once the generation was
  /// ended, what it returns means nothing. All but the training's binding to `store` is independent of it. Throws
  /// `killed` only.
  std::optional<failed> run_preparation(const executor_options& options, data_port& port, layer_store& store,
                                        layer_room& room);

  struct transfer_outcome {
    std::uint64_t bytes_received = 0;
    std::optional<failed> problem{}; ///< then no communication is left
  };

  /// Moves the shards of the transfer plan, all of version `at`, between the peers and `store`, and makes what of
  /// version (0, 0) is missing of a rank's stage. Throws `killed` only.
  transfer_outcome run_transfer(const executor_options& options, layer_store& store, const version& at);

  bool is_rank() const { return self < what.target.ranks(); }

  /// The hook of `options`, at the step this generation has reached.
  void fault(const executor_options& options, const char* phase, std::uint32_t index = 0) const;

  const prepare what;
  const tensor_device on;  ///< the slot's
  model_description model; ///< set by the preparation
  std::uint32_t self = 0;  ///< participant number
  std::atomic<bool> aborted = false;
  std::mutex comm_mutex; ///< guards the pointer, which the preparation thread sets
  std::unique_ptr<communicator> comm;
  std::optional<rank_transport> transport;       ///< set by the preparation
  std::map<std::uint32_t, layer_state> arriving; ///< buffers for shards to be received
  std::unique_ptr<stage_training> training;      ///< ranks only
  std::thread preparation;

private:
  struct arrival;

  /// All but what NCCL moves. Throws communication_error.
  std::unique_ptr<communicator> connect(const executor_options& options, data_port& port);
  /// Returns the bytes received. Throws communication_error, std::runtime_error if a shard to send is not held.
  std::uint64_t move_shards(const executor_options& options, layer_store& store, const version& at);
  std::vector<arrival> expect_shards(const version& at);
  /// What is on its way, with the memory that it is sent from.
  std::vector<std::pair<ticket, at::Tensor>> send_shards(const executor_options& options, layer_store& store,
                                                         const version& at);
  std::uint64_t take_shards(const executor_options& options, layer_store& store, const version& at,
                            std::vector<arrival>& arrivals);

  /// Throws std::runtime_error if something of a version other than (0, 0) is missing.
  void complete_stage(layer_store& store, const version& at) const;

  host_results& results_;
};

} // namespace parcae

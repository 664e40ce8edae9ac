#pragma once

// One generation as one device sees it.

#include "gpu/dataplane/communicator.hpp"
#include "gpu/dataplane/data_port.hpp"
#include "gpu/executor/executor.hpp"
#include "gpu/executor/worker_machine.hpp"
#include "gpu/serving/cache_exchange.hpp"
#include "gpu/serving/stage_service.hpp"
#include "gpu/training/host_results.hpp"
#include "gpu/training/layer_state.hpp"
#include "gpu/training/rank_transport.hpp"
#include "gpu/training/shard_mover.hpp"
#include "gpu/training/stage_training.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace parcae {

/// What came of a feed: all layers that come are followed, or one could not be sent, or followed.
struct feed_outcome {
  job_generation of;
  std::uint64_t bytes = 0; ///< received
  double ms = 0;           ///< what that took
  std::optional<failed> problem{};

  worker_machine::effects tell(worker_machine& m) const {
    return problem ? m.not_fed(of, problem->kind, problem->what) : m.warmed(of, bytes, ms);
  }
};

/// From PREPARE until it is replaced or aborted. Made with PREPARE; run_preparation() runs on the thread `preparation`;
/// the rest is the executor's main thread's once that thread was joined.
struct generation_state {
  /// `results` is used by the main thread, and outlives this object. `follows`: one has begun on this device already,
  /// which it will take over from.
  generation_state(prepare x, const slot_id& self_slot, const tensor_device& on, host_results& results, bool follows);
  /// Interrupts and joins the preparation.
  ~generation_state();

  /// Any thread. Interrupts whatever is under way.
  void end();
  /// After end(). Returns when the device has done what it was given. If that takes long, it returns when nothing but
  /// passes can be left: later work comes after these. Throws device_error.
  void end_work();

  /// Allocates buffers, from `room` where it has them, and connects. Returns why it could not. Once the generation was
  /// ended, what it returns means nothing. All but the training's binding to `store` is independent of it. Throws
  /// `killed` only. `killed_here`: a fault hook threw that on a thread of its own.
  std::optional<failed> run_preparation(const executor_options& options, data_port& port, layer_store& store,
                                        layer_room& room, std::function<void()> killed_here);

  /// Joins the preparation: layers that come are followed from now on, of which `tells`, called on a thread, hears.
  /// Returns what is to be told of each step of which layers leave; else expired.
  std::weak_ptr<state_feeds> warm(const std::function<void(feed_outcome)>& tells);

  /// After end(), if it never began: what is followed is in the store, at its version.
  void keep_followed(layer_store& store);

  struct transfer_outcome {
    shard_mover::arrived early{};
    std::optional<failed> problem{}; ///< then no communication is left

    worker_machine::effects tell(worker_machine& m, const job_generation& of, inventory held) const {
      return problem ? m.not_moved(of, problem->kind, problem->what, std::move(held)) : m.moved(of, std::move(held));
    }
  };

  /// Begins to move the shards of the transfer plan, all of version `at`, makes what of version (0, 0) is missing of a
  /// rank's stage, and returns when that can compute; for another participant, when all was sent. Then caches are
  /// there, or were sent, as far as they could be. Throws `killed` only.
  transfer_outcome run_transfer(layer_store& store, const version& at);

  /// Of a rank, after run_transfer(): returns when all its layers are whole, which are in the store then. Throws
  /// communication_error, `killed`, or what a device failed by.
  void become_whole(layer_store& store);
  bool is_whole() const { return arriving.empty(); }

  /// Before it begins: the one before ends, null if there is none. What that summed gradients in this one goes on with.
  void take_over(std::shared_ptr<generation_state> before);

  /// After end(): what came whole is in the store, the rest is gone.
  void keep_whole(layer_store& store);

  // Of a rank, once it trains or serves. What only training has does nothing else.

  /// Any thread, while nobody sets `service`.
  void ask_to_stop(bool snapshot) const;
  void drop_gradients() const;
  void trace(std::uint32_t steps) const;
  /// What is served stays at version (0, 0).
  training_state state() const { return training ? training->state() : training_state(); }

  struct early_end {
    std::optional<failure> kind; ///< none: the generation is to end
    std::string why;
  };
  /// What a step, or a turn of a service, ended with. The gateway need not wait for ABORT. Throws
  /// `killed`, if that is why.
  early_end end_of(const std::exception_ptr& why);

  /// What a service asks while it waits, and how results come to the host. `options` outlive it.
  stage_service::hooks hooks_of_service(const executor_options& options);

  bool is_rank() const { return self < what.target.ranks(); }

  /// The hook of `options`, at the step this generation has reached.
  void fault(const executor_options& options, const char* phase, std::uint32_t index = 0) const;

  const prepare what;
  const tensor_device on;  ///< the slot's
  model_description model; ///< set by the preparation
  std::uint32_t self = 0;  ///< participant number
  std::atomic<bool> aborted = false;
  std::mutex comm_mutex;                    ///< guards the pointers, which the preparation thread sets
  std::unique_ptr<communicator> comm;       ///< ranks only
  std::optional<rank_transport> transport;  ///< set by the preparation
  std::unique_ptr<shard_mover> mover;       ///< set by the preparation, with the mutex held
  layer_store arriving;                     ///< what is not whole, and meant to be; before, the buffers for it
  std::unique_ptr<stage_training> training; ///< ranks only, unless the job serves
  std::unique_ptr<pass_gate> gate; ///< of ranks of a job that serves; set by the preparation, with the mutex held
  std::unique_ptr<cache_exchange> caches; ///< likewise, of all participants; until what it moves has been moved
  std::unique_ptr<stage_service> service; ///< of ranks of a job that serves; once it serves
  std::thread preparation;

private:
  /// All but what NCCL moves. Throws communication_error.
  std::unique_ptr<communicator> connect(purpose why, const executor_options& options, data_port& port);
  std::unique_ptr<cache_exchange> prepare_caches(const executor_options& options, data_port& port);
  /// Returns when caches have come and gone, as far as that is possible. By then their connections are closed.
  void finish_caches();
  /// Shards could not be moved.
  void break_off(const std::exception_ptr& why, const std::function<void()>& killed_here);
  bool trains() const { return is_rank() && !what.specification.serves(); }
  /// Throws std::runtime_error if something of a version other than (0, 0) is missing.
  void complete_stage(layer_store& store, const version& at) const;

  host_results& results_;
  const bool follows_;
};

} // namespace parcae

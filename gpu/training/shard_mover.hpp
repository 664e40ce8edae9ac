#pragma once

// The shards of one generation on their way: a device's own to others, and others' to it.

#include "gpu/dataplane/communicator.hpp"
#include "gpu/executor/executor.hpp"
#include "gpu/training/layer_state.hpp"
#include "gpu/training/shard_follower.hpp"
#include "gpu/training/state_feed.hpp"
#include "protocols/base/locks.hpp"

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

namespace parcae {

/// Of one ACTIVATE. What is sent is sent by a thread: of all moves the early parts, then, once late ones are allowed,
/// those. With WARM before it, layers go ahead while the generation before trains: who has all that was sent of one by
/// the end of that needs no more of it. Made by the preparation; warm(), begin() and what follows is the executor's
/// main thread's, abort() anybody's.
class shard_mover {
public:
  /// `over`: connections of state. `fails`: called on the thread when something could not be moved, or a fault hook
  /// threw; not after abort(). What is pointed to outlives this object.
  shard_mover(const prepare& what, std::uint32_t self, const tensor_device& on, std::unique_ptr<communicator> over,
              const executor_options& options, std::function<void(const std::exception_ptr&)> fails);
  /// Aborts, joins the thread.
  ~shard_mover();

  /// Layers are followed into `arriving` from now on; warm and fails of `tells` are called on a thread. Others are fed
  /// by who calls feeds(), of layers of which this one is the source; else expired.
  void warm(const model_description& model, const layer_store& arriving, shard_follower::callbacks tells);
  std::weak_ptr<state_feeds> feeds() const { return feeds_; }

  /// Receives into `arriving`, which has a buffer for each shard that comes; sends what is `held`. Throws
  /// std::runtime_error if that is not of version `at`, communication_error.
  void begin(const layer_store& held, const layer_store& arriving, const version& at);

  struct arrived {
    std::uint64_t bytes = 0;
    double ms = 0;
  };

  /// Returns when the early parts of all layers are here. Throws what failed.
  arrived wait_early();
  /// Late parts may take the links.
  void allow_late();
  /// Returns when all layers are whole. Throws what failed.
  void wait_late();
  /// After allow_late(): returns when all is with the network that is to be sent. Throws what failed.
  void wait_sent();
  /// After wait_late(), since allow_late().
  arrived late() const;
  /// After abort(): whether all parts of that layer are here.
  bool is_whole(std::uint32_t layer);
  /// After abort(), if begin() was not called: layers that are followed, with the version of each.
  std::map<std::uint32_t, version> end_following();

  /// Ends all waits; no buffer of the host is touched any more.
  void abort() noexcept;

private:
  struct departure {
    const shard_move* move;
    std::vector<at::Tensor> parts;
    bool copied; ///< from device to device
  };
  struct arrival {
    const shard_move* move;
    std::vector<ticket> early, late;
    std::uint64_t early_bytes = 0, late_bytes = 0;
  };

  bool is_copied(const shard_move& x) const;
  /// Of all moves the early parts, or the late ones.
  void expect(arrival& x, const layer_state& into, bool late);
  void post_arrivals(const layer_store& arriving);
  void run();
  void send(bool late);
  bool wait_for_permission();
  void note_sent();
  void note_late_arrival();
  bool fail(std::exception_ptr why); ///< false: it was aborted
  void throw_failure();
  bool came_ahead(std::uint32_t layer) const { return followed_.contains(layer); }
  void fault(const char* phase, std::uint32_t index) const;

  const prepare& what_;
  const std::uint32_t self_;
  const tensor_device on_;
  const std::unique_ptr<communicator> over_;
  const executor_options& options_;
  const std::function<void(const std::exception_ptr&)> fails_;

  version at_;
  std::chrono::steady_clock::time_point began_;
  std::vector<departure> departures_; ///< the thread's, once it runs
  std::vector<arrival> arrivals_;     ///< does not change once it runs, or feeds have ended
  bool posted_ = false;               ///< all receives are
  std::shared_ptr<state_feeds> feeds_;
  std::optional<shard_follower> follower_;
  std::set<std::uint32_t> followed_; ///< layers that need no receive, from posted_ on

  mutable mutex mutex_;
  std::condition_variable changed_;
  bool aborted_ GUARDED_BY(mutex_) = false;
  bool sent_ GUARDED_BY(mutex_) = true;
  std::exception_ptr failure_ GUARDED_BY(mutex_);
  std::optional<std::chrono::steady_clock::time_point> late_from_ GUARDED_BY(mutex_);  ///< allowed since
  std::optional<std::chrono::steady_clock::time_point> late_until_ GUARDED_BY(mutex_); ///< all were here
  std::thread thread_;                                                                 ///< last: uses all of the above
};

} // namespace parcae

#pragma once

// Layers of the generation that trains as a rank of the next one follows them (state_feed): their state at a version,
// then each step's gradients, applied by the kernels that train, so with the same bits.

#include "gpu/dataplane/feed_note.hpp"
#include "gpu/executor/executor.hpp"
#include "gpu/training/layer_state.hpp"
#include "gpu/training/tensor_account.hpp"
#include "protocols/base/locks.hpp"
#include "protocols/base/mailbox.hpp"
#include "protocols/model/parameter_runs.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace parcae {

/// Of one destination: a thread for each source reads, one for all applies. Of gradients that wait for their commit, or
/// to be applied, it holds one set at most.
class shard_follower {
public:
  struct callbacks {
    /// All layers are followed but for those that are cold, and none is behind; so many bytes came. Once, on a thread.
    std::function<void(std::uint64_t bytes, double ms)> warm;
    /// Something could not be read or applied, or a fault hook threw; on a thread, not after the end of the feed.
    std::function<void(const std::exception_ptr&)> fails;
  };

  /// Into `arriving`, which has a buffer for each of the layers that come, and does not change meanwhile. What is
  /// pointed to outlives this object.
  shard_follower(communicator& over, const prepare& what, std::uint32_t self, const model_description& model,
                 const tensor_device& on, const layer_store& arriving, const executor_options& options,
                 callbacks tells);
  /// After the communicator was aborted. Joins its threads.
  ~shard_follower();

  /// Any thread: ends its waits.
  void give_up();

  /// Returns when all sources have ended their feeds, with the layers that are followed: they are at `at`. Throws what
  /// failed, or communication_error.
  std::set<std::uint32_t> wait_end(const version& at);

  /// After the communicator was aborted, instead: ends its threads. Layers that are followed, with the version of each.
  std::map<std::uint32_t, version> break_off();

private:
  /// One who sends layers.
  struct source {
    std::uint32_t participant = 0;
    std::uint64_t set_bytes = 0;                  ///< of the gradients of a step
    std::map<std::uint64_t, feed_note> commits{}; ///< by the version that they lead to; the applying thread's
    std::uint64_t newest = 0;                     ///< of these versions; likewise
    std::thread reader{};
  };
  /// What came for a layer and cannot be done yet, in order.
  struct pending {
    feed_note note;
    at::Tensor payload;
  };
  enum class standing : std::uint8_t { awaited, followed, cold };
  struct followed_layer {
    std::size_t of = 0; ///< source
    layer_state into;   ///< shares the arriving one's tensors
    std::vector<parameter_run> runs{};
    standing now = standing::awaited;
    version buffers_at{}; ///< `into.at` is that of all else
    std::deque<pending> todo{};
  };
  struct event {
    std::size_t of;
    feed_note note;
    at::Tensor payload;
  };

  /// Of a layer's state, as far as it came.
  struct base {
    std::size_t parts = 0;
    version at{};
    bool is_there = false;
  };

  void join();
  void read(std::size_t of);
  at::Tensor read_payload(const source& from, const feed_note& note, base& based);
  void receive(const source& from, const feed_note& note, std::size_t part, const at::Tensor& into);
  void wait_for_room(const source& from, std::uint64_t bytes);
  void give_room(const followed_layer& x);
  void apply_all();
  void take(event x);
  void go_on(followed_layer& x, std::uint32_t layer);
  void apply(followed_layer& x, const feed_note& commit, const at::Tensor& gradient);
  /// All of it.
  static bool is_there(const followed_layer& x, const version& at);
  void look_whether_warm();
  void fail(std::exception_ptr why);

  communicator& over_;
  const prepare& what_;
  const model_description& model_;
  const tensor_device on_;
  const executor_options& options_;
  const callbacks tells_;
  const std::shared_ptr<tensor_account> account_;
  const std::chrono::steady_clock::time_point began_;

  std::vector<source> sources_;
  std::map<std::uint32_t, followed_layer> layers_; ///< the applying thread's; `into` and `of` do not change
  bool is_warm_ = false;                           ///< likewise: it was said
  mailbox<event> events_;

  mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint32_t, std::uint64_t> waiting_ GUARDED_BY(mutex_); ///< by source: bytes of gradients not applied
  std::uint64_t bytes_ GUARDED_BY(mutex_) = 0;                        ///< that came
  std::map<std::size_t, version> ends_ GUARDED_BY(mutex_);            ///< by source
  bool closed_ GUARDED_BY(mutex_) = false;
  std::exception_ptr failure_ GUARDED_BY(mutex_);
  std::thread applier_;
};

} // namespace parcae

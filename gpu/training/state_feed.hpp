#pragma once

// What ranks of the next generation follow while this one trains (shard_follower): layers of a source, and then each
// step's gradients, which make of a layer's version the next one by the same kernels.

#include "gpu/dataplane/feed_note.hpp"
#include "gpu/executor/executor.hpp"
#include "gpu/training/layer_state.hpp"
#include "protocols/base/locks.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

namespace parcae {

using gradient_of_layer = std::function<const at::Tensor&(std::uint32_t)>;

/// From a source to one destination. What it is given goes into a queue; a thread sends it. So nothing here waits for a
/// peer: of gradients no more than one set is unsent, else the layer with most of them goes cold, and is moved after
/// the stop. All but wait_sent() is the training thread's.
class state_feed {
public:
  /// `layers`: to this participant, in the order of the plan. `fails`: called on the thread when something could not be
  /// sent, or a fault hook threw. What is pointed to outlives this object.
  state_feed(communicator& over, const prepare& what, std::uint32_t to, std::vector<std::uint32_t> layers,
             const model_description& model, const tensor_device& on, const executor_options& options,
             std::function<void(const std::exception_ptr&)> fails);
  /// After the communicator was aborted. Joins the thread.
  ~state_feed();

  /// Gradients of the step at `at` are complete, and what goes into no norm is in them, too.
  void complete(const version& at, const gradient_of_layer& gradient);
  /// Before that, while layers before this one are computed: it changes no more.
  void complete(const version& at, std::uint32_t layer, const gradient_of_layer& gradient);
  /// The exchange of that step is over: `x` is its commit, and layers change from now on. What is not copied yet of one
  /// that began to be followed begins anew.
  void decided(const feed_note& x);
  /// All layers are at `at`; a step takes so long. Some that are not followed yet leave: as much as half a step brings
  /// over, and gradients of one, but a layer at least. Copies of them are made by a device behind what it was given;
  /// of a processor's by the feed's thread, until decided().
  void applied(const layer_store& held, const version& at, double step_ms);

  /// Nothing else is followed, and what is, is at `at`. Returns those layers.
  std::set<std::uint32_t> end(const version& at);
  /// After end(): returns when all has left. Throws what failed.
  void wait_sent();

private:
  struct message {
    feed_note note;
    std::vector<at::Tensor> payload;
    bool is_live = false; ///< the payload is what is trained: to be copied before it is sent
  };
  enum class standing : std::uint8_t { at_rest, followed, cold };

  bool is_followed(std::uint32_t layer) const NEEDS_LOCK(mutex_) { return layers_.at(layer) == standing::followed; }
  void put(message x) NEEDS_LOCK(mutex_);
  void put_gradient(const version& at, std::uint32_t layer, const gradient_of_layer& gradient) NEEDS_LOCK(mutex_);
  void keep_to_one_set() NEEDS_LOCK(mutex_);
  void drop(std::uint32_t layer, standing becomes) NEEDS_LOCK(mutex_);
  void grow_cold(std::uint32_t layer) NEEDS_LOCK(mutex_);
  void end_copying(standing becomes) NEEDS_LOCK(mutex_);
  void begin_layers(const layer_store& held, const version& at, double step_ms);
  at::Tensor copy_of(const at::Tensor& x);
  std::uint64_t gradient_bytes(std::uint32_t layer) const;
  void run();
  std::optional<message> take();
  bool copy_live(message& x);
  void send(const message& x);
  bool begin_part(const message& x, std::size_t part);
  void fail(const std::exception_ptr& why);
  void fault(const char* phase, const feed_note& of) const;

  communicator& over_;
  const prepare& what_;
  const std::uint32_t to_;
  const std::vector<std::uint32_t> order_;
  const model_description& model_;
  const tensor_device on_;
  const executor_options& options_;
  const std::function<void(const std::exception_ptr&)> fails_;

  std::uint64_t set_bytes_ = 0; ///< of the gradients of a step
  std::uint64_t notes_ = 0;     ///< sent; the thread's

  mutable mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint32_t, standing> layers_ GUARDED_BY(mutex_);
  std::deque<message> queue_ GUARDED_BY(mutex_);
  std::map<std::uint32_t, std::uint64_t> unsent_ GUARDED_BY(mutex_); ///< by layer: bytes of gradients
  std::size_t unsent_bases_ GUARDED_BY(mutex_) = 0;
  std::set<std::uint32_t> ahead_ GUARDED_BY(mutex_); ///< layers whose gradient of the step in progress is complete
  /// The thread has its base, and has not begun the last part.
  std::optional<std::uint32_t> begun_base_ GUARDED_BY(mutex_);
  std::optional<std::uint32_t> copying_ GUARDED_BY(mutex_); ///< by the thread, of this layer
  std::atomic<bool> changes_ = false; ///< layers do, or nothing else is followed: no more of them is copied
  std::uint64_t sent_bytes_ GUARDED_BY(mutex_) = 0;
  double sending_ms_ GUARDED_BY(mutex_) = 0;
  bool closed_ GUARDED_BY(mutex_) = false;
  bool ended_ GUARDED_BY(mutex_) = false; ///< all that there is was sent
  std::exception_ptr failure_ GUARDED_BY(mutex_);
  std::thread thread_; ///< last: uses all of the above
};

/// To all destinations of one source. Training thread.
class state_feeds {
public:
  /// As a state_feed's.
  state_feeds(communicator& over, const prepare& what, std::uint32_t self, const model_description& model,
              const tensor_device& on, const executor_options& options,
              const std::function<void(const std::exception_ptr&)>& fails);

  void complete(const version& at, const gradient_of_layer& gradient);
  void complete(const version& at, std::uint32_t layer, const gradient_of_layer& gradient);
  void decided(const version& at, const commit_result& result, bool skipped,
               const std::optional<validation_course>& course);
  void applied(const layer_store& held, const version& at);

  /// By destination: the layers that it follows to version `at`.
  std::map<std::uint32_t, std::set<std::uint32_t>> end(const version& at);
  void wait_sent(); ///< any thread

private:
  std::map<std::uint32_t, std::unique_ptr<state_feed>> feeds_; ///< by destination
  std::optional<std::chrono::steady_clock::time_point> applied_at_;
};

} // namespace parcae

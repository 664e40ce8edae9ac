#pragma once

// What a communicator over NCCL and its thread share. It outlives the communicator if NCCL's thread never comes back.

#include "gpu/dataplane/nccl_communicator.hpp"
#include "protocols/base/locks.hpp"

#include <condition_variable>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace parcae {

/// Messages that are given to NCCL together.
struct nccl_group {
  struct operation {
    std::uint32_t peer;
    bool sends;
    std::span<std::byte> bytes;
  };
  std::vector<operation> operations;
  std::shared_ptr<event> after; ///< what the compute stream was given before
  std::shared_ptr<event> moved; ///< null: NCCL was not yet given it. Guarded by the work's mutex
  bool awaited = false;         ///< the compute stream waits for it. Of the thread that waits
};

/// Any thread, but for run(), which is NCCL's thread's. No call of the device or of NCCL is made under the mutex, as
/// abort() needs it: any of them may not return while something is stuck there.
class nccl_work {
public:
  using clock = std::chrono::steady_clock;
  using phase = nccl_communicator::phase;

  nccl_work(std::uint32_t self, nccl_ranks ranks, std::shared_ptr<nccl_slot> slot);

  std::uint32_t size() const { return ranks_.count; }
  nccl_slot& slot() const { return *slot_; }

  /// Whether run() is to be called now: once.
  bool begin();
  /// All that NCCL's thread does: makes, gives groups, aborts.
  void run();
  /// Once participant 0 has made it, which the others are to be told; all zero if it has not by then, which is a
  /// failure.
  nccl_id wait_for_id(clock::time_point end);
  /// What participant 0 has said.
  void tell(const nccl_id& id);

  /// In this order. The last one is the next in the stream.
  void give(std::shared_ptr<nccl_group> x);
  /// Returns the event after which its bytes are moved. Throws communication_error.
  std::shared_ptr<event> wait_until_given(const nccl_group& x, clock::time_point end);
  bool stopped();

  nccl_communicator::report state();
  void take_over();
  bool in_use();
  void check(clock::time_point end);

  void abort();
  /// Waits until nothing of what was given is left; at most until `end`.
  void let_end(clock::time_point end);
  /// Waits for the end of run(). Empty: it has ended, or is lost and moves nothing; else what cannot be known.
  std::string end();
  bool ended();

private:
  // NCCL's thread.
  void enter();
  void make();
  nccl_id find_id(clock::time_point end);
  void warm(clock::time_point end);
  void serve();
  void issue(nccl_group& x);
  void put_in_stream(std::span<const nccl_group::operation> all, const char* what,
                     std::optional<clock::time_point> end);
  void require(nccl_result x, const char* what);
  void settle(const char* what, std::optional<clock::time_point> end);
  void pause();
  void leave();

  bool is_stopped() const NEEDS_LOCK(mutex_) { return state_.now == phase::failed; }
  void fail(const std::string& why, bool own) NEEDS_LOCK(mutex_);
  bool is_moving(clock::time_point end);

  const std::shared_ptr<nccl_slot> slot_;
  const nccl_ranks ranks_;
  const std::uint32_t self_;

  mutex mutex_;
  std::condition_variable changed_;
  nccl_communicator::report state_ GUARDED_BY(mutex_);
  clock::time_point begun_ GUARDED_BY(mutex_);
  bool taken_over_ GUARDED_BY(mutex_) = false;
  clock::time_point aborted_at_ GUARDED_BY(mutex_) = clock::time_point::max();
  bool ended_ GUARDED_BY(mutex_) = true; ///< run() is not under way
  std::optional<nccl_id> id_ GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<nccl_group>> given_ GUARDED_BY(mutex_); ///< not yet to NCCL
  bool issuing_ GUARDED_BY(mutex_) = false;                          ///< NCCL's thread is at one of them
  std::shared_ptr<event> last_ GUARDED_BY(mutex_);                   ///< after all that NCCL was given
  std::uint64_t checks_asked_ GUARDED_BY(mutex_) = 0;
  std::uint64_t checks_answered_ GUARDED_BY(mutex_) = 0;

  // NCCL's thread's.
  bool in_slot_ = false, in_group_ = false, made_ = false;
  nccl_handle* handle_ = nullptr;
  std::unique_ptr<stream> stream_;
  device_memory warmth_; ///< what goes to and fro once
};

} // namespace parcae

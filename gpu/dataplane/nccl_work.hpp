#pragma once

// What a communicator over NCCL, its thread and those that hear of peers share. It outlives the communicator if NCCL's
// thread never comes back.

#include "gpu/dataplane/message_order.hpp"
#include "gpu/dataplane/nccl_communicator.hpp"
#include "protocols/base/locks.hpp"

#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace parcae {

/// Fields below `after` are guarded by the work's mutex.
struct nccl_message : transmission {
  std::uint32_t peer = 0;
  bool sends = false;
  tag what{};
  std::span<std::byte> bytes;
  std::shared_ptr<event> after; ///< what the compute stream was given before

  std::shared_ptr<event> moved; ///< null: NCCL was not yet given it
  std::string error;            ///< empty: none
};
using nccl_message_ptr = std::shared_ptr<nccl_message>;

/// Any thread, but for run(), which is NCCL's thread's.
class nccl_work {
public:
  using clock = std::chrono::steady_clock;
  using phase = nccl_communicator::phase;

  nccl_work(std::unique_ptr<communicator> notes, std::vector<std::string> names, std::shared_ptr<nccl_slot> slot,
            std::shared_ptr<nccl_allowance> allowed);

  std::uint32_t self() const { return self_; }
  std::uint32_t size() const { return size_; }
  nccl_slot& slot() const { return *slot_; }

  /// Whether run() is to be called now: once, unless it has failed already.
  bool begin();
  /// All that NCCL's thread does: makes, gives groups, aborts.
  void run();
  /// Hears what a peer posts, until its connection ends.
  void listen(std::uint32_t peer);

  void post(const nccl_message_ptr& x);
  /// Returns the event after which its bytes are moved. Throws communication_error.
  std::shared_ptr<event> wait_until_given(const nccl_message& x, clock::time_point end);
  /// Throws communication_error if what came may be anything.
  void check_message(const nccl_message& x);
  bool settled(const nccl_message& x);

  nccl_communicator::report state();
  nccl_communicator::report wait_until_made();
  void take_over();
  void give_back();
  bool in_use();
  void check(clock::time_point end);

  void abort();
  /// Waits until nothing of what was given is left, here and at the peers that are there; at most until `end`.
  void let_end(clock::time_point end);
  /// Waits for the end of run(). Empty: it has ended, or is lost and moves nothing; else what cannot be known.
  std::string end();
  bool ended();
  /// Connections go; nobody listens any more.
  void drop_notes();

private:
  /// NCCL was given it.
  struct group {
    std::uint32_t peer = 0;
    std::vector<nccl_message_ptr> sends, receives;
    std::shared_ptr<event> moved;
  };
  struct letter {
    std::array<std::byte, order_note_size> bytes;
    ticket sent;
  };
  struct peer_state {
    std::string problem;        ///< empty: it is there
    std::uint64_t given = 0;    ///< groups with it
    std::uint64_t complete = 0; ///< of these, ended there
    std::deque<letter> letters; ///< to it, not yet sent
  };

  static constexpr tag note_tag{channel::order, 0, 0}, id_tag{channel::order, 0, 1};

  // NCCL's thread.
  void enter();
  void make();
  nccl_id find_id(clock::time_point end);
  void warm(clock::time_point end);
  void serve();
  void give(group x);
  void start_group(const char* what);
  void end_group(const char* what);
  void require(nccl_result x, const char* what);
  void settle(const char* what, std::optional<clock::time_point> end);
  void pause();
  void leave();

  bool stopped() const NEEDS_LOCK(mutex_) { return aborted_ || state_.now == phase::failed; }
  void fail(const std::string& why);
  void fail_all(const std::string& why, bool own) NEEDS_LOCK(mutex_);
  void lose(std::uint32_t peer, const std::string& why) NEEDS_LOCK(mutex_);
  void hear(std::uint32_t peer, const order_note& x);
  void send_letters() NEEDS_LOCK(mutex_);
  void send_note(std::uint32_t peer, const order_note& x) NEEDS_LOCK(mutex_);
  std::optional<group> next_group() NEEDS_LOCK(mutex_);
  std::vector<nccl_message_ptr> take_posted(const std::vector<std::uint64_t>& numbers) NEEDS_LOCK(mutex_);
  void watch_making() NEEDS_LOCK(mutex_);
  void retire() NEEDS_LOCK(mutex_);
  bool all_ended() const NEEDS_LOCK(mutex_);

  const std::shared_ptr<nccl_slot> slot_;
  const std::shared_ptr<nccl_allowance> allowed_;
  const std::vector<std::string> names_;
  const std::uint32_t self_, size_;

  mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<communicator> notes_; ///< may be used while nothing is stopped
  nccl_communicator::report state_ GUARDED_BY(mutex_);
  clock::time_point begun_ GUARDED_BY(mutex_);
  bool taken_over_ GUARDED_BY(mutex_) = false;
  bool aborted_ GUARDED_BY(mutex_) = false;
  clock::time_point aborted_at_ GUARDED_BY(mutex_);
  bool ended_ GUARDED_BY(mutex_) = true; ///< run() is not under way
  std::optional<nccl_id> id_ GUARDED_BY(mutex_);
  message_order order_ GUARDED_BY(mutex_);
  std::map<std::uint64_t, nccl_message_ptr> posted_ GUARDED_BY(mutex_); ///< NCCL was not yet given them
  std::optional<group> giving_ GUARDED_BY(mutex_);                      ///< NCCL's thread is at it
  std::deque<group> under_way_ GUARDED_BY(mutex_);
  std::vector<peer_state> peers_ GUARDED_BY(mutex_);
  std::uint64_t checks_asked_ GUARDED_BY(mutex_) = 0;
  std::uint64_t checks_answered_ GUARDED_BY(mutex_) = 0;

  // NCCL's thread's.
  nccl_id sent_id_{}; ///< participant 0: what goes to the others
  bool made_id_ = false, was_ready_ = false, in_slot_ = false, in_group_ = false;
  nccl_handle* handle_ = nullptr;
  std::unique_ptr<stream> stream_;
  device_memory warmth_; ///< what goes to and fro once
};

} // namespace parcae

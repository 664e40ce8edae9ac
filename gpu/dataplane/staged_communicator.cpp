#include "gpu/dataplane/staged_communicator.hpp"

#include "gpu/dataplane/tcp_communicator.hpp"
#include "gpu/device/pinned_ring.hpp"
#include "protocols/base/crash_stack.hpp"
#include "protocols/base/locks.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <thread>
#include <utility>

namespace parcae {

namespace {

using steady = std::chrono::steady_clock;

/// Of each lane: frames are copied while others are on their way.
constexpr std::size_t ring_bytes = 4 * max_frame_bytes;

/// Of the device's work, and of a peer. The wait for the whole message has limits of its own, and aborts.
constexpr std::chrono::hours longest_stage{1};

/// A message that a lane is given.
struct staged_message : transmission {
  staged_message(tag x, std::span<std::byte> y, device* z) : what(x), bytes(y), on(z) {
    if (on)
      after = on->compute().record();
  }

  const tag what;
  const std::span<std::byte> bytes;
  device* const on;             ///< null: the host
  std::shared_ptr<event> after; ///< what the device was given before

  // Of its lane, once it is settled.
  ticket last;                   ///< of what is sent: its last frame; of what is received on the host: all of it
  std::shared_ptr<event> copied; ///< of what is received on the device
  std::exception_ptr error;
};
using message_ptr = std::shared_ptr<staged_message>;

/// What goes to one participant, or comes from it, in order, moved by a thread of its own: so neither the computing
/// thread nor another participant waits for it.
class lane {
public:
  lane(communicator& below, std::uint32_t peer, device& on) :
      below_(below), peer_(peer), ring_(on, ring_bytes), stream_(on.make_stream()) {}
  virtual ~lane() = default; // the thread has ended, see end()
  lane(const lane&) = delete;

  void start() {
    thread_ = std::thread([this] {
      use_crash_stack();
      run();
    });
  }

  void give(message_ptr x) {
    const lock held(mutex_);
    if (broken_) {
      x->error = broken_;
      return;
    }
    open_.push_back(x);
    queue_.push_back(std::move(x));
    changed_.notify_all();
  }

  /// Whether all that was given is with the communicator below.
  bool idle() {
    const lock held(mutex_);
    return open_.empty();
  }

  bool settled(const message_ptr& x) {
    const lock held(mutex_);
    return is_settled(*x);
  }

  /// False: the limit is over. Throws what ended the lane.
  bool wait(const message_ptr& x, steady::time_point end) {
    lock held(mutex_);
    while (!is_settled(*x) && steady::now() < end)
      held.wait_until(changed_, end);
    if (x->error)
      std::rethrow_exception(x->error);
    return is_settled(*x);
  }

  /// All that is not settled fails, now and later.
  void break_off(std::exception_ptr why) {
    const lock held(mutex_);
    if (broken_)
      return;
    broken_ = std::move(why);
    for (const auto& x : std::exchange(open_, {}))
      x->error = broken_;
    queue_.clear();
    changed_.notify_all();
  }

  /// It was broken off, and so was the communicator below.
  void end() {
    if (thread_.joinable())
      thread_.join();
  }

protected:
  /// A part of a message on its way.
  struct frame {
    message_ptr of;
    std::span<std::byte> at; ///< in the device's memory, or the host's
    std::byte* pinned;       ///< null: it needs none
    bool last;
    ticket moved;                  ///< by the communicator below
    std::shared_ptr<event> copied; ///< by the device
  };

  /// The next frame of what was given; `ring` has room for it.
  virtual void begin(frame x) = 0;
  /// What is left to do for the oldest frame that was begun; false: there is none.
  virtual bool go_on() = 0;
  /// The oldest frame's part of the ring is free again.
  virtual void make_room() = 0;

  void settle(const message_ptr& x, ticket last, std::shared_ptr<event> copied) {
    const lock held(mutex_);
    if (broken_)
      return;
    x->last = std::move(last);
    x->copied = std::move(copied);
    open_.pop_front();
    changed_.notify_all();
  }

  communicator& below_;
  const std::uint32_t peer_;
  pinned_ring ring_; ///< the thread's, as the stream
  const std::unique_ptr<stream> stream_;

private:
  bool is_settled(const staged_message& x) const NEEDS_LOCK(mutex_) { return x.last || x.copied || x.error; }

  void run() {
    try {
      while (const auto x = next())
        cut(x);
    } catch (...) {
      break_off(std::current_exception());
    }
    try { // what the device still reads and writes is the ring's, and its messages'
      stream_->record()->wait(longest_stage);
    } catch (const device_error&) {
      return; // nothing is read or written any more
    }
  }

  /// Null: the lane was broken off.
  message_ptr next() {
    for (;;) {
      {
        const lock held(mutex_);
        if (broken_)
          return nullptr;
        if (!queue_.empty())
          return take_first();
      }
      if (go_on())
        continue;
      lock held(mutex_);
      while (queue_.empty() && !broken_)
        held.wait(changed_);
    }
  }

  message_ptr take_first() NEEDS_LOCK(mutex_) {
    auto x = std::move(queue_.front());
    queue_.pop_front();
    return x;
  }

  void cut(const message_ptr& x) {
    if (!x->on)
      return begin({x, x->bytes, nullptr, true, {}, {}});
    stream_->wait_for(*x->after);
    auto rest = x->bytes;
    do {
      const auto part = rest.first(std::min(rest.size(), max_frame_bytes));
      rest = rest.subspan(part.size());
      std::byte* pinned = nullptr;
      while (!(pinned = ring_.take(part.size())))
        make_room();
      begin({x, part, pinned, rest.empty(), {}, {}});
    } while (!rest.empty());
  }

  mutex mutex_;
  std::condition_variable changed_;
  std::deque<message_ptr> open_ GUARDED_BY(mutex_);  ///< not settled, oldest first
  std::deque<message_ptr> queue_ GUARDED_BY(mutex_); ///< of these, what the thread has not begun
  std::exception_ptr broken_ GUARDED_BY(mutex_);
  std::thread thread_;
};

void wait_for(const event& x) {
  if (!x.wait(longest_stage))
    throw device_error("a copy between device and host is stuck");
}

class outgoing_lane final : public lane {
public:
  using lane::lane;

private:
  void begin(frame x) override {
    if (!x.pinned) {
      while (go_on())
        continue;
      settle(x.of, below_.send(peer_, x.of->what, x.at), {});
      return;
    }
    stream_->copy(x.pinned, x.at.data(), x.at.size());
    x.copied = stream_->record();
    copying_.push_back(std::move(x));
    if (copying_.size() > 1)
      go_on();
  }

  bool go_on() override {
    if (copying_.empty())
      return false;
    auto x = std::move(copying_.front());
    copying_.pop_front();
    wait_for(*x.copied);
    sending_.push_back(below_.send(peer_, x.of->what, std::span(x.pinned, x.at.size())));
    if (x.last)
      settle(x.of, sending_.back(), {});
    return true;
  }

  void make_room() override {
    if (sending_.empty())
      go_on();
    below_.wait(sending_.front(), longest_stage);
    sending_.pop_front();
    ring_.give_back();
  }

  std::deque<frame> copying_;  ///< into the ring
  std::deque<ticket> sending_; ///< out of it
};

class incoming_lane final : public lane {
public:
  using lane::lane;

private:
  void begin(frame x) override {
    const auto to = x.pinned ? std::span(x.pinned, x.at.size()) : x.at;
    x.moved = below_.receive(peer_, x.of->what, to);
    if (x.pinned)
      arriving_.push_back(std::move(x));
    else // no later message is moved before it
      settle_received(x);
  }

  bool go_on() override {
    if (arriving_.empty())
      return false;
    auto x = std::move(arriving_.front());
    arriving_.pop_front();
    below_.wait(x.moved, longest_stage);
    stream_->copy(x.at.data(), x.pinned, x.at.size());
    copying_.push_back(stream_->record());
    if (x.last)
      settle(x.of, {}, copying_.back());
    return true;
  }

  void make_room() override {
    if (copying_.empty())
      go_on();
    wait_for(*copying_.front());
    copying_.pop_front();
    ring_.give_back();
  }

  void settle_received(const frame& x) {
    while (go_on())
      continue;
    settle(x.of, x.moved, {});
  }

  std::deque<frame> arriving_;                 ///< into the ring
  std::deque<std::shared_ptr<event>> copying_; ///< out of it
};

class staged_communicator final : public communicator {
public:
  staged_communicator(std::unique_ptr<communicator> below, device& on) : below_(std::move(below)), on_(on) {}

  ~staged_communicator() override {
    abort();
    for (const auto& [peer, x] : lanes_)
      x->end();
  }

  std::uint32_t self() const override { return below_->self(); }
  std::uint32_t size() const override { return below_->size(); }

  ticket send(std::uint32_t peer, tag what, const_memory_view x) override {
    auto* to = lane_of<outgoing_lane>(peer, false, x.on);
    if (!to)
      return below_->send(peer, what, x);
    return give(*to, what, {const_cast<std::byte*>(x.bytes.data()), x.bytes.size()}, x.on); // only read
  }

  ticket receive(std::uint32_t peer, tag what, memory_view x) override {
    auto* from = lane_of<incoming_lane>(peer, true, x.on);
    return from ? give(*from, what, x.bytes, x.on) : below_->receive(peer, what, x);
  }

  void wait(const ticket& t, std::chrono::milliseconds limit) override {
    const auto x = std::dynamic_pointer_cast<given_message>(t);
    if (!x)
      return below_->wait(t, limit);
    const auto end = steady::now() + limit;
    if (!x->to.wait(x->what, end))
      throw communication_error("no end of a message within " + text_of_duration(limit));
    if (x->what->last)
      below_->wait(x->what->last, std::chrono::ceil<std::chrono::milliseconds>(end - steady::now()));
    if (x->what->copied)
      on_.compute().wait_for(*x->what->copied);
  }

  bool done(const ticket& t) override {
    const auto x = std::dynamic_pointer_cast<given_message>(t);
    if (!x)
      return below_->done(t);
    return x->to.settled(x->what) && (!x->what->last || below_->done(x->what->last));
  }

  void abort() noexcept override {
    below_->abort();
    const auto why = std::make_exception_ptr(communication_error("aborted"));
    const lock held(mutex_);
    aborted_ = true;
    for (const auto& [peer, x] : lanes_)
      x->break_off(why);
  }

private:
  struct given_message : transmission {
    given_message(lane& x, message_ptr y) : to(x), what(std::move(y)) {}

    lane& to;
    const message_ptr what;
  };

  ticket give(lane& to, tag what, std::span<std::byte> bytes, device* on) {
    auto x = std::make_shared<staged_message>(what, bytes, on);
    to.give(x);
    return std::make_shared<given_message>(to, std::move(x));
  }

  /// Null: the communicator below may be given the message at once. A message of the host follows those of the device.
  template <class Lane>
  lane* lane_of(std::uint32_t peer, bool receives, const device* on) {
    {
      const lock held(mutex_);
      const auto found = lanes_.find({peer, receives});
      if (!on)
        return found != lanes_.end() && !found->second->idle() ? found->second.get() : nullptr;
      if (found != lanes_.end())
        return found->second.get();
      if (aborted_)
        throw communication_error("aborted");
    }
    auto made = std::make_unique<Lane>(*below_, peer, on_); // calls that may stand still: without abort()'s mutex
    const lock held(mutex_);
    if (aborted_)
      throw communication_error("aborted");
    auto& kept = lanes_[{peer, receives}];
    if (!kept) { // else another thread was first
      kept = std::move(made);
      kept->start();
    }
    return kept.get();
  }

  const std::unique_ptr<communicator> below_;
  device& on_;
  mutex mutex_;
  std::map<std::pair<std::uint32_t, bool>, std::unique_ptr<lane>> lanes_ GUARDED_BY(mutex_); ///< by peer; receives?
  bool aborted_ GUARDED_BY(mutex_) = false;
};

} // namespace

std::unique_ptr<communicator> make_staged_communicator(std::unique_ptr<communicator> below, device& on) {
  return std::make_unique<staged_communicator>(std::move(below), on);
}

} // namespace parcae

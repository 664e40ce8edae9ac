#include "gpu/dataplane/peer_communicator.hpp"

#include "gpu/dataplane/operation.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

namespace {

using steady = std::chrono::steady_clock;

/// Of what both devices were given before a copy, when a communicator goes.
constexpr std::chrono::hours longest_work{1};

constexpr std::size_t trial_bytes = 1 << 20;
constexpr std::chrono::seconds longest_trial{10};

std::exception_ptr problem(const std::string& what) {
  return std::make_exception_ptr(communication_error(what));
}

/// One end of a message.
struct peer_message : transmission {
  peer_message(tag x, std::span<std::byte> y, device& z) : what(x), bytes(y), on(z), after(z.compute().record()) {}

  const tag what;
  const std::span<std::byte> bytes;
  device& on;
  const std::shared_ptr<event> after; ///< what its device was given before

  // Guarded by the mutex of the receiver's end. One of both: it is settled.
  std::shared_ptr<event> copied;
  std::exception_ptr error;

  std::shared_ptr<peer_end> at; ///< the receiver's
};
using peer_message_ptr = std::shared_ptr<peer_message>;

/// Why no more is copied, as both ends hear it.
struct closed_lane {
  std::exception_ptr to_sender, to_receiver; ///< null: it is open
};

/// What comes from one participant.
struct peer_lane {
  // Guarded by the end's mutex.
  std::deque<peer_message_ptr> sent, expected; ///< without the other end; one of them is empty
  closed_lane closed;
  /// Copies that are being given: the sender's end, and the receiver's.
  std::vector<std::pair<peer_message_ptr, peer_message_ptr>> beginning;
  std::deque<std::shared_ptr<event>> under_way; ///< copies that were given

  mutex giving; ///< guards the stream; never held together with the end's
  std::unique_ptr<stream> by GUARDED_BY(giving);
};

} // namespace

/// Where a participant receives. Any thread. No call of a device is made under its mutex, which abort() needs, and no
/// two ends' are held together.
class peer_end : public std::enable_shared_from_this<peer_end> {
public:
  peer_end(peer_meeting& at, peer_meeting::place_key key, std::uint32_t self, std::vector<slot_id> participants,
           device& on) :
      on(on),
      at_(at), key_(std::move(key)), self_(self), participants_(std::move(participants)) {}

  device& on;

  std::string name_of(std::uint32_t participant) const {
    return "participant " + std::to_string(participant) + " (" + to_string(participants_.at(participant)) + ")";
  }

  /// Its slot has no communicator.
  void leave() {
    at_.leave(key_, *this);
    close_all();
  }

  std::shared_ptr<peer_end> find(std::uint32_t participant) const {
    if (participant == self_)
      return nullptr;
    auto key = key_;
    std::get<slot_id>(key) = participants_.at(participant);
    return at_.find(key);
  }

  void post(std::uint32_t sender, const peer_message_ptr& x, bool sends) {
    x->at = shared_from_this();
    peer_message_ptr other;
    auto* lane = match(sender, x, sends, other);
    if (other)
      copy(*lane, sends ? x : other, sends ? other : x);
  }

  bool settled(const peer_message& x) {
    const lock held(mutex_);
    return is_settled(x);
  }

  /// Null: the limit is over. Throws what ended it.
  std::shared_ptr<event> wait(const peer_message& x, steady::time_point end) {
    lock held(mutex_);
    while (!is_settled(x) && steady::now() < end)
      held.wait_until(changed_, end);
    if (x.error)
      std::rethrow_exception(x.error);
    return x.copied;
  }

  /// Its sender has aborted.
  void close(std::uint32_t sender) {
    messages ended; // after the lock, as they have events
    const lock held(mutex_);
    close(lanes_[sender], {problem("aborted"), problem(name_of(sender) + ": closed by the peer")}, ended);
  }
  /// Its receiver has aborted.
  void close_all() {
    messages ended;
    const lock held(mutex_);
    if (!closed_.to_sender)
      closed_ = {problem(name_of(self_) + ": closed by the peer"), problem("aborted")};
    for (auto& [sender, x] : lanes_)
      close(x, closed_, ended);
  }

  /// After close(). Returns when no copy from `sender` reads or writes any more; the thread has chosen `own` again.
  void let_end(std::uint32_t sender, device& own) noexcept {
    std::deque<std::shared_ptr<event>> copies;
    {
      lock held(mutex_);
      auto& lane = lanes_[sender];
      while (!lane.beginning.empty())
        held.wait(changed_);
      copies = lane.under_way; // the other end may wait for them, too
    }
    try {
      for (const auto& x : copies)
        x->wait(longest_work);
    } catch (const device_error&) { // nothing is copied any more
    }
    try {
      own.choose();
    } catch (const device_error&) { // whatever uses it next says so
    }
  }

private:
  using messages = std::vector<peer_message_ptr>;

  static bool is_settled(const peer_message& x) { return x.copied || x.error; }

  /// Null: it waits for its other end, or is settled.
  peer_lane* match(std::uint32_t sender, const peer_message_ptr& x, bool sends, peer_message_ptr& other) {
    messages ended;
    const lock held(mutex_);
    auto& lane = lanes_[sender];
    if (closed_.to_sender)
      close(lane, closed_, ended);
    if (lane.closed.to_sender) {
      x->error = sends ? lane.closed.to_sender : lane.closed.to_receiver;
      return nullptr;
    }
    auto& others = sends ? lane.expected : lane.sent;
    if (others.empty()) {
      (sends ? lane.sent : lane.expected).push_back(x);
      return nullptr;
    }
    other = std::move(others.front());
    others.pop_front();
    if (other->what != x->what || other->bytes.size() != x->bytes.size()) {
      const auto &from = sends ? *x : *other, &to = sends ? *other : *x;
      x->error = other->error = problem(name_of(sender) + ": expected " + describe(to.what, to.bytes.size()) +
                                        ", came " + describe(from.what, from.bytes.size()));
      ended.push_back(std::move(other));
      other = nullptr;
      close(lane, {x->error, x->error}, ended);
      return nullptr;
    }
    lane.beginning.emplace_back(sends ? x : other, sends ? other : x);
    return &lane;
  }

  void copy(peer_lane& lane, const peer_message_ptr& from, const peer_message_ptr& to) {
    std::shared_ptr<event> copied;
    std::exception_ptr error;
    try {
      const lock held(lane.giving);
      if (!lane.by)
        lane.by = on.make_stream();
      lane.by->wait_for(*from->after);
      lane.by->wait_for(*to->after);
      lane.by->copy_from(to->bytes.data(), from->on, from->bytes.data(), to->bytes.size());
      copied = lane.by->record();
    } catch (...) { // both ends hear of it
      error = std::current_exception();
    }
    drop_ended(lane);
    const lock held(mutex_);
    if (!from->error) { // else it was closed meanwhile
      from->copied = to->copied = copied;
      from->error = to->error = error;
    }
    if (copied)
      lane.under_way.push_back(copied);
    std::erase_if(lane.beginning, [&](const auto& x) { return x.first == from; });
    changed_.notify_all();
  }

  /// Of the copies that were given, those that are done.
  void drop_ended(peer_lane& lane) {
    for (;;) {
      std::shared_ptr<event> first;
      {
        const lock held(mutex_);
        if (lane.under_way.empty())
          return;
        first = lane.under_way.front();
      }
      try {
        if (!first->done())
          return;
      } catch (const device_error&) {
        return; // the next call says so
      }
      const lock held(mutex_);
      if (!lane.under_way.empty() && lane.under_way.front() == first)
        lane.under_way.pop_front();
    }
  }

  void close(peer_lane& x, const closed_lane& why, messages& ended) NEEDS_LOCK(mutex_) {
    if (!x.closed.to_sender)
      x.closed = why;
    const auto end = [&](std::deque<peer_message_ptr>& all, const std::exception_ptr& by) {
      for (auto& y : all) {
        y->error = by;
        ended.push_back(std::move(y));
      }
      all.clear();
    };
    end(x.sent, x.closed.to_sender);
    end(x.expected, x.closed.to_receiver);
    for (const auto& [from, to] : x.beginning) { // a call that gives it may not return
      from->error = x.closed.to_sender;
      to->error = x.closed.to_receiver;
    }
    changed_.notify_all();
  }

  peer_meeting& at_;
  const peer_meeting::place_key key_;
  const std::uint32_t self_;
  const std::vector<slot_id> participants_;
  mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint32_t, peer_lane> lanes_ GUARDED_BY(mutex_); ///< by sender; what is inside has a guard of its own
  closed_lane closed_ GUARDED_BY(mutex_);                       ///< all of them, those to come as well
};

namespace {

class copying_communicator final : public peer_communicator {
public:
  copying_communicator(std::unique_ptr<communicator> below, peer_place own, peer_meeting& at) :
      below_(std::move(below)), own_(std::move(own)), self_(below_->self()) {
    for (std::uint32_t i = 0; i < below_->size(); ++i) {
      others_.push_back(own_->find(i));
      if (others_.back() && !is_peer(i, at.problem_between(own_->on, others_.back()->on)))
        others_.back() = nullptr;
    }
  }

  ~copying_communicator() override {
    abort();
    for (std::uint32_t i = 0; i < others_.size(); ++i)
      if (others_[i]) {
        others_[i]->let_end(self_, own_->on);
        own_->let_end(i, own_->on);
      }
  }

  std::uint32_t self() const override { return self_; }
  std::uint32_t size() const override { return below_->size(); }

  ticket send(std::uint32_t peer, tag what, const_memory_view x) override {
    if (!x.on || !others_.at(peer))
      return below_->send(peer, what, x);
    const std::span<std::byte> bytes{const_cast<std::byte*>(x.bytes.data()), x.bytes.size()}; // only read
    return post(*others_[peer], self_, std::make_shared<peer_message>(what, bytes, *x.on), true);
  }

  ticket receive(std::uint32_t peer, tag what, memory_view x) override {
    if (!x.on || !others_.at(peer))
      return below_->receive(peer, what, x);
    return post(*own_, peer, std::make_shared<peer_message>(what, x.bytes, *x.on), false);
  }

  void give(std::span<const ticket> x) override { below_->give(x); }

  void wait(const ticket& t, std::chrono::milliseconds limit) override {
    const auto* x = dynamic_cast<const peer_message*>(t.get());
    if (!x)
      return below_->wait(t, limit);
    const auto copied = x->at->wait(*x, steady::now() + limit);
    if (!copied)
      throw communication_error("no end of " + describe(x->what, x->bytes.size()) + " within " +
                                text_of_duration(limit));
    x->on.compute().wait_for(*copied);
  }

  bool done(const ticket& t) override {
    const auto* x = dynamic_cast<const peer_message*>(t.get());
    return x ? x->at->settled(*x) : below_->done(t);
  }

  std::optional<std::chrono::steady_clock::time_point> began(const ticket& t) const override {
    return dynamic_cast<const peer_message*>(t.get()) ? std::nullopt : below_->began(t);
  }

  void check() override { below_->check(); }

  void abort() noexcept override {
    below_->abort();
    own_->close_all();
    for (const auto& x : others_)
      if (x)
        x->close(self_);
  }

  peer_copies copies() const override { return copies_; }

private:
  bool is_peer(std::uint32_t i, const std::string& problem) {
    const auto& other = others_[i]->on;
    if (problem.empty())
      copies_.used = true;
    if (copies_.reason.empty()) // of the first
      copies_.reason = !problem.empty()          ? problem
                       : own_->on.reaches(other) ? std::string()
                                                 : own_->on.facts().place + " and " + other.facts().place +
                                                       " do not reach each other's memory, so the driver copies "
                                                       "through the host's";
    return problem.empty();
  }

  /// The copy may have been given by this thread, to the other end's device.
  static ticket post(peer_end& at, std::uint32_t sender, const std::shared_ptr<peer_message>& x, bool sends) {
    at.post(sender, x, sends);
    x->on.choose();
    return x;
  }

  const std::unique_ptr<communicator> below_;
  const peer_place own_;
  const std::uint32_t self_;
  std::vector<std::shared_ptr<peer_end>> others_; ///< by participant; null: not of this process
  peer_copies copies_;
};

/// What `from` has comes to `to` as it was left. Throws device_error.
bool copies_well(device& to, device& from) {
  const auto left = from.allocate_pinned(trial_bytes), come = to.allocate_pinned(trial_bytes);
  for (std::size_t i = 0; i < trial_bytes; i += sizeof i) {
    const std::uint64_t word = (i + 1) * 0x9e37'79b9'7f4a'7c15;
    std::memcpy(left.get() + i, &word, sizeof word);
  }
  std::memset(come.get(), 0, trial_bytes);
  const auto there = from.allocate(trial_bytes), here = to.allocate(trial_bytes);
  const auto out = from.make_stream(), in = to.make_stream();
  out->copy(there.get(), left.get(), trial_bytes);
  in->wait_for(*out->record());
  in->copy_from(here.get(), from, there.get(), trial_bytes);
  in->copy(come.get(), here.get(), trial_bytes);
  if (!in->record()->wait(longest_trial))
    throw device_error("a copy does not end");
  return std::memcmp(left.get(), come.get(), trial_bytes) == 0;
}

std::string trial_between(device& one, device& other) {
  const auto names = one.facts().place + " and " + other.facts().place;
  try {
    return copies_well(one, other) && copies_well(other, one)
               ? std::string()
               : "what is copied between " + names + " comes with other bits";
  } catch (const device_error& e) {
    return "copying between " + names + " failed: " + e.what();
  }
}

} // namespace

peer_place peer_meeting::enter(purpose why, const prepare& what, const slot_id& self, device& on) {
  std::vector<slot_id> participants;
  for (const auto& x : what.target.participants)
    participants.push_back(x.slot);
  const auto number = static_cast<std::uint32_t>(std::ranges::find(participants, self) - participants.begin());
  if (number == participants.size())
    throw communication_error(to_string(self) + " is no participant of generation " + std::to_string(what.next.value));
  const place_key key{why, what.job, what.next, self, what.token.high, what.token.low};
  const auto end = std::make_shared<peer_end>(*this, key, number, std::move(participants), on);
  const lock held(mutex_);
  ends_[key] = end;
  return {end.get(), [end](peer_end* x) { x->leave(); }}; // others may have it for longer
}

std::string peer_meeting::problem_between(device& one, device& other) {
  if (&one == &other)
    return {};
  const bool ordered = std::less<device*>()(&one, &other);
  const auto both = std::pair(ordered ? &one : &other, ordered ? &other : &one);
  const lock held(trials_);
  if (const auto known = problems_.find(both); known != problems_.end())
    return known->second;
  return problems_[both] = trial_between(one, other);
}

std::shared_ptr<peer_end> peer_meeting::find(const place_key& x) const {
  const lock held(mutex_);
  const auto found = ends_.find(x);
  return found == ends_.end() ? nullptr : found->second.lock();
}

void peer_meeting::leave(const place_key& x, const peer_end& end) {
  const lock held(mutex_);
  if (const auto found = ends_.find(x); found != ends_.end() && found->second.lock().get() == &end)
    ends_.erase(found);
}

std::unique_ptr<peer_communicator> make_peer_communicator(std::unique_ptr<communicator> below, peer_place own,
                                                          peer_meeting& at) {
  return std::make_unique<copying_communicator>(std::move(below), std::move(own), at);
}

} // namespace parcae

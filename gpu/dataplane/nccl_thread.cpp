// What the one thread does that calls NCCL.

#include "gpu/dataplane/nccl_work.hpp"
#include "protocols/base/crash_stack.hpp"
#include "protocols/base/text.hpp"

#include <utility>

namespace parcae {

namespace {

/// Between two looks at what NCCL and the device do: nobody is told when they are done.
constexpr std::chrono::microseconds busy_look{100}, idle_look{20'000};

/// There is nothing more to do but to abort.
struct work_stopped {};

} // namespace

void nccl_work::run() {
  use_crash_stack();
  try {
    enter();
    make();
    serve();
  } catch (const work_stopped&) {
  } catch (const std::exception& e) {
    fail("NCCL: " + std::string(e.what()));
  }
  leave();
}

/// One communicator after the other.
void nccl_work::enter() {
  const auto end = clock::now() + slot_->limits.make;
  const auto heed_lost = [&] {
    if (slot_->lost)
      throw communication_error("a call of it has never returned in this process");
  };
  while (slot_->busy.exchange(true)) {
    heed_lost();
    if (clock::now() > end)
      throw communication_error("the communicator before is not ended");
    pause();
  }
  in_slot_ = true;
  heed_lost(); // a lost one may have come back late
}

void nccl_work::make() {
  const auto end = clock::now() + slot_->limits.make;
  stream_ = slot_->on.make_stream();
  const auto id = find_id(end);
  require(slot_->calls.begin(handle_, size_, id, self_), "making a communicator");
  settle("making a communicator", end);
  warm(end);
  const lock held(mutex_);
  if (stopped())
    throw work_stopped{};
  was_ready_ = true;
  state_.now = phase::ready;
  changed_.notify_all();
}

nccl_id nccl_work::find_id(clock::time_point end) {
  if (self_ == 0) {
    if (allowed_->spent())
      throw communication_error("no communicator could be made in this process " +
                                std::to_string(nccl_allowance::max_failed) + " times: it stays on TCP");
    require(slot_->calls.make_id(sent_id_), "making an id");
    made_id_ = true;
    const lock held(mutex_);
    if (stopped())
      throw work_stopped{};
    for (std::uint32_t peer = 1; peer < size_; ++peer)
      notes_->send(peer, id_tag, sent_id_);
    return sent_id_;
  }
  lock held(mutex_);
  while (!id_ && !stopped() && clock::now() < end)
    held.wait_until(changed_, end);
  if (stopped())
    throw work_stopped{};
  if (!id_)
    throw communication_error("no id came from " + names_[0] + " within " + text_of_duration(slot_->limits.make));
  return *id_;
}

/// NCCL connects two participants when they first have something for each other.
void nccl_work::warm(clock::time_point end) {
  if (size_ == 1)
    return;
  constexpr std::size_t part = 256;
  warmth_ = slot_->on.allocate(2 * part * size_);
  start_group("connecting");
  for (std::uint32_t peer = 0; peer < size_; ++peer) {
    if (peer == self_)
      continue;
    auto* at = warmth_.get() + 2 * part * peer;
    require(slot_->calls.send(handle_, peer, at, part, *stream_), "connecting");
    require(slot_->calls.receive(handle_, peer, at + part, part, *stream_), "connecting");
  }
  end_group("connecting");
  settle("connecting", end);
  const auto warm = stream_->record();
  while (!warm->done()) {
    if (clock::now() > end)
      throw communication_error("connecting took longer than " + text_of_duration(slot_->limits.make));
    settle("connecting", end);
    pause();
  }
}

void nccl_work::serve() {
  for (;;) {
    std::optional<group> next;
    std::uint64_t asked = 0;
    {
      lock held(mutex_);
      retire();
      if (stopped())
        throw work_stopped{};
      next = next_group();
      if (!next && checks_asked_ == checks_answered_)
        held.wait_until(changed_, clock::now() + (under_way_.empty() ? idle_look : busy_look));
      asked = checks_asked_;
    }
    if (next)
      give(std::move(*next));
    else
      require(slot_->calls.state(handle_), "its work");
    const lock held(mutex_);
    checks_answered_ = next ? checks_answered_ : asked;
    changed_.notify_all();
  }
}

/// In the order on which all agree.
std::optional<nccl_work::group> nccl_work::next_group() {
  const auto x = order_.next();
  if (!x)
    return std::nullopt;
  group result{.peer = x->peer, .sends = {}, .receives = {}, .moved = {}};
  result.sends = take_posted(x->sends);
  result.receives = take_posted(x->receives);
  giving_ = result;
  ++peers_[x->peer].given;
  return result;
}

std::vector<nccl_message_ptr> nccl_work::take_posted(const std::vector<std::uint64_t>& numbers) {
  std::vector<nccl_message_ptr> result;
  for (const auto number : numbers)
    result.push_back(posted_.extract(number).mapped());
  return result;
}

void nccl_work::give(group x) {
  for (const auto* messages : {&x.sends, &x.receives})
    for (const auto& m : *messages)
      stream_->wait_for(*m->after);
  bool empty = true; // of messages without bytes
  const auto start = [&] {
    if (std::exchange(empty, false))
      start_group("a group");
  };
  for (const auto& m : x.sends)
    if (!m->bytes.empty()) {
      start();
      require(slot_->calls.send(handle_, x.peer, m->bytes.data(), m->bytes.size(), *stream_), "sending");
    }
  for (const auto& m : x.receives)
    if (!m->bytes.empty()) {
      start();
      require(slot_->calls.receive(handle_, x.peer, m->bytes.data(), m->bytes.size(), *stream_), "receiving");
    }
  if (!empty) {
    end_group("a group");
    settle("a group", std::nullopt); // only now the stream has it
  }
  x.moved = stream_->record();
  const lock held(mutex_);
  if (stopped())
    throw work_stopped{}; // its messages are told already
  for (const auto* messages : {&x.sends, &x.receives})
    for (const auto& m : *messages)
      m->moved = x.moved;
  giving_.reset();
  under_way_.push_back(std::move(x));
  changed_.notify_all();
}

void nccl_work::start_group(const char* what) {
  require(slot_->calls.start_group(), what);
  in_group_ = true;
}

void nccl_work::end_group(const char* what) {
  in_group_ = false;
  require(slot_->calls.end_group(), what);
}

/// What a call says, or the communicator after it.
void nccl_work::require(nccl_result x, const char* what) {
  if (x == nccl_result::success || x == nccl_result::in_progress)
    return;
  const auto more = slot_->calls.last_error(handle_);
  throw communication_error(std::string(what) + ": " + render(x) + (more.empty() ? "" : " (" + more + ")"));
}

/// Until the communicator is not in progress.
void nccl_work::settle(const char* what, std::optional<clock::time_point> end) {
  for (;;) {
    const auto now = slot_->calls.state(handle_);
    require(now, what);
    if (now == nccl_result::success)
      return;
    if (end && clock::now() > *end)
      throw communication_error(std::string(what) + " took longer than " + text_of_duration(slot_->limits.make));
    pause();
  }
}

/// A moment, less if there is nothing more to do.
void nccl_work::pause() {
  lock held(mutex_);
  if (!stopped())
    held.wait_until(changed_, clock::now() + busy_look);
  if (stopped())
    throw work_stopped{};
}

/// What has ended.
void nccl_work::retire() {
  while (!stopped() && !under_way_.empty() && under_way_.front().moved->done()) {
    const auto peer = under_way_.front().peer;
    under_way_.pop_front();
    if (peers_[peer].problem.empty())
      send_note(peer, {.what = order_note::kind::complete});
    changed_.notify_all();
  }
}

/// Nothing of NCCL is under way, as this is its thread.
void nccl_work::leave() {
  if (made_id_ && !was_ready_)
    allowed_->note_failed();
  try {
    if (in_group_) // a call within it failed: it moves nothing, and abort would do nothing before its end
      slot_->calls.end_group();
    if (handle_)
      slot_->calls.abort(handle_);
    // Events of the device say when its work is over: what is cut off may still be at its last bytes.
    if (stream_)
      while (!stream_->record()->wait(std::chrono::seconds(1)))
        continue;
  } catch (const device_error&) {
    // nothing is read or written any more
  }
  warmth_.reset();
  {
    const lock held(mutex_);
    giving_.reset();
    under_way_.clear();
  }
  stream_.reset();
  const lock held(mutex_);
  ended_ = true; // before the next one may begin, which would not see that this one is declared lost
  if (in_slot_)
    slot_->busy = false;
  changed_.notify_all();
}

} // namespace parcae

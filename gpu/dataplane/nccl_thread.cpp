// What the one thread does that calls NCCL.

#include "gpu/dataplane/nccl_work.hpp"
#include "protocols/base/crash_stack.hpp"
#include "protocols/base/text.hpp"

#include <utility>

namespace parcae {

namespace {

/// Between two looks at a call under way, and at a communicator that may have gone wrong: nobody is told.
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
    const lock held(mutex_);
    fail("NCCL: " + std::string(e.what()), true);
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
  if (stopped())
    throw work_stopped{};
  slot_->on.give_back_kept(); // NCCL cannot have what LibTorch keeps for later
  require(slot_->calls.begin(handle_, ranks_.count, id, self_), "making a communicator");
  settle("making a communicator", end);
  warm(end);
  const lock held(mutex_);
  if (is_stopped())
    throw work_stopped{};
  state_.now = phase::ready;
  changed_.notify_all();
  made_ = true;
}

nccl_id nccl_work::find_id(clock::time_point end) {
  if (nccl_id made{}; self_ == 0) {
    require(slot_->calls.make_id(made), "making an id");
    tell(made);
  }
  if (const auto heard = wait_for_id(end); heard != nccl_id{})
    return heard;
  throw work_stopped{};
}

/// NCCL connects two participants when they first have something for each other, and takes memory for each pair.
void nccl_work::warm(clock::time_point end) {
  if (ranks_.peers.empty())
    return;
  constexpr std::size_t part = 256;
  warmth_ = slot_->on.allocate(2 * part * ranks_.peers.size());
  std::vector<nccl_group::operation> operations;
  for (const auto peer : ranks_.peers)
    for (const bool sends : {true, false})
      operations.push_back({peer, sends, {warmth_.get() + part * operations.size(), part}});
  put_in_stream(operations, "connecting", end);
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
    std::shared_ptr<nccl_group> next;
    std::uint64_t asked = 0;
    {
      lock held(mutex_);
      if (given_.empty() && checks_asked_ == checks_answered_ && !is_stopped())
        held.wait_until(changed_, clock::now() + idle_look);
      if (is_stopped())
        throw work_stopped{};
      if (!given_.empty()) {
        next = std::move(given_.front());
        given_.pop_front();
        issuing_ = true;
      }
      asked = checks_asked_;
    }
    if (next) {
      issue(*next);
      continue;
    }
    require(slot_->calls.state(handle_), "its work");
    const lock held(mutex_);
    checks_answered_ = asked;
    changed_.notify_all();
  }
}

void nccl_work::issue(nccl_group& x) {
  stream_->wait_for(*x.after);
  if (!x.operations.empty())
    put_in_stream(x.operations, "a group", std::nullopt);
  auto moved = stream_->record();
  const lock held(mutex_);
  x.moved = moved;
  last_.swap(moved);
  issuing_ = false;
  changed_.notify_all();
}

/// In one group.
void nccl_work::put_in_stream(std::span<const nccl_group::operation> all, const char* what,
                              std::optional<clock::time_point> end) {
  require(slot_->calls.start_group(), what);
  in_group_ = true;
  for (const auto& x : all)
    require(x.sends ? slot_->calls.send(handle_, x.peer, x.bytes.data(), x.bytes.size(), *stream_)
                    : slot_->calls.receive(handle_, x.peer, x.bytes.data(), x.bytes.size(), *stream_),
            what);
  in_group_ = false;
  require(slot_->calls.end_group(), what);
  settle(what, end); // only now the stream has it
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
  if (!is_stopped())
    held.wait_until(changed_, clock::now() + busy_look);
  if (is_stopped())
    throw work_stopped{};
}

/// Nothing of NCCL is under way, as this is its thread.
void nccl_work::leave() {
  try {
    if (in_group_) // a call within it failed: it moves nothing, and abort would do nothing before its end
      slot_->calls.end_group();
    if (handle_)
      slot_->calls.abort(handle_);
    // Events of the device say when its work is over: what is cut off may still be at its last bytes.
    if (stream_)
      while (!stream_->record()->wait(std::chrono::seconds(1)))
        continue;
    if (handle_ && !made_) // perhaps for want of room, which the next one may find
      slot_->on.give_back_kept();
  } catch (const device_error&) {
    // nothing is read or written any more
  }
  warmth_.reset();
  std::deque<std::shared_ptr<nccl_group>> left;
  std::shared_ptr<event> last;
  {
    const lock held(mutex_);
    issuing_ = false;
    last_.swap(last);
    given_.swap(left);
  }
  left.clear();
  last.reset();
  stream_.reset();
  const lock held(mutex_);
  ended_ = true; // before the next one may begin, which would not see that this one is declared lost
  if (in_slot_)
    slot_->busy = false;
  changed_.notify_all();
}

} // namespace parcae

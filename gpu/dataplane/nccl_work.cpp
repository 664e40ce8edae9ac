#include "gpu/dataplane/nccl_work.hpp"

#include "protocols/base/crash_stack.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>

namespace parcae {

namespace {

/// A live peer may compute for minutes, and say nothing for longer; the watch on progress aborts.
constexpr std::chrono::hours longest_silence{24 * 365};

bool is_done(const std::shared_ptr<event>& x) {
  try {
    return x && x->done();
  } catch (const device_error&) {
    return false; // nobody knows
  }
}

} // namespace

nccl_work::nccl_work(std::unique_ptr<communicator> notes, std::vector<std::string> names,
                     std::shared_ptr<nccl_slot> slot, std::shared_ptr<nccl_allowance> allowed) :
    slot_(std::move(slot)),
    allowed_(std::move(allowed)), names_(std::move(names)), self_(notes->self()), size_(notes->size()),
    notes_(std::move(notes)), order_(self_, size_), peers_(size_) {}

// --- messages

void nccl_work::post(const nccl_message_ptr& x) {
  const lock held(mutex_);
  if (stopped() || !peers_[x->peer].problem.empty()) {
    x->error = stopped() ? state_.problem : peers_[x->peer].problem;
    return;
  }
  const auto [number, problem] = order_.post(x->peer, x->sends, x->what, x->bytes.size());
  posted_[number] = x;
  send_letters();
  if (!problem.empty())
    lose(x->peer, "connection to " + names_[x->peer] + ": " + problem);
  changed_.notify_all();
}

std::shared_ptr<event> nccl_work::wait_until_given(const nccl_message& x, clock::time_point end) {
  lock held(mutex_);
  while (!x.moved && x.error.empty() && clock::now() < end)
    held.wait_until(changed_, end);
  if (!x.error.empty())
    throw communication_error(x.error);
  return x.moved;
}

void nccl_work::check_message(const nccl_message& x) {
  const lock held(mutex_);
  if (!x.error.empty())
    throw communication_error(x.error);
}

bool nccl_work::settled(const nccl_message& x) {
  const lock held(mutex_);
  return x.moved || !x.error.empty();
}

void nccl_work::send_letters() {
  for (const auto& x : order_.take_letters())
    send_note(x.to, x.what);
}

void nccl_work::send_note(std::uint32_t peer, const order_note& x) {
  auto& letters = peers_[peer].letters;
  while (!letters.empty() && notes_->done(letters.front().sent))
    letters.pop_front();
  letters.push_back({encode(x), {}});
  letters.back().sent = notes_->send(peer, note_tag, letters.back().bytes);
}

void nccl_work::listen(std::uint32_t peer) {
  use_crash_stack();
  try {
    if (peer == 0) {
      nccl_id id{};
      notes_->wait(notes_->receive(peer, id_tag, id), longest_silence);
      const lock held(mutex_);
      id_ = id;
      changed_.notify_all();
    }
    for (;;) {
      std::array<std::byte, order_note_size> bytes;
      notes_->wait(notes_->receive(peer, note_tag, bytes), longest_silence);
      const auto note = decode_order_note(bytes);
      if (!note)
        throw communication_error("connection to " + names_[peer] + ": a malformed note");
      hear(peer, *note);
    }
  } catch (const communication_error& e) {
    const lock held(mutex_);
    lose(peer, e.what());
  }
}

void nccl_work::hear(std::uint32_t peer, const order_note& x) {
  const lock held(mutex_);
  if (stopped())
    return;
  if (x.what == order_note::kind::complete)
    ++peers_[peer].complete;
  const auto problem = order_.hear(peer, x);
  send_letters();
  if (!problem.empty())
    lose(peer, "connection to " + names_[peer] + ": " + problem);
  changed_.notify_all();
}

/// What it has sent or will surely take is moved by groups that have ended, or else there is no knowing.
void nccl_work::lose(std::uint32_t peer, const std::string& why) {
  auto& state = peers_[peer];
  if (stopped() || !state.problem.empty())
    return;
  state.problem = why;
  order_.lose(peer);
  std::erase_if(posted_, [&](const auto& x) {
    if (x.second->peer == peer)
      x.second->error = why;
    return x.second->peer == peer;
  });
  const auto is_cut_off = [&](const group& x) { return x.peer == peer && !is_done(x.moved); };
  if (state_.now != phase::in_use || (giving_ && is_cut_off(*giving_)) || std::ranges::any_of(under_way_, is_cut_off))
    fail_all(why, false);
  changed_.notify_all();
}

void nccl_work::fail(const std::string& why) {
  const lock held(mutex_);
  fail_all(why, true);
}

void nccl_work::fail_all(const std::string& why, bool own) {
  if (stopped())
    return;
  state_ = {phase::failed, why, own};
  for (const auto& [number, x] : posted_)
    x->error = why;
  posted_.clear();
  std::erase_if(under_way_, [](const group& x) { return is_done(x.moved); });
  const auto end_messages = [&](const group& x) {
    for (const auto* messages : {&x.sends, &x.receives})
      for (const auto& m : *messages)
        m->error = why;
  };
  std::ranges::for_each(under_way_, end_messages);
  if (giving_)
    end_messages(*giving_);
  notes_->abort(); // so that the others hear of it
  changed_.notify_all();
}

// --- what others ask for

bool nccl_work::begin() {
  const lock held(mutex_);
  if (state_.now != phase::waiting)
    return false;
  state_.now = phase::making;
  begun_ = clock::now();
  ended_ = false;
  return true;
}

nccl_communicator::report nccl_work::state() {
  const lock held(mutex_);
  watch_making();
  return state_;
}

nccl_communicator::report nccl_work::wait_until_made() {
  lock held(mutex_);
  while (state_.now == phase::making) {
    held.wait_until(changed_, begun_ + 2 * slot_->limits.make);
    watch_making();
  }
  return state_;
}

/// NCCL's thread has limits, but one call may never return.
void nccl_work::watch_making() {
  if (state_.now == phase::making && clock::now() >= begun_ + 2 * slot_->limits.make)
    fail_all("NCCL: a call has not returned within " + text_of_duration(2 * slot_->limits.make), true);
}

void nccl_work::take_over() {
  const lock held(mutex_);
  if (state_.now != phase::ready)
    throw communication_error(state_.problem.empty() ? "NCCL is not ready" : state_.problem);
  state_.now = phase::in_use;
  taken_over_ = true;
}

void nccl_work::give_back() {
  const lock held(mutex_);
  if (state_.now == phase::in_use)
    state_.now = phase::ready;
  taken_over_ = false;
}

bool nccl_work::in_use() {
  const lock held(mutex_);
  return taken_over_;
}

void nccl_work::check(clock::time_point end) {
  lock held(mutex_);
  const auto number = ++checks_asked_;
  changed_.notify_all();
  while (checks_answered_ < number && !stopped() && clock::now() < end)
    held.wait_until(changed_, end);
  if (stopped())
    throw communication_error(state_.problem);
  if (checks_answered_ < number)
    throw communication_error("NCCL does not say how it is");
}

void nccl_work::abort() {
  const lock held(mutex_);
  fail_all("aborted", true);
  if (!aborted_)
    aborted_at_ = clock::now();
  aborted_ = true;
  changed_.notify_all();
}

bool nccl_work::all_ended() const {
  return !giving_ && under_way_.empty() &&
         std::ranges::all_of(peers_, [](const auto& x) { return !x.problem.empty() || x.complete >= x.given; });
}

void nccl_work::let_end(clock::time_point end) {
  lock held(mutex_);
  while (!stopped() && !all_ended() && clock::now() < end)
    held.wait_until(changed_, end);
}

std::string nccl_work::end() {
  lock held(mutex_);
  const auto limit = aborted_at_ + slot_->limits.end;
  while (!ended_ && clock::now() < limit)
    held.wait_until(changed_, limit);
  if (ended_)
    return {};
  slot_->lost = true;
  std::erase_if(under_way_, [](const group& x) { return is_done(x.moved); });
  if (!giving_ && under_way_.empty())
    return {};
  return "NCCL has not ended its work on " + slot_->on.facts().place + " within " + text_of_duration(slot_->limits.end);
}

bool nccl_work::ended() {
  const lock held(mutex_);
  return ended_;
}

void nccl_work::drop_notes() {
  const lock held(mutex_);
  for (auto& x : peers_)
    x.letters.clear();
  notes_.reset();
}

} // namespace parcae

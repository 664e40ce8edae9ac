#include "gpu/dataplane/nccl_work.hpp"

#include "protocols/base/text.hpp"

#include <algorithm>

namespace parcae {

nccl_work::nccl_work(std::uint32_t self, nccl_ranks ranks, std::shared_ptr<nccl_slot> slot) :
    slot_(std::move(slot)), ranks_(std::move(ranks)), self_(self) {}

bool nccl_work::begin() {
  const lock held(mutex_);
  if (state_.now != phase::waiting)
    return false;
  state_.now = phase::making;
  begun_ = clock::now();
  ended_ = false;
  return true;
}

nccl_id nccl_work::wait_for_id(clock::time_point end) {
  lock held(mutex_);
  while (!id_ && !is_stopped() && clock::now() < end)
    held.wait_until(changed_, end);
  if (!id_)
    fail(self_ == 0 ? "no id was made in time" : "no id came from participant 0 in time", true);
  return id_.value_or(nccl_id{});
}

void nccl_work::tell(const nccl_id& id) {
  const lock held(mutex_);
  if (id == nccl_id{})
    return fail("participant 0 has made no id", false);
  id_ = id;
  changed_.notify_all();
}

void nccl_work::give(std::shared_ptr<nccl_group> x) {
  const lock held(mutex_);
  if (!is_stopped())
    given_.push_back(std::move(x));
  changed_.notify_all();
}

std::shared_ptr<event> nccl_work::wait_until_given(const nccl_group& x, clock::time_point end) {
  lock held(mutex_);
  while (!x.moved && !is_stopped() && clock::now() < end)
    held.wait_until(changed_, end);
  if (is_stopped())
    throw communication_error(state_.problem);
  return x.moved;
}

bool nccl_work::stopped() {
  const lock held(mutex_);
  return is_stopped();
}

/// What is not yet NCCL's stays where it is: to end its events is a call of the device.
void nccl_work::fail(const std::string& why, bool own) {
  if (!is_stopped())
    state_ = {phase::failed, why, own};
  changed_.notify_all();
}

nccl_communicator::report nccl_work::state() {
  const lock held(mutex_);
  // NCCL's thread has limits, but one call may never return.
  if (const auto limit = 2 * slot_->limits.make; state_.now == phase::making && clock::now() >= begun_ + limit)
    fail("NCCL: a call has not returned within " + text_of_duration(limit), true);
  return state_;
}

void nccl_work::take_over() {
  const lock held(mutex_);
  if (state_.now != phase::ready)
    throw communication_error(state_.problem.empty() ? "NCCL is not ready" : state_.problem);
  state_.now = phase::in_use;
  taken_over_ = true;
}

bool nccl_work::in_use() {
  const lock held(mutex_);
  return taken_over_;
}

void nccl_work::check(clock::time_point end) {
  lock held(mutex_);
  const auto number = ++checks_asked_;
  changed_.notify_all();
  while (checks_answered_ < number && !is_stopped() && clock::now() < end)
    held.wait_until(changed_, end);
  if (is_stopped())
    throw communication_error(state_.problem);
  if (checks_answered_ < number)
    throw communication_error("NCCL does not say how it is");
}

void nccl_work::abort() {
  const lock held(mutex_);
  fail("aborted", false);
  aborted_at_ = std::min(aborted_at_, clock::now());
}

bool nccl_work::is_moving(clock::time_point end) {
  std::shared_ptr<event> last;
  {
    lock held(mutex_);
    while ((issuing_ || (!given_.empty() && !is_stopped())) && clock::now() < end)
      held.wait_until(changed_, end);
    if (issuing_)
      return true;
    last = last_;
  }
  try {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock::now());
    return last && !last->wait(std::max(left, std::chrono::milliseconds(0)));
  } catch (const device_error&) {
    return true; // nobody knows
  }
}

void nccl_work::let_end(clock::time_point end) {
  if (!stopped())
    is_moving(end);
}

std::string nccl_work::end() {
  {
    lock held(mutex_);
    const auto limit = aborted_at_ + slot_->limits.end;
    while (!ended_ && clock::now() < limit)
      held.wait_until(changed_, limit);
    if (ended_)
      return {};
    slot_->lost = true;
  }
  if (!is_moving(clock::now()))
    return {};
  return "NCCL has not ended its work on " + slot_->on.facts().place + " within " + text_of_duration(slot_->limits.end);
}

bool nccl_work::ended() {
  const lock held(mutex_);
  return ended_;
}

} // namespace parcae

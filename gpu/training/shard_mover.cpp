#include "gpu/training/shard_mover.hpp"

#include "gpu/dataplane/late_parts.hpp"
#include "protocols/base/crash_stack.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

namespace parcae {

namespace {

using steady = std::chrono::steady_clock;

constexpr std::chrono::hours transfer_limit{1}; ///< the conductor's limits are shorter; see peer_limit

double ms_between(steady::time_point from, steady::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

} // namespace

shard_mover::shard_mover(const prepare& what, std::uint32_t self, const tensor_device& on,
                         std::unique_ptr<communicator> over, const executor_options& options,
                         std::function<void(const std::exception_ptr&)> fails) :
    what_(what),
    self_(self), on_(on), over_(std::move(over)), options_(options), fails_(std::move(fails)) {}

shard_mover::~shard_mover() {
  abort();
  if (thread_.joinable())
    thread_.join();
  follower_.reset(); // their threads use what is below
  feeds_.reset();
}

void shard_mover::abort() noexcept {
  {
    const lock held(mutex_);
    aborted_ = true;
    changed_.notify_all();
    if (follower_)
      follower_->give_up();
  }
  over_->abort();
}

// Both ends say the same of it: what is not of a device is never copied, and slots of one process have devices of a
// kind.
bool shard_mover::is_copied(const shard_move& x) const {
  const auto& all = what_.target.participants;
  return !on_.of().facts().host && what_.specification.transport != "tcp" &&
         all[x.source].slot.instance == all[x.destination].slot.instance;
}

void shard_mover::warm(const model_description& model, const layer_store& arriving, shard_follower::callbacks tells) {
  const auto fails = [this, tell = tells.fails](const std::exception_ptr& why) {
    if (fail(why))
      tell(why);
  };
  const lock held(mutex_);
  if (aborted_)
    return;
  if (std::ranges::count(what_.moves, self_, &shard_move::source) > 0)
    feeds_ = std::make_shared<state_feeds>(*over_, what_, self_, model, on_, options_, fails);
  if (std::ranges::count(what_.moves, self_, &shard_move::destination) > 0)
    follower_.emplace(*over_, what_, self_, model, on_, arriving, options_,
                      shard_follower::callbacks{std::move(tells.warm), fails});
  else
    tells.warm(0, 0);
}

void shard_mover::begin(const layer_store& held, const layer_store& arriving, const version& at) {
  at_ = at;
  began_ = steady::now();
  for (const auto& move : what_.moves)
    if (move.destination == self_)
      arrivals_.push_back({&move, {}, {}});
  if (!follower_) // what comes next is not known there until the feeds have ended
    post_arrivals(arriving);
  const auto ahead = feeds_ ? feeds_->end(at) : decltype(feeds_->end(at))();
  for (const auto& move : what_.moves) {
    if (move.source != self_)
      continue;
    const auto known = held.find(move.layer);
    if (known == held.end() || known->second.at != at)
      throw std::runtime_error("layer " + std::to_string(move.layer) + " is not held at version " + to_string(at));
    if (!feeds_ || !ahead.at(move.destination).contains(move.layer))
      departures_.push_back({&move, known->second.parts(), is_copied(move)});
  }
  if (departures_.empty() && arrivals_.empty() && !feeds_)
    return;
  {
    const lock held(mutex_);
    sent_ = false;
  }
  thread_ = std::thread([this] {
    use_crash_stack();
    run();
  });
  if (!follower_)
    return;
  followed_ = follower_->wait_end(at);
  std::erase_if(arrivals_, [this](const arrival& x) { return came_ahead(x.move->layer); });
  post_arrivals(arriving);
}

void shard_mover::post_arrivals(const layer_store& arriving) {
  for (const bool late : {false, true}) // the order in which they come
    for (auto& x : arrivals_)
      expect(x, arriving.at(x.move->layer), late);
  posted_ = true;
}

void shard_mover::expect(arrival& x, const layer_state& into, bool late) {
  const auto parts = into.parts();
  const bool copied = is_copied(*x.move);
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (is_late(what_, copied, i) == late) {
      (late ? x.late : x.early)
          .push_back(over_->receive(x.move->source, shard_tag(at_, x.move->layer, i), on_.memory_of(parts[i])));
      (late ? x.late_bytes : x.early_bytes) += parts[i].nbytes();
    }
}

void shard_mover::run() {
  try {
    if (feeds_)
      feeds_->wait_sent();
    send(false);
    if (!wait_for_permission())
      return;
    send(true);
    departures_.clear();
    note_sent();
    note_late_arrival();
  } catch (...) {
    fail(std::current_exception());
  }
}

void shard_mover::send(bool late) {
  std::vector<ticket> sent;
  std::uint32_t count = 0;
  for (const auto& x : departures_) {
    bool any = false;
    for (std::size_t i = 0; i < x.parts.size(); ++i)
      if (is_late(what_, x.copied, i) == late) {
        sent.push_back(over_->send(x.move->destination, shard_tag(at_, x.move->layer, i), on_.memory_of(x.parts[i])));
        any = true;
      }
    if (any)
      fault(late ? "late_send" : "transfer_send", ++count);
  }
  for (const auto& x : sent)
    over_->wait(x, transfer_limit);
}

bool shard_mover::wait_for_permission() {
  lock held(mutex_);
  while (!aborted_ && !late_from_)
    held.wait(changed_);
  return !aborted_;
}

void shard_mover::note_sent() {
  const lock held(mutex_);
  sent_ = true;
  changed_.notify_all();
}

void shard_mover::note_late_arrival() {
  for (const auto& x : arrivals_)
    for (const auto& part : x.late)
      over_->wait(part, transfer_limit);
  const lock held(mutex_);
  late_until_ = steady::now();
  changed_.notify_all();
}

bool shard_mover::fail(std::exception_ptr why) {
  {
    const lock held(mutex_);
    if (aborted_)
      return false;
    failure_ = why;
    changed_.notify_all();
  }
  over_->abort(); // peers need not wait for more
  fails_(why);
  return true;
}

void shard_mover::throw_failure() {
  const lock held(mutex_);
  if (failure_)
    std::rethrow_exception(failure_);
}

shard_mover::arrived shard_mover::wait_early() {
  arrived result;
  std::uint32_t count = 0;
  try {
    for (const auto& x : arrivals_) {
      for (const auto& part : x.early)
        over_->wait(part, transfer_limit);
      result.bytes += x.early_bytes;
      fault("transfer_receive", ++count);
    }
  } catch (const communication_error&) {
    throw_failure(); // says more
    throw;
  }
  result.ms = ms_between(began_, steady::now());
  return result;
}

void shard_mover::allow_late() {
  const lock held(mutex_);
  if (!late_from_)
    late_from_ = steady::now();
  changed_.notify_all();
}

void shard_mover::wait_late() {
  const bool any = std::ranges::any_of(arrivals_, [](const arrival& x) { return !x.late.empty(); });
  if (lock held(mutex_); any) // the thread reads: of two that do one may sleep on when the other has read all
    while (!late_until_ && !failure_ && !aborted_)
      held.wait(changed_);
  try {
    std::uint32_t count = 0;
    for (const auto& x : arrivals_) {
      for (const auto& part : x.late)
        over_->wait(part, transfer_limit);
      if (!x.late.empty())
        fault("late_receive", ++count);
    }
  } catch (const communication_error&) {
    throw_failure();
    throw;
  }
}

void shard_mover::wait_sent() {
  lock held(mutex_);
  while (!sent_ && !failure_ && !aborted_)
    held.wait(changed_);
  if (failure_)
    std::rethrow_exception(failure_);
  if (!sent_)
    throw communication_error("aborted");
}

shard_mover::arrived shard_mover::late() const {
  arrived result;
  for (const auto& x : arrivals_)
    result.bytes += x.late_bytes;
  const lock held(mutex_);
  if (result.bytes > 0 && late_from_)
    result.ms = ms_between(*late_from_, late_until_.value_or(steady::now()));
  return result;
}

bool shard_mover::is_whole(std::uint32_t layer) {
  if (came_ahead(layer))
    return true;
  for (const auto& x : arrivals_) {
    if (x.move->layer != layer || !posted_)
      continue;
    try {
      for (const auto* parts : {&x.early, &x.late})
        for (const auto& part : *parts)
          over_->wait(part, std::chrono::milliseconds(0));
      return true;
    } catch (const std::exception&) { // it was cut off
      return false;
    }
  }
  return false;
}

std::map<std::uint32_t, version> shard_mover::end_following() {
  return follower_ ? follower_->break_off() : std::map<std::uint32_t, version>();
}

void shard_mover::fault(const char* phase, std::uint32_t index) const {
  if (options_.on_fault_point)
    options_.on_fault_point({phase, what_.next, at_.steps, index});
}

} // namespace parcae

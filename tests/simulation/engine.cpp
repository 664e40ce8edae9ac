#include "tests/simulation/engine.hpp"

#include "protocols/wire/type_ids.hpp"

#include <caf/actor.hpp>
#include <caf/actor_cast.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/exit_reason.hpp>
#include <caf/scheduled_actor.hpp>
#include <caf/send.hpp>

#include <algorithm>
#include <utility>

namespace parcae::simulation {

namespace {

// One for all, one after the other: to make it takes as long as some twenty steps of a schedule.
caf::actor_system_config& configuration() {
  static struct config : caf::actor_system_config {
    config() {
      parcae::add_message_types(*this);
      set("scheduler.policy", caf::atom("testing"));
      set("logger.inline-output", true);
    }
  } result;
  return result;
}

} // namespace

engine::engine(std::uint64_t seed) :
    dice_(seed), system_(configuration()),
    scheduler_(dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler())) {
  scheduler_.clock().current_time = time_point{} + 1h; // 0 is special to the clock
}

engine::~engine() {
  timeline_.clear();
  std::ranges::copy(std::exchange(delayed_, {}), std::back_inserter(runnable_));
  settle();
  scheduler_.clock().cancel_all(); // a pending timer would keep its actor, and the system's destructor waiting
  settle();
}

process_ptr engine::start_process(const std::string& name) {
  auto result = std::make_shared<process>();
  result->name = name;
  caf::node_id::default_data::host_id_type host{};
  result->node = caf::make_node_id(++processes_, host);
  return result;
}

void engine::kill(const process_ptr& p) {
  p->alive = false;
  p->late.clear();
  std::ranges::move(p->held, std::back_inserter(runnable_));
  p->held.clear();
  for (const auto& address : p->actors)
    if (const auto actor = caf::actor_cast<caf::actor>(address))
      caf::anon_send_exit(actor, caf::exit_reason::kill);
  p->actors.clear();
  collect();
}

void engine::freeze(const process_ptr& p) {
  p->frozen = true;
  p->frozen_at = now();
}

void engine::thaw(const process_ptr& p) {
  p->frozen = false;
  std::ranges::move(p->held, std::back_inserter(runnable_));
  p->held.clear();
  for (auto& what : std::exchange(p->late, {}))
    after(p, dice_.between(0ms, 3ms), std::move(what));
}

void engine::slow_down(const caf::actor_addr& x, nanoseconds most) {
  slow_[x.id()] = most;
}

namespace {

caf::scheduled_actor* actor_of(caf::resumable* job) {
  return job->subtype() == caf::resumable::scheduled_actor ? static_cast<caf::scheduled_actor*>(job) : nullptr;
}

} // namespace

// Where new actors are made known, by the first message to them: they belong to whoever runs.
void engine::collect() {
  auto& jobs = scheduler_.jobs;
  while (!jobs.empty()) {
    auto* job = jobs.front();
    jobs.pop_front();
    auto* actor = actor_of(job);
    process_ptr owner;
    if (actor) {
      const auto [known, is_new] = process_of_.try_emplace(actor->id(), current_);
      owner = known->second;
      if (is_new && owner)
        owner->actors.push_back(actor->address());
    }
    if (owner && owner->frozen && owner->alive) {
      owner->held.push_back(job);
    } else if (const auto slow = actor ? slow_.find(actor->id()) : slow_.end();
               slow != slow_.end() && owner && owner->alive) {
      delayed_.insert(job);
      after(dice_.between(0ms, slow->second), [this, job] {
        delayed_.erase(job);
        runnable_.push_back(job);
      });
    } else {
      runnable_.push_back(job);
    }
  }
}

void engine::run(caf::resumable* job) {
  auto* actor = actor_of(job);
  const auto known = actor ? process_of_.find(actor->id()) : process_of_.end();
  const auto owner = known == process_of_.end() ? nullptr : known->second;
  if (owner && owner->frozen && owner->alive) {
    owner->held.push_back(job);
    return;
  }
  ++messages_;
  within(owner, [&] {
    scheduler_.jobs.push_front(job);
    scheduler_.run_once();
  });
}

void engine::settle() {
  collect();
  while (!runnable_.empty()) {
    std::swap(runnable_[dice_.below(runnable_.size())], runnable_.back());
    auto* job = runnable_.back();
    runnable_.pop_back();
    run(job);
  }
}

void engine::happen(timeline::event x) {
  if (!x.by)
    x.what();
  else if (x.by->frozen && x.by->alive)
    x.by->late.push_back(std::move(x.what));
  else if (x.by->alive)
    within(x.by, x.what);
}

void engine::run_until(time_point end, const std::function<bool()>& stop) {
  for (settle(); !stop(); settle()) {
    const auto& timers = scheduler_.clock().schedule();
    const auto ours = timeline_.next();
    const bool theirs_first = !timers.empty() && (!ours || timers.begin()->first < *ours);
    const auto next = theirs_first ? timers.begin()->first : ours.value_or(end + 1ns);
    if (next > end) {
      scheduler_.clock().current_time = std::max(now(), end);
      return;
    }
    scheduler_.clock().current_time = std::max(now(), next);
    if (theirs_first)
      scheduler_.clock().trigger_expired_timeouts();
    else
      happen(timeline_.take());
  }
}

} // namespace parcae::simulation

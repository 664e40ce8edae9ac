#include "actors/conductor/change_log.hpp"

#include "actors/conductor/planning_desk.hpp"
#include "planner/cost/realistic_cost.hpp"
#include "protocols/base/enum_text.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace parcae {

BOOST_DESCRIBE_ENUM(migration, none, intra_stage, inter_stage, pipeline) // also the fields of migration_counts

namespace {

double ms_between(time_point from, time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

} // namespace

void change_log::open(time_point now, const std::string& why) {
  if (is_open())
    return;
  record_.trigger = why.empty() ? "start" : why;
  record_.at_us = microseconds_of(now);
  began_ = now;
  lost_ = 0;
}

void change_log::add_trigger(const std::string& why) {
  if (is_open())
    add_cause(record_.trigger, why);
}

void change_log::mark(double change_status::*phase_ms, time_point now) {
  record_.*phase_ms = ms_between(began_, now);
}

void change_log::settle(time_point now, std::uint32_t lost) {
  mark(&change_status::decided_ms, now);
  lost_ = lost;
}

void change_log::replay(std::uint64_t steps) {
  view_.replayed_steps += steps;
  record_.replayed_steps += steps;
}

void change_log::decided(time_point now, const std::string& trigger, decision x) {
  x.number = view_.decision_count++;
  x.at_us = microseconds_of(now);
  x.trigger = trigger;
  view_.decisions.push_back(std::move(x));
  if (view_.decisions.size() > decisions_kept)
    view_.decisions.erase(view_.decisions.begin());
}

void change_log::plan(time_point now, generation to, const change_plan& plan, bool running, double busiest_bytes) {
  const auto& target = plan.target;
  record_.to = to.value;
  record_.configuration = std::to_string(target.width) + "×" + std::to_string(target.depth);
  record_.kind = enum_name(plan.kind);
  record_.bytes = plan.bytes;
  mark(&change_status::planned_ms, now);
  running_ = running;
  busiest_bytes_ = busiest_bytes;
  if (++record_.plans == 1) // made of figures of earlier changes: no time of this one is in it; 0: nothing ran before
    record_.predicted_ms = running || stall_began_ ? cost_of(figures(), running ? std::nullopt : std::optional(lost_),
                                                             target.ranks(), busiest_bytes)
                                                         .stall_ms()
                                                   : 0;
  if (!view_.decisions.empty())
    view_.decisions.back().generation = to.value;
}

void change_log::activate(time_point now, double early_ms, generation g, std::uint32_t ranks) {
  active_at_ = now;
  mark(&change_status::active_ms, now);
  record_.ready_ms = std::min(record_.active_ms, std::max(record_.prepared_ms, record_.stopped_ms) + early_ms);
  record_.stall_ms = stall_began_ ? ms_between(*stall_began_, now) : 0;
  if (record_.plans == 1)
    learn(ranks);
  for (auto& x : view_.decisions)
    if (x.generation == g.value)
      x.realised_ms = record_.stall_ms;
  stall_began_.reset();
}

void change_log::learn(std::uint32_t ranks) {
  measured_change x;
  x.busiest_bytes = busiest_bytes_;
  x.transfer_ms = record_.ready_ms - (running_ ? record_.stopped_ms : record_.prepared_ms);
  x.activate_ms = record_.active_ms - record_.ready_ms;
  x.ranks = ranks;
  if (!running_ && record_.decided_ms >= 0 && !record_.waited) { // else PREPARE also loaded the data
    x.settle_ms = record_.decided_ms;
    x.lost = lost_;
    x.plan_ms = record_.planned_ms - record_.decided_ms;
    x.prepare_ms = record_.prepared_ms - record_.planned_ms;
  }
  meter_.learn(x);
}

void change_log::wait_for_state(generation g, double ms) {
  auto* of = record_.to == g.value ? &record_ : view_.changes.empty() ? nullptr : &view_.changes.back();
  if (of && of->to == g.value && std::isfinite(ms)) // by a rank's word
    of->state_wait_ms = std::max(of->state_wait_ms, ms);
}

void change_log::first_commit(time_point now, generation g) {
  if (record_.to == g.value) {
    mark(&change_status::first_commit_ms, now);
    close();
  } else if (!view_.changes.empty() && view_.changes.back().to == g.value) {
    auto& closed = view_.changes.back();
    closed.first_commit_ms = closed.active_ms + ms_between(active_at_, now);
  }
}

void change_log::close() {
  auto closed = std::exchange(record_, {});
  if (closed.active_ms < 0)
    return; // nothing changed
  closed.number = view_.change_count++;
  for_each_field(view_.migrations, [&](const char* kind, std::uint64_t& count) { count += closed.kind == kind; });
  view_.changes.push_back(std::move(closed));
  if (view_.changes.size() > changes_kept)
    view_.changes.erase(view_.changes.begin());
}

void change_log::close_if_active() {
  if (record_.active_ms >= 0)
    close();
}

} // namespace parcae

#include "actors/manager/job_manager.hpp"

#include "actors/conductor/model_facts.hpp"
#include "actors/manager/forecaster.hpp"
#include "actors/manager/job_obstacle.hpp"
#include "actors/manager/journal_store.hpp"
#include "actors/manager/liveput_planner.hpp"
#include "actors/manager/migration_conductor.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>

namespace parcae {

namespace {

using job_manager_pointer = job_manager_actor::stateful_pointer<job_manager_state>;

void end_children(job_manager_pointer self, const caf::error& why) {
  auto& s = self->state;
  self->send_exit(s.conductor, why);
  self->send_exit(s.planner, why);
  self->send_exit(s.forecaster, why);
}

void finish(job_manager_pointer self, const job_outcome& x) {
  auto& s = self->state;
  if (s.over)
    return;
  s.over = true;
  self->send(s.config.registry, x);
  end_children(self, caf::exit_reason::user_shutdown);
  self->quit();
}

template <class Function, class... Arguments>
auto spawn_computing(job_manager_pointer self, Function f, const Arguments&... arguments) {
  return self->state.config.own_threads ? self->spawn<caf::detached>(f, arguments...) : self->spawn(f, arguments...);
}

void start_planner(job_manager_pointer self) {
  auto& s = self->state;
  const auto& job = s.config.specification;
  s.planner = spawn_computing(self, liveput_planner,
                              liveput_planner_config{job, facts_of(job).state_bytes, job_manager_actor{self}});
  self->monitor(s.planner);
}

void start_forecaster(job_manager_pointer self) {
  auto& s = self->state;
  s.forecaster = spawn_computing(self, forecaster, s.config.specification, s.config.past);
  self->monitor(s.forecaster);
}

void child_ended(job_manager_pointer self, const caf::down_msg& x) {
  auto& s = self->state;
  if (s.over)
    return;
  if (x.source == s.planner.address()) {
    spdlog::error("job {}: the planner died ({}), starting another", s.config.job.value, render(x.reason));
    start_planner(self);
  } else if (x.source == s.forecaster.address()) {
    spdlog::error("job {}: the forecaster died ({}), starting another", s.config.job.value, render(x.reason));
    start_forecaster(self);
  } else if (x.source == s.conductor.address()) {
    // Its state died with it, and with it the only record of what the generations did.
    finish(self, {s.config.job,
                  false,
                  "the conductor died: " + render(x.reason) +
                      "; go on with `parcae submit --resume` of what its keepers wrote",
                  {}});
  } else if (x.source == s.config.registry.address()) {
    end_children(self, caf::exit_reason::user_shutdown); // nobody is left to tell
    self->quit();
  }
}

// Other workers are refused also by the managers that come after this one.
void begin_on(job_manager_pointer self, const std::string& processor) {
  auto& s = self->state;
  s.processor = processor;
  if (s.config.journal)
    self->send(s.config.journal, journal_entries{{processor_entry(s.config.job, processor)}});
}

// The first one is what a reproducible job begins on.
bool usable(job_manager_pointer self, const std::string& processor) {
  auto& s = self->state;
  if (!may_use(s.config.specification, s.processor, processor))
    return false;
  if (s.config.specification.reproducible && s.processor.empty())
    begin_on(self, processor);
  return true;
}

void offer(job_manager_pointer self, const slot_offer& x) {
  auto& s = self->state;
  const bool serves = s.config.specification.serves();
  if (x.gateway ? !serves : x.keeper && serves)
    return; // not attached either: keepers may hold what is left of another job
  if (x.gateway)
    return self->send(s.conductor, x);
  if (!x.keeper && !has_layers_of(s.config.specification, x.processor))
    return spdlog::warn("job {} does not use {}: it has not the plug-in with SHA-256 {}", s.config.job.value,
                        to_string(x.where.slot), s.config.specification.model.plugin);
  if (!x.keeper && !usable(self, x.processor))
    return spdlog::warn("job {} does not use {}: it is reproducible and began on \"{}\", not on \"{}\"",
                        s.config.job.value, to_string(x.where.slot), s.processor, x.processor);
  self->send(s.conductor, x);
}

void learn(job_manager_pointer self, const fleet_news& x) {
  auto& s = self->state;
  if (x.what.joined && !usable(self, x.processor)) // losses of others are ignored by the forecaster
    return;
  s.config.past.push_back(x);
  if (s.config.past.size() > fleet_recorder::max_events)
    s.config.past.pop_front();
  self->send(s.forecaster, x);
}

// The worker that was there first when the job began says what the job's history is: that of workers like it.
void choose_past(job_manager_pointer self) {
  auto& s = self->state;
  auto& past = s.config.past;
  const auto drop_others = [&] {
    std::erase_if(past, [&](const auto& x) { return !may_use(s.config.specification, s.processor, x.processor); });
  };
  drop_others();
  if (!s.config.specification.reproducible || !s.processor.empty())
    return;
  std::map<std::string, const fleet_news*> present;
  for (const auto& x : past)
    if (x.what.joined)
      present[x.what.instance] = &x;
    else
      present.erase(x.what.instance);
  const auto first = std::ranges::min_element(present, {}, [](const auto& x) { return x.second->what.seconds; });
  if (first == present.end())
    return;
  begin_on(self, first->second->processor);
  drop_others();
}

} // namespace

job_manager_actor::behavior_type job_manager(job_manager_pointer self, job_manager_config config) {
  self->set_down_handler([=](const caf::down_msg& x) { child_ended(self, x); });
  self->set_exit_handler([=](const caf::exit_msg& x) {
    end_children(self, x.reason);
    self->quit(x.reason);
  });
  auto& s = self->state;
  s.config = std::move(config);
  s.processor = s.config.processor;
  choose_past(self);
  start_forecaster(self);
  start_planner(self);
  s.conductor =
      self->spawn(migration_conductor,
                  migration_conductor_config{s.config.job, s.config.specification, facts_of(s.config.specification),
                                             s.config.options, s.config.secret, job_manager_actor{self},
                                             s.config.own_threads, s.config.journal, std::move(s.config.known)});
  self->monitor(s.conductor);
  self->monitor(s.config.registry);
  return {
      [=](const slot_offer& x) { offer(self, x); },
      [=](const job_event& x) { self->send(self->state.conductor, x); },
      [=](const job_outcome& x) { finish(self, x); },
      [=](released_atom, const slot_id& x) { self->send(self->state.config.registry, released_atom_v, x); },
      [=](const fleet_news& x) { learn(self, x); },
      [=](const forecast_query& x) { return self->delegate(self->state.forecaster, x); },
      [=](const request_plan& x) { return self->delegate(self->state.planner, x); },
      [=](view_atom) { return self->delegate(self->state.conductor, view_atom_v); },
      [=](const trace_request& x) { return self->delegate(self->state.conductor, x); },
  };
}

} // namespace parcae

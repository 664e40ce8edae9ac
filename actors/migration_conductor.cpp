#include "actors/migration_conductor.hpp"

#include "actors/behaviors.hpp"
#include "actors/log_context.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace parcae {

namespace {

using self_pointer = conductor_actor::stateful_pointer<migration_conductor_state>;

constexpr std::size_t most_lines = 1000;
constexpr std::chrono::seconds plan_limit{5};
constexpr int plan_attempts = 3;

void handle(self_pointer self, const conductor_event& x);

void write(self_pointer self, severity level, std::string text) {
  auto& s = self->state;
  auto log_level = level == severity::error     ? spdlog::level::err
                   : level == severity::warning ? spdlog::level::warn
                                                : spdlog::level::info;
  const auto& view = s.machine->view();
  set_log_context(s.config.job, {view.steps_done, view.current});
  spdlog::log(log_level, "{}", text);
  s.lines.push_back({self->clock().now(), level, std::move(text)});
  s.lines_picture.reset();
  if (s.lines.size() > most_lines) {
    s.lines.pop_front();
    ++s.dropped_lines;
  }
}

job_picture picture_of(self_pointer self) {
  auto& s = self->state;
  if (!s.picture)
    s.picture = std::make_shared<job_view>(s.machine->view());
  if (!s.lines_picture)
    s.lines_picture = std::make_shared<std::deque<journal_line>>(s.lines);
  return {s.picture, s.dropped_lines, s.lines_picture};
}

void end(self_pointer self, bool good, std::string why) {
  auto& s = self->state;
  if (s.ended)
    return;
  s.ended = true;
  if (s.machine->view().now != phase::ended) // the machine did not end the job itself: nobody was told
    for (const auto& [id, slot] : s.slots) {
      self->send(slot, abort_generation{s.machine->view().current});
      self->send(slot, forget{s.config.job});
    }
  s.picture.reset();
  auto last = picture_of(self);
  self->send(s.config.manager, job_outcome{s.config.job, good, std::move(why), std::move(last)});
}

// The planner may just be restarting: an unanswered query is repeated a few times.
void ask_for_plan(self_pointer self, const request_plan& x, int attempt) {
  self->request(self->state.config.manager, plan_limit, plan_query{x})
      .then([=](const plan_answer& answer) { handle(self, answer.what); },
            [=](const caf::error& e) {
              if (attempt < plan_attempts)
                return ask_for_plan(self, x, attempt + 1);
              end(self, false, "the planner does not answer: " + render(e));
            });
}

struct effect_carrier {
  self_pointer self;

  void operator()(const tell& x) const {
    auto& s = self->state;
    auto i = s.slots.find(x.to);
    if (i == s.slots.end())
      return; // lost in the meantime: its slot_lost is being handled
    std::visit([&](const auto& command) { self->send(i->second, command); }, x.what);
    if (auto r = std::get_if<release>(&x.what); r && r->keep.empty() && s.leaving.contains(x.to))
      s.emptied.insert(x.to);
  }

  void operator()(const request_plan& x) const { ask_for_plan(self, x, 1); }

  // For now the journal is this list in the manager's memory; it is written before the effects that follow.
  void operator()(const record& x) const { write(self, severity::information, "journal: " + x.what); }

  void operator()(const job_ended& x) const { end(self, x.good, x.why); }

  void operator()(const log_line& x) const { write(self, x.level, x.text); }
};

// CAF 0.17 cannot cancel a timer: each has a number, and only the newest counts. One that fires too early does no harm,
// while one more for each commit, which puts the deadline off, would be thousands.
void arm_timer(self_pointer self) {
  auto& s = self->state;
  auto at = s.machine->deadline();
  if (!at || (s.timer_at && *s.timer_at <= *at))
    return;
  s.timer_at = at;
  ++s.timer;
  self->scheduled_send(self, *at, timer_atom_v, s.timer);
}

// Slots under notice that nothing needs any more may go before their notice expires.
void release_leaving(self_pointer self) {
  auto& s = self->state;
  if (s.leaving.empty())
    return;
  const auto& view = s.machine->view();
  auto settled =
      view.now == phase::running && view.grid && !view.chain.empty() && view.steps_done > view.chain.back().base;
  for (auto i = s.leaving.begin(); i != s.leaving.end();) {
    // Those after the ranks sent their shards long ago.
    auto used = !settled || s.machine->writes(*i) ||
                std::any_of(view.grid->participants.begin(), view.grid->participants.begin() + view.grid->ranks(),
                            [&](const participant& p) { return p.slot == *i; });
    if (used && !s.emptied.contains(*i)) {
      ++i;
      continue;
    }
    self->send(s.config.manager, released_atom_v, *i);
    s.emptied.erase(*i);
    i = s.leaving.erase(i);
  }
}

void handle(self_pointer self, const conductor_event& x) {
  auto& s = self->state;
  if (s.ended)
    return;
  s.picture.reset();
  try {
    for (const auto& effect : s.machine->handle(self->clock().now(), x))
      std::visit(effect_carrier{self}, effect);
  } catch (const std::exception& e) {
    write(self, severity::error, std::string("the conductor failed: ") + e.what());
    end(self, false, std::string("the conductor failed: ") + e.what());
  }
  if (s.ended)
    return;
  release_leaving(self);
  arm_timer(self);
}

void join(self_pointer self, const slot_offer& x) {
  auto& s = self->state;
  if (s.ended)
    return;
  s.slots[x.where.slot] = x.handle;
  self->send(x.handle, attach_atom_v, s.config.job, report_sink{self});
  handle(self, slot_joined{x.where, x.keeper, x.slot_bytes, x.machine});
}

void happened(self_pointer self, const conductor_event& x) {
  auto& s = self->state;
  // A slot that the job never took (another processor) is none of the conductor's business, but it may leave at once.
  if (auto lost = std::get_if<slot_lost>(&x)) {
    if (s.slots.erase(lost->slot) == 0)
      return;
    s.leaving.erase(lost->slot);
    s.emptied.erase(lost->slot);
  } else if (auto leaving = std::get_if<slot_leaving>(&x)) {
    if (!s.slots.contains(leaving->slot))
      return self->send(s.config.manager, released_atom_v, leaving->slot);
    s.leaving.insert(leaving->slot);
  }
  handle(self, x);
}

} // namespace

conductor_actor::behavior_type migration_conductor(self_pointer self, migration_conductor_config config) {
  auto& s = self->state;
  s.config = std::move(config);
  s.machine.emplace(s.config.job, s.config.specification, s.config.facts, s.config.options, s.config.secret);
  return behavior_of_each_from<conductor_actor::behavior_type>(
      std::type_identity<slot_id>{}, std::type_identity<report>{},
      [=](const slot_id& from, const auto& x) {
        // Only slots of this job count; a lost one may still be talking.
        if (self->state.slots.contains(from))
          handle(self, slot_reported{from, x});
      },
      [=](const slot_offer& x) { join(self, x); }, [=](const job_event& x) { happened(self, x.what); },
      [=](timer_atom, std::uint64_t number) {
        auto& s = self->state;
        if (number != s.timer)
          return;
        s.timer_at.reset();
        handle(self, tick{});
      },
      [=](view_atom) { return picture_of(self); });
}

} // namespace parcae

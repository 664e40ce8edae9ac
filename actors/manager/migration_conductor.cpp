#include "actors/manager/migration_conductor.hpp"

#include "actors/manager/journal.hpp"
#include "actors/manager/journal_store.hpp"
#include "actors/manager/liveput_planner.hpp"
#include "actors/manager/status.hpp"
#include "protocols/values/log_context.hpp"
#include "protocols/wire/behaviors.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace parcae {

namespace {

using conductor_pointer = conductor_actor::stateful_pointer<migration_conductor_state>;

constexpr std::size_t max_events = 1000;
constexpr std::uint64_t max_lines_of_slot = 100; // more than a change has, and then
constexpr std::chrono::seconds lines_of_slot_pause{1};
constexpr std::chrono::seconds plan_limit{5};
constexpr int plan_attempts = 3; ///< in a row, before another one plans
// How the job goes is written down this soon after something happened, and at most once an interval; curves even
// without news.
constexpr milliseconds news_pause{100};
constexpr std::chrono::seconds keep_interval{1};
constexpr std::chrono::seconds curve_interval{30};

void handle(conductor_pointer self, const conductor_event& x);
void carry_out(conductor_pointer self);

void write(conductor_pointer self, severity level, std::string text) {
  auto& s = self->state;
  auto log_level = level == severity::error     ? spdlog::level::err
                   : level == severity::warning ? spdlog::level::warn
                                                : spdlog::level::info;
  const auto at = s.machine->where();
  set_log_context(s.config.job, {at.steps_done, at.current});
  spdlog::log(log_level, "{}", text);
  s.events.push_back({self->clock().now(), level, std::move(text)});
  s.events_picture.reset();
  if (s.events.size() > max_events) {
    s.events.pop_front();
    ++s.dropped_events;
  }
}

job_picture picture_of(conductor_pointer self) {
  auto& s = self->state;
  if (!s.picture)
    s.picture = std::make_shared<job_view>(s.machine->view());
  if (!s.events_picture)
    s.events_picture = std::make_shared<std::deque<logged_event>>(s.events);
  return {s.picture, s.dropped_events, s.events_picture};
}

// Without a sender: also when the actor is gone.
void tell_slot(const migration_conductor_state& s, const tell& x) {
  if (const auto i = s.slots.find(x.to); i != s.slots.end()) // else lost meanwhile: its slot_lost is being handled
    std::visit(
        [&](const auto& command) {
          caf::anon_send(i->second, addressee{x.to, s.config.job}, command);
        },
        *x.what);
}

// The job ends although the state machine has not ended it (an error, an exit): keepers write what they hold.
void carry_out_last_will(migration_conductor_state& s) {
  try {
    for (const auto& effect : s.machine->last_will())
      if (const auto* x = std::get_if<tell>(&effect))
        tell_slot(s, *x);
  } catch (const std::exception& e) {
    spdlog::error("job {}: the keepers were not told to write a checkpoint: {}", s.config.job.value, e.what());
  }
}

void end(conductor_pointer self, bool good, std::string why) {
  auto& s = self->state;
  if (s.ended)
    return;
  s.ended = true;
  if (!facts_of(s.machine->where().now).is_over) {
    carry_out_last_will(s);
    why += s.machine->how_to_go_on();
  }
  s.picture.reset();
  auto last = picture_of(self);
  self->send(s.config.manager, job_outcome{s.config.job, good, std::move(why), std::move(last)});
}

// The job's planner does not answer, which must not end the job: a healthy generation keeps its configuration; without
// one a planner of our own chooses by `throughput`, which needs no forecast and so no job_manager.
void ask_stand_in(conductor_pointer self, const caf::error& why) {
  auto& s = self->state;
  const auto problem = "the planner does not answer (" + render(why) + "): ";
  if (s.machine->where().now != phase::planning)
    return write(self, severity::warning, problem + "the configuration stays");
  write(self, severity::warning, problem + "planning by throughput");
  if (!s.stand_in) {
    liveput_planner_config config{s.config.specification, s.config.facts.state_bytes, s.config.manager};
    config.job.policy = "throughput";
    s.stand_in = s.config.own_threads ? self->spawn<caf::detached>(liveput_planner, config)
                                      : self->spawn(liveput_planner, config);
  }
  self->request(s.stand_in, plan_limit, s.asked)
      .then([=](const plan_chosen& answer) { handle(self, answer); },
            [=](const caf::error& e) { // the conductor asks again when its own limit has passed
              self->state.stand_in = nullptr;
              write(self, severity::error, "no configuration can be chosen: " + render(e));
            });
}

// The planner may just be restarting: an unanswered query is repeated a few times.
void ask_for_plan(conductor_pointer self) {
  auto& s = self->state;
  self->request(s.config.manager, plan_limit, s.asked)
      .then(
          [=](const plan_chosen& answer) {
            self->state.unanswered = 0;
            handle(self, answer);
          },
          [=, number = s.asked.request](const caf::error& e) {
            auto& s = self->state;
            if (s.ended)
              return;
            if (++s.unanswered >= plan_attempts)
              ask_stand_in(self, e);
            else if (number == s.asked.request) // else it was asked again in the meantime
              ask_for_plan(self);
          });
}

/// Since the last time. With a decision they must not get lost any more than that: ranks that know them may end next.
journal_entries news_of_losses(migration_conductor_state& s, bool last = false) {
  return {s.losses.news(s.machine->losses(), s.config.specification.global_batch, last)};
}

struct effect_carrier {
  conductor_pointer self;

  void operator()(const tell& x) const {
    auto& s = self->state;
    tell_slot(s, x);
    if (auto r = std::get_if<release>(x.what.get()); r && r->keep.empty() && s.leaving.contains(x.to))
      s.emptied.insert(x.to);
  }

  void operator()(const request_plan& x) const {
    self->state.asked = x;
    ask_for_plan(self);
  }

  void operator()(const record& x) const {
    auto& s = self->state;
    if (!x.what.empty())
      write(self, severity::information, "journal: " + x.what);
    if (!s.config.journal)
      return;
    auto all = news_of_losses(s, x.now.over);
    for (; x.now.over && !all.all.empty(); all = news_of_losses(s, true)) // there before the job is over
      self->send(s.config.journal, std::move(all));
    all.all.push_back(entry_of(s.config.job, x.now));
    if (x.before) // what comes later is written after it
      return self->send(s.config.journal, std::move(all));
    s.writing = true;
    self->request(s.config.journal, journal_limit, std::move(all))
        .then(
            [self = self] {
              self->state.writing = false;
              carry_out(self);
            },
            [self = self](const caf::error& e) { // with the journal the process ends
              write(self, severity::error, "the journal does not answer: " + render(e));
              self->send_exit(self->state.config.journal, caf::exit_reason::kill);
            });
  }

  void operator()(const job_ended& x) const { end(self, x.good, x.why); }

  void operator()(const log_line& x) const { write(self, x.level, x.text); }
};

// As far as the journal has what has to be there before.
void carry_out(conductor_pointer self) {
  auto& s = self->state;
  while (!s.pending.empty() && !s.writing) {
    const auto x = std::move(s.pending.front());
    s.pending.pop_front();
    std::visit(effect_carrier{self}, x);
  }
}

// Writes what the next manager cannot learn anew: how the job went, for people; how far it came, if no rank is left.
void write_history(conductor_pointer self) {
  auto& s = self->state;
  const auto now = self->clock().now();
  const auto at = s.machine->where();
  const version reached{at.steps_done, at.current};
  const auto picture = picture_of(self);
  const auto& view = *picture.view;
  const decltype(s.kept.counts) counts{view.change_count, view.decision_count, s.dropped_events + s.events.size(),
                                       static_cast<std::uint64_t>(std::max<std::int64_t>(0, view.evaluated_steps))};
  if (auto losses = news_of_losses(s); !losses.all.empty()) {
    losses.may_fail = true; // ranks and keepers have them
    self->request(s.config.journal, journal_limit, std::move(losses))
        .then([self, told = s.losses.told()] { self->state.losses.written(told); },
              [self](const caf::error&) { self->state.losses.forget(); });
  }
  journal_entries all{{}, true};
  const bool moved = std::exchange(s.kept.reached, reached) != reached;
  if (moved)
    all.all.push_back(entry_of(s.config.job, reached));
  if (std::exchange(s.kept.counts, counts) != counts || (moved && now - s.kept.curve_at >= curve_interval)) {
    job_entry job;
    job.specification = s.config.specification;
    job.state = job_state::running;
    auto status = status_of(s.config.job, job, picture, {});
    status.chain.clear(); // which the memory has
    all.all.push_back(entry_of(s.config.job, std::move(status), now));
    s.kept.curve_at = now;
  }
  if (!all.all.empty())
    caf::anon_send(s.config.journal, std::move(all)); // an error of it is nobody's
}

void keep_history(conductor_pointer self) {
  auto& s = self->state;
  auto& kept = s.kept;
  const auto now = self->clock().now();
  if (!s.config.journal)
    return;
  if (!kept.due) {
    kept.due = std::max(now + news_pause, kept.at + keep_interval);
  } else if (*kept.due <= now && (s.writing || facts_of(s.machine->where().now).stands_still)) {
    kept.due = now + news_pause;
  } else if (*kept.due <= now) {
    kept.due.reset();
    kept.at = now;
    write_history(self);
  }
}

// CAF 0.17 cannot cancel a timer: each has a number, and only the newest counts. One that fires too early does no harm,
// while one more for each commit, which puts the deadline off, would be thousands.
void arm_timer(conductor_pointer self) {
  auto& s = self->state;
  auto at = s.machine->deadline();
  if (s.kept.due)
    at = std::min(at.value_or(*s.kept.due), *s.kept.due);
  if (!at || (s.timer_at && *s.timer_at <= *at))
    return;
  s.timer_at = at;
  ++s.timer;
  self->scheduled_send(self, *at, timer_atom_v, s.timer);
}

// Slots under notice that nothing needs any more may go before their notice expires.
void release_leaving(conductor_pointer self) {
  auto& s = self->state;
  if (s.leaving.empty())
    return;
  for (auto i = s.leaving.begin(); i != s.leaving.end();) {
    if (!s.machine->can_go(*i) && !s.emptied.contains(*i)) {
      ++i;
      continue;
    }
    self->send(s.config.manager, released_atom_v, *i);
    s.emptied.erase(*i);
    i = s.leaving.erase(i);
  }
}

/// Leaves out log lines that a slot causes with its reports again and again; what goes into the journal is always told.
void limit_lines(conductor_pointer self, const slot_id& by, std::vector<effect>& all) {
  auto& limit = self->state.limits.try_emplace(by, max_lines_of_slot, lines_of_slot_pause).first->second;
  std::erase_if(all, [&](effect& x) {
    auto* line = std::get_if<log_line>(&x);
    const auto left_out = line ? limit.admit(self->clock().now()) : std::nullopt;
    if (left_out)
      line->text += *left_out;
    return line && !left_out;
  });
}

void handle(conductor_pointer self, const conductor_event& x) {
  auto& s = self->state;
  if (s.ended)
    return;
  s.picture.reset();
  try {
    auto effects = s.machine->handle(self->clock().now(), x);
    if (const auto* report = std::get_if<slot_reported>(&x))
      limit_lines(self, report->from, effects);
    std::ranges::move(effects, std::back_inserter(s.pending));
    carry_out(self);
  } catch (const std::exception& e) {
    write(self, severity::error, std::string("the conductor failed: ") + e.what());
    end(self, false, std::string("the conductor failed: ") + e.what());
  }
  if (s.ended)
    return;
  release_leaving(self);
  keep_history(self);
  arm_timer(self);
}

// Only slots of this job count, a lost one may still be talking; and only what their own nodes say of them.
bool is_heard(conductor_pointer self, const slot_id& from) {
  const auto& slots = self->state.slots;
  const auto slot = slots.find(from);
  const auto& sender = self->current_sender();
  return slot != slots.end() && sender && sender->node() == slot->second.node();
}

void join(conductor_pointer self, const slot_offer& x) {
  auto& s = self->state;
  if (s.ended)
    return;
  const bool known = !s.slots.insert_or_assign(x.where.slot, x.handle).second;
  caf::anon_send(x.handle, attach_atom_v, addressee{x.where.slot, s.config.job}, report_sink{self});
  if (known)
    handle(self, slot_returned{x.where.slot});
  else
    handle(self, slot_joined{x.where, x.keeper, x.memory, x.machine, x.gateway, x.kind});
}

// Beside the conductor, which need not know: nothing follows from spans.
trace_reply trace(conductor_pointer self, const trace_request& x) {
  auto& s = self->state;
  const auto picture = picture_of(self).view;
  const auto& grid = picture->grid;
  if (x.steps > 0 && grid) {
    s.traces.begin(s.config.job, picture->current, *grid, x.steps);
    const auto what =
        std::make_shared<const command>(trace_steps{picture->current, std::min(x.steps, trace_steps::most)});
    for (std::uint32_t rank = 0; rank < grid->ranks(); ++rank)
      tell_slot(s, {grid->participants[rank].slot, what});
  }
  return s.traces.part(x.from, grid ? picture->current : generation{});
}

void happened(conductor_pointer self, const conductor_event& x) {
  auto& s = self->state;
  // A slot that the job never took (another processor) is none of the conductor's business, but it may leave at once.
  if (auto lost = std::get_if<slot_lost>(&x)) {
    if (s.slots.erase(lost->slot) == 0)
      return;
    s.leaving.erase(lost->slot);
    s.emptied.erase(lost->slot);
    s.limits.erase(lost->slot);
  } else if (auto leaving = std::get_if<slot_leaving>(&x)) {
    if (!s.slots.contains(leaving->slot))
      return self->send(s.config.manager, released_atom_v, leaving->slot);
    s.leaving.insert(leaving->slot);
  }
  handle(self, x);
}

} // namespace

migration_conductor_state::~migration_conductor_state() {
  if (machine && !ended && !steps_down)
    carry_out_last_will(*this);
}

conductor_actor::behavior_type migration_conductor(conductor_pointer self, migration_conductor_config config) {
  const auto parent = config.manager.address();
  self->set_exit_handler([=](const caf::exit_msg& x) {
    if (x.source != parent)
      return;
    auto& s = self->state;
    s.steps_down = s.config.journal && x.reason == caf::exit_reason::user_shutdown;
    self->quit(x.reason);
  });
  self->set_down_handler([=](const caf::down_msg& x) {
    if (x.source == parent)
      self->quit(x.reason);
  });
  self->set_default_handler(caf::drop);
  self->monitor(config.manager);
  auto& s = self->state;
  s.config = std::move(config);
  auto& known = s.config.known;
  s.losses = loss_journal(s.config.job, known.losses);
  known.past.losses = std::move(known.losses.all);
  s.events = std::move(known.events);
  s.dropped_events = known.first_event;
  s.machine = conductor::make({s.config.job, s.config.specification, s.config.facts, s.config.options, s.config.secret,
                               std::move(known.durable), std::move(known.past)});
  return behavior_of_each_from<conductor_actor::behavior_type>(
      std::type_identity<slot_id>{}, std::type_identity<report>{},
      [=]<class T>(const slot_id& from, const T& x) {
        if (!is_heard(self, from))
          return;
        if constexpr (std::is_same_v<T, traced>)
          self->state.traces.hear(from, x);
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
      [=](view_atom) { return picture_of(self); }, [=](const trace_request& x) { return trace(self, x); });
}

} // namespace parcae

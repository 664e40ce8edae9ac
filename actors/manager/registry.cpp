#include "actors/manager/registry.hpp"

#include "actors/manager/injector.hpp"
#include "actors/manager/job_manager.hpp"
#include "actors/manager/job_obstacle.hpp"
#include "actors/manager/registry_parts.hpp"
#include "actors/manager/status.hpp"
#include "protocols/base/text.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

namespace parcae {

namespace {

constexpr std::chrono::seconds look_interval{1};
constexpr std::chrono::seconds patience{5}; // with a job that waits before it has begun, while another could run

slot_id slot_of(const hello& x, std::uint32_t index) {
  return {x.name, x.life, index};
}

void look_for_rivals(registry_pointer self);

// What goes to nodes is sent without a sender: so neither they nor an eavesdropper get to know the registry.
void release_instance(const registry_state::member& x) {
  if (x.given_back) // it knows of no notice that it may end by
    caf::anon_send(x.handle, die_atom_v, std::uint64_t{0});
  else
    caf::anon_send(x.handle, released_atom_v);
}

// --- the end

void end_process(registry_pointer self) {
  if (const auto ended = std::exchange(self->state.config.ended, {}))
    ended();
}

void begin_end(registry_pointer self) {
  auto& s = self->state;
  if (s.end_at)
    return;
  s.end_at = self->clock().now() + s.config.end_limit;
  for (const auto& [id, job] : s.queue.jobs())
    if (job.state == job_state::queued)
      spdlog::warn("job {} ({}) was waiting and is not kept: submit it again", id.value, job.specification.name);
  // What serves goes on without a manager, and the next one finds it: there is nothing to write.
  if (!s.manager || (s.config.journal && s.queue.jobs().at(*s.queue.running()).specification.serves()))
    return end_process(self);
  self->send(s.manager, job_event{manager_ends{*s.end_at}});
}

} // namespace

// --- instances -----------------------------------------------------------------------------------

void offer_slots(registry_pointer self, const instance_table::key& who) {
  auto& s = self->state;
  auto record = s.table.find(who);
  if (!s.manager || !record || !may_train(s, record->facts))
    return;
  // One under notice is only offered again, if the job still needs it.
  if (record->state != instance_state::alive && s.members.at(who).needed.empty())
    return;
  const auto& x = record->facts;
  const auto kind = s.config.kinds.find(x.pool);
  for (std::uint32_t i = 0; i < x.slots; ++i)
    self->send(s.manager, slot_offer{{slot_of(x, i), x.host, x.port},
                                     x.role == role::keeper,
                                     x.processor,
                                     x.memory,
                                     x.machine,
                                     s.members.at(who).slots[i],
                                     x.role == role::gateway ? std::optional(x.http) : std::nullopt,
                                     kind == s.config.kinds.end() ? "" : kind->second});
}

void spread_news(registry_pointer self, const hello& x, bool joined, bool announced) {
  if (x.role != role::worker)
    return;
  auto& s = self->state;
  s.fleet.push_back(
      {{seconds_of(self->clock().now()), x.name + "/" + std::to_string(x.life.value), x.slots, joined, announced},
       x.processor});
  if (s.fleet.size() > fleet_recorder::max_events)
    s.fleet.pop_front();
  if (s.manager)
    self->send(s.manager, s.fleet.back());
}

namespace {

// For people: in the log and in the status.
void tell_people(registry_pointer self, severity level, std::string text) {
  const auto log_level = level == severity::information ? spdlog::level::info : spdlog::level::warn;
  spdlog::log(log_level, "{}", text);
  self->state.news.note(self->clock().now(), level, std::move(text));
}

// The same, of what a member can cause again and again.
void tell_people(registry_pointer self, line_limit& limit, severity level, std::string text) {
  if (const auto left_out = limit.admit(self->clock().now()))
    tell_people(self, level, std::move(text) + *left_out);
}

// Tells the running job something about each slot of an instance.
template <class MakeEvent>
void tell_job(registry_pointer self, const hello& x, MakeEvent make_event) {
  if (!self->state.manager)
    return;
  for (std::uint32_t i = 0; i < x.slots; ++i)
    self->send(self->state.manager, job_event{make_event(slot_of(x, i))});
}

// A job that ended while the instance could not be told may still be computed or answered for there. Keepers are not
// told: what they hold may be all that is left of a job that failed; the next job takes its place.
void forget_what_is_over(registry_pointer self, const instance_table::key& who) {
  auto& s = self->state;
  const auto& facts = s.table.find(who)->facts;
  if (s.over == job_id{} || s.over == s.queue.running() || facts.role == role::keeper)
    return;
  const auto& slots = s.members.at(who).slots;
  for (std::uint32_t i = 0; i < slots.size(); ++i)
    caf::anon_send(slots[i], addressee{slot_of(facts, i), s.over}, forget{s.over});
}

// The same life again: it has a new connection, or the answer to its first HELLO got lost. The handles it came with
// equal the old ones, which stay dead.
void welcome_back(registry_pointer self, const instance_table::key& who, const instance_actor& handle,
                  const std::vector<slot_actor>& slots) {
  auto& s = self->state;
  auto& x = s.members.at(who);
  self->demonitor(x.handle.address());
  x.handle = handle;
  x.slots = slots;
  self->monitor(handle);
  if (std::exchange(x.away, false))
    spdlog::info("instance {} has a new connection", who.first);
  forget_what_is_over(self, who);
  offer_slots(self, who);
  if (s.table.find(who)->state == instance_state::leaving && x.needed.empty())
    release_instance(x);
}

// A risk that its cloud sees, or sees no more. Why one leaves is said with its notice.
void tell_warning(registry_pointer self, const instance_table::key& who) {
  auto& s = self->state;
  const auto& record = *s.table.find(who);
  if (record.state != instance_state::alive)
    return;
  if (const auto& warning = record.facts.warning; warning.empty()) // the status has it
    tell_people(self, s.limits.warnings, severity::information, "instance " + who.first + " is at risk no more");
  else
    tell_people(self, s.limits.warnings, severity::warning, "instance " + who.first + " is at risk: " + warning);
}

caf::result<welcome> join(registry_pointer self, const requester& by, const hello& x, const instance_actor& handle,
                          const std::vector<slot_actor>& slots) {
  auto& s = self->state;
  if (slots.size() != x.slots || !handle || !std::all_of(slots.begin(), slots.end(), [](auto& y) { return !!y; }))
    return caf::make_error(parcae_error::malformed_request, "HELLO of " + x.name + " does not match its slots");
  if (const auto known = s.members.find({x.name, x.life});
      known != s.members.end() && !known->second.is_of(handle.node()))
    return caf::make_error(parcae_error::duplicate_name, "that life of " + x.name + " is another process's");
  const auto joined = s.table.join(x, self->clock().now(), by.holder);
  if (!joined) {
    const auto& [code, why] = joined.error();
    if (const auto left_out = s.limits.refusals.admit(self->clock().now()))
      spdlog::warn("refused an instance: {}{}", render(code, why), *left_out);
    return caf::make_error(code, why);
  }
  instance_table::key who{x.name, x.life};
  if (!joined->is_new) {
    if (joined->warns)
      tell_warning(self, who);
    // The same proxy is the same connection: the node only makes sure that it was heard.
    using proxy = caf::actor_control_block*;
    auto& known = s.members.at(who);
    known.heard = self->clock().now();
    if (known.away || caf::actor_cast<proxy>(known.handle) != caf::actor_cast<proxy>(handle))
      welcome_back(self, who, handle, slots);
    return welcome{s.config.manager_life, s.config.manager};
  }
  tell_people(self, s.limits.comings, severity::information,
              fmt::format("instance {} {} as {} with {} at {}", x.name, joined->returned ? "is back" : "joined",
                          to_string(x.role), counted(x.slots, "slot"), with_port(x.host, x.port)));
  if (joined->warns)
    tell_warning(self, who);
  s.members[who] = {handle, slots, ++s.joined, self->clock().now(), {}, false, false};
  self->monitor(handle);
  if (may_train(s, x))
    spread_news(self, x, true, false);
  if (joined->returned || x.manager_life != 0) // of this process, or of one before
    forget_what_is_over(self, who);
  offer_slots(self, who);
  start_next_job(self);
  return welcome{s.config.manager_life, s.config.manager};
}

void lose(registry_pointer self, const instance_table::key& who, const std::string& why) {
  auto& s = self->state;
  s.members.erase(who);
  const auto* record = s.table.find(who);
  const auto was_leaving = record && record->state == instance_state::leaving;
  if (!s.table.lose(who, self->clock().now()))
    return;
  count_gone(s, *record, self->clock().now());
  if (was_leaving)
    tell_people(self, s.limits.comings, severity::information, "instance " + who.first + " is gone, as announced");
  else
    tell_people(self, s.limits.comings, severity::warning, "instance " + who.first + " is lost: " + why);
  spread_news(self, s.table.find(who)->facts, false, false); // for one under notice the second time: ignored
  tell_job(self, s.table.find(who)->facts, [&](slot_id slot) {
    return slot_lost{slot, "instance " + who.first + " is lost"};
  });
  start_next_job(self);
}

// The monitor on an instance says that its connection is gone. While nothing is wrong here that is a loss. But when
// this process stood still, all connections end, and nobody else is the worse for it: they dial again.
void disconnected(registry_pointer self, const caf::down_msg& x) {
  auto& s = self->state;
  const auto i = std::find_if(s.members.begin(), s.members.end(),
                              [&](const auto& m) { return m.second.handle.address() == x.source; });
  if (i == s.members.end())
    return;
  if (s.standstill.recent(self->clock().now())) {
    spdlog::info("the connection to instance {} ended while the manager stood still", i->first.first);
    i->second.away = true;
    return;
  }
  lose(self, instance_table::key(i->first), render(x.reason));
}

void beat(registry_pointer self) {
  auto& s = self->state;
  const auto now = self->clock().now();
  self->delayed_send(self, s.config.beat, timer_atom_v);
  s.table.expire(now);
  s.standstill.beat(now);
  if (!s.standstill.recent(now)) {
    std::vector<std::pair<instance_table::key, std::string>> gone;
    for (const auto& [who, member] : s.members)
      if (member.away)
        gone.emplace_back(who, "it did not return after the manager stood still");
      else if (now - member.heard > s.config.silence)
        gone.emplace_back(who, "it said nothing for " + text_of_duration(s.config.silence));
    for (const auto& [who, why] : gone)
      lose(self, who, why);
  }
  if (s.config.own_warning)
    if (const auto now_is = s.config.own_warning(); std::exchange(s.own_warning, now_is) != now_is && !now_is.empty())
      tell_people(self, severity::warning, now_is);
  if (s.look_at && *s.look_at <= now)
    look_for_rivals(self);
  if (s.end_at && *s.end_at <= now)
    end_process(self);
}

// --- jobs ----------------------------------------------------------------------------------------

job_queue::obstacle obstacle_now(const registry_state& s) {
  return [offer = offer_of(s)](const job_specification& job) { return obstacle_to(job, offer); };
}

// While jobs wait behind one that runs: looks each second whether that one keeps them waiting for nothing.
void look_later(registry_pointer self) {
  auto& s = self->state;
  if (s.look_at || s.queue.waiting().empty())
    return;
  s.look_at = self->clock().now() + look_interval;
}

// A job that waits although it was thought to fit, and has not begun, gives way to one that can run.
void look_for_rivals(registry_pointer self) {
  auto& s = self->state;
  s.look_at.reset();
  look_later(self);
  if (!s.manager || !s.queue.first_that_can(obstacle_now(s)))
    return s.idle_since.reset();
  const auto job = *s.queue.running();
  self->request(s.manager, view_limit, view_atom_v)
      .then(
          [=](const job_picture& picture) {
            auto& s = self->state;
            if (s.queue.running() != job)
              return;
            const auto& view = *picture.view;
            if (view.now != phase::waiting || view.steps_done > s.queue.jobs().at(job).specification.resume.steps)
              return s.idle_since.reset();
            const auto now = self->clock().now();
            if (now - s.idle_since.emplace(s.idle_since.value_or(now)) < patience || !s.queue.give_way())
              return;
            spdlog::info("job {} gives way to one that can run: {}", job.value, view.problem);
            self->send(s.manager, job_event{cancel_requested{}});
          },
          [](const caf::error&) {}); // the job is ending
}

// How it ended, with its last status. Of one that gave way nothing is left but that.
void keep_end(registry_pointer self, const job_outcome& x) {
  auto& s = self->state;
  if (!s.config.journal)
    return;
  auto all = entries_of(s, x.job);
  const auto& job = s.queue.jobs().at(x.job);
  for (const auto* part : {memory_part, processor_part, history_part, reached_part, last_part})
    all.all.push_back({name_in_journal(x.job, part), {}});
  if (job.state != job_state::queued)
    all.all.back() = entry_of(x.job, status_of(x.job, job, x.last, {}), self->clock().now());
  self->send(s.config.journal, std::move(all));
}

void end_job(registry_pointer self, const job_outcome& x) {
  auto& s = self->state;
  if (s.queue.running() != x.job)
    return;
  s.queue.end(x.job, x.good, x.why);
  keep_end(self, x);
  s.idle_since.reset();
  std::erase_if(s.pictures, [&](const auto& p) { return !s.queue.jobs().contains(p.first); });
  s.losses[x.job] = x.last.view ? x.last.view->record : loss_record();
  if (s.queue.jobs().at(x.job).state != job_state::queued) // else it gave way, with nothing begun
    s.pictures[x.job] = x.last;
  s.manager = nullptr;
  s.over = x.job;
  // With the job goes what instances under notice were kept for. An instance that came while the conductor told the
  // others that the job is over has not been told.
  for (auto& [who, member] : s.members) {
    forget_what_is_over(self, who);
    member.needed.clear();
    if (s.table.find(who)->state == instance_state::leaving)
      release_instance(member);
  }
  if (s.end_at && !x.good) {
    spdlog::warn("job {} {}", x.job.value, x.why); // "stopped at …", as the conductor ends it then
    return end_process(self);
  }
  spdlog::info("job {} is {}{}{}", x.job.value, to_string(s.queue.jobs().at(x.job).state), x.why.empty() ? "" : ": ",
               x.why);
  if (s.end_at)
    end_process(self);
  start_next_job(self);
}

// Its job_manager is given all slots. `known`, `processor`: what the journal has of it, if it ran before.
void run_job(registry_pointer self, job_id id, known_job known, const std::string& processor) {
  auto& s = self->state;
  const auto& job = s.queue.jobs().at(id);
  s.crashes.clear();
  // A job that gave way begins anew: with keys of its own.
  const auto key = key_of(s.config.secret, "job", {id.value, job.gave_way});
  s.manager = self->spawn(job_manager, job_manager_config{id, job.specification, s.config.conductor, key,
                                                          registry_actor{self}, s.fleet, s.config.journal,
                                                          std::move(known), processor, s.config.own_threads});
  self->monitor(s.manager);
  std::map<std::uint64_t, instance_table::key> in_order;
  for (const auto& [who, member] : s.members)
    in_order.emplace(member.order, who);
  for (const auto& [order, who] : in_order)
    offer_slots(self, who);
}

// The jobs of the manager before: those that ended are shown, the one that ran goes on, others wait.
void recover(registry_pointer self, std::map<job_id, recovered_job> jobs) {
  auto& s = self->state;
  known_job known; // of the one that runs
  for (auto& [id, x] : jobs) {
    s.kept.insert(id);
    auto job = entry_from(x.record);
    auto last = x.last ? on_this_clock(*x.last, self->clock().now(), wall_clock_us()) : job_status();
    if (job.state == job_state::running && x.durable.over) { // it ended just before its manager
      job.state = x.durable.good ? job_state::done : job.cancel_asked ? job_state::cancelled : job_state::failed;
      job.why = x.durable.why;
      s.recovered[id] = status_of(id, job, x.durable, last);
    } else if (job.state == job_state::running) {
      known = known_from(x.durable, x.reached, last);
      known.losses = x.losses;
    } else if (x.last && is_over(job.state)) {
      s.recovered[id] = std::move(last);
    }
    s.over = is_over(job.state) ? id : s.over;
    s.losses[id] = x.losses.all;
    s.queue.restore(id, std::move(job));
  }
  const auto id = s.queue.running();
  if (!id)
    return start_next_job(self);
  const auto& x = jobs.at(*id);
  spdlog::info("job {} ({}) goes on", id->value, x.record.specification.name);
  run_job(self, *id, std::move(known), x.processor);
  if (x.record.cancel_asked)
    self->send(s.manager, job_event{cancel_requested{}});
}

} // namespace

void leave(registry_pointer self, const leaving_notice& x) {
  auto& s = self->state;
  // A day is longer than any notice; larger values would overflow the clock.
  auto notice = milliseconds(std::min<std::uint64_t>(x.notice_ms, 86'400'000));
  auto expires = self->clock().now() + notice;
  instance_table::key who{x.name, x.life};
  const auto& by = self->current_sender(); // the injector's is of this process
  const auto known = s.members.find(who);
  if (known == s.members.end() || !by || (by->node() != self->node() && !known->second.is_of(by->node())))
    return;
  const std::string reason(clipped(x.reason, hello::longest_warning));
  const bool again = s.table.find(who)->state == instance_state::leaving;
  if (!s.table.leave(who, expires, reason))
    return;
  tell_people(self, again ? s.limits.notices : s.limits.comings, severity::warning,
              fmt::format("notice: instance {} leaves in {}{}", x.name, text_of_duration(notice),
                          reason.empty() ? "" : ": " + reason));
  if (!again)
    spread_news(self, s.table.find(who)->facts, false, true);
  if (!s.manager)
    return release_instance(known->second);
  for (std::uint32_t i = 0; i < s.table.find(who)->facts.slots; ++i)
    known->second.needed.insert(i);
  tell_job(self, s.table.find(who)->facts, [&](slot_id slot) { return slot_leaving{slot, expires}; });
}

void start_next_job(registry_pointer self) {
  auto& s = self->state;
  if (s.queue.running())
    return look_later(self);
  const auto id = s.end_at ? std::nullopt : s.queue.start_next(obstacle_now(s));
  if (!id)
    return;
  spdlog::info("job {} ({}) starts", id->value, s.queue.jobs().at(*id).specification.name);
  keep(self, *id);
  run_job(self, *id, {}, {});
}

registry_actor::behavior_type registry(registry_pointer self, registry_config config) {
  self->set_down_handler([=](const caf::down_msg& x) {
    auto& s = self->state;
    if (s.manager && x.source == s.manager.address())
      return end_job(self, {*s.queue.running(),
                            false,
                            "its job_manager died: " + render(x.reason) +
                                "; go on with `parcae submit --resume` of what its keepers wrote",
                            {}});
    disconnected(self, x);
  });
  self->set_exit_handler([=](const caf::exit_msg& x) {
    auto& s = self->state;
    if (s.manager)
      self->send_exit(s.manager, x.reason);
    self->send_exit(s.injector, x.reason);
    self->quit(x.reason);
  });
  auto& s = self->state;
  s.table = instance_table(config.lease, config.manager_life, config.managers, config.beyond_loopback);
  s.standstill = standstill_watch(config.standstill, config.return_window);
  s.config = std::move(config);
  s.injector = self->spawn(injector, manager_actor{self});
  beat(self);
  recover(self, std::exchange(s.config.jobs, {}));
  return {
      [=](const client_request& x) { return serve(self, {}, x); },
      [=](const hello& x, const instance_actor& handle, const std::vector<slot_actor>& slots) {
        return join(self, {}, x, handle, slots);
      },
      [=](const leaving_notice& x) { leave(self, x); },
      [=](const requester& who, const client_request& x) { return serve(self, who, x); },
      [=](const requester& who, const hello& x, const instance_actor& handle, const std::vector<slot_actor>& slots) {
        return join(self, who, x, handle, slots);
      },
      [=](const job_outcome& x) { end_job(self, x); },
      [=](released_atom, const slot_id& x) {
        // An instance goes when the job needs none of its slots any more.
        auto& s = self->state;
        auto i = s.members.find({x.instance, x.life});
        if (i == s.members.end())
          return;
        i->second.needed.erase(x.index);
        if (i->second.needed.empty())
          release_instance(i->second);
      },
      [=](end_atom) { begin_end(self); },
      [=](market_question) { return market_now(self); },
      [=](const give_back& x) { give_notice(self, x); },
      [=](const train_with& x) { train(self, x); },
      [=](const market_picture& x) { self->state.market = *x.what; },
      [=](const stop_job& x) {
        if (auto& s = self->state; s.queue.running() == x.job)
          self->send(s.manager, job_event{cancel_requested{x.why}});
      },
      [=](timer_atom) { beat(self); },
  };
}

} // namespace parcae

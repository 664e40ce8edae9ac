#include "actors/node/instance.hpp"

#include "protocols/base/back_off.hpp"
#include "protocols/base/text.hpp"
#include "protocols/client/client.hpp"
#include "protocols/values/log_context.hpp"

#include <caf/io/all.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace parcae {

namespace {

using std::chrono::milliseconds;

using instance_pointer = instance_actor::stateful_pointer<instance_actor_state>;

void dial(instance_pointer self);
void greet(instance_pointer self);

void end(instance_pointer self, instance_ending how) {
  auto& s = self->state;
  if (s.phase == instance_phase::ended)
    return;
  s.phase = instance_phase::ended;
  for (auto& slot : s.slots)
    self->send_exit(slot, caf::exit_reason::user_shutdown);
  s.config.ended(std::move(how));
  self->quit();
}

void begin_life(instance_pointer self) {
  auto& s = self->state;
  for (auto& slot : s.slots)
    self->send_exit(slot, caf::exit_reason::user_shutdown);
  s.slots.clear();
  s.life = incarnation{s.random()};
  s.manager_life = 0;
  s.last_manager = 0;
  for (std::uint32_t i = 0; i < s.config.introduction.slots; ++i)
    s.slots.push_back(self->spawn(slot, slot_id{s.config.introduction.name, s.life, i}, s.config.source,
                                  caf::strong_actor_ptr{self->ctrl()}));
}

std::string to_string(const manager_place& x) {
  return with_port(x.host, x.port);
}

const manager_place& dialled(const instance_actor_state& s) {
  return s.config.managers[s.turn % s.config.managers.size()];
}

void dial_later(instance_pointer self) {
  auto& s = self->state;
  s.phase = instance_phase::dialling;
  s.manager = nullptr;
  auto& limits = s.config.limits;
  const auto pause = back_off{limits.first_pause, limits.longest_pause}.after(s.dials++);
  self->delayed_send(self, pause, dial_atom_v, ++s.attempt);
}

void try_next(instance_pointer self) {
  ++self->state.turn;
  dial_later(self);
}

void greet_later(instance_pointer self) {
  auto& s = self->state;
  self->delayed_send(self, s.config.limits.greet_again, dial_atom_v, ++s.attempt);
}

void send_notice(instance_pointer self) {
  auto& s = self->state;
  auto left = std::chrono::duration_cast<milliseconds>(*s.expires - self->clock().now());
  self->send(s.manager, leaving_notice{s.config.introduction.name, s.life,
                                       static_cast<std::uint64_t>(std::max<std::int64_t>(0, left.count())), s.warning});
}

// A day is longer than any notice; larger values would overflow the clock.
constexpr std::uint64_t longest_delay_ms = 86'400'000;

// Errors come in groups: those of a moment are told together, by the first, with the log up to the last.
constexpr milliseconds report_pause{200};

void fail(instance_pointer self, const std::string& what, const std::vector<std::string>& log) {
  auto& s = self->state;
  if (!s.failure) {
    s.failure = report_request{s.config.introduction.name, what, {}, current_log_context().job};
    self->delayed_send(self, report_pause, report_atom_v);
  }
  s.failure->lines = log;
}

void report_failure(instance_pointer self) {
  auto& s = self->state;
  if (!s.failure || s.phase != instance_phase::member)
    return; // told when it is welcome again
  const request x = *std::exchange(s.failure, {});
  self->request(s.manager, s.config.limits.greet, client_request{encode(x)})
      .then([](const client_reply&) {},
            [](const caf::error& e) { spdlog::warn("the manager was not told of the failure: {}", render(e)); });
}

void welcomed(instance_pointer self, const welcome& x) {
  auto& s = self->state;
  spdlog::info("instance {} is a member", s.config.introduction.name);
  s.dials_failed = 0;
  s.was_member = true;
  s.phase = instance_phase::member;
  s.manager_life = x.manager_life;
  s.last_manager = x.manager;
  s.dials = 0;
  greet_later(self);
  if (s.expires)
    send_notice(self);
  report_failure(self);
}

void refused(instance_pointer self, const caf::error& e) {
  auto& s = self->state;
  if (e == parcae_error::lost_incarnation) {
    spdlog::warn("{}: starting over, empty", render(e));
    begin_life(self);
    return greet(self);
  }
  // Its name was taken while it was silent: no reason to give up what runs here, or could. One that starts waits a
  // while for it.
  const bool taken = e == parcae_error::duplicate_name;
  const auto now = self->clock().now();
  if (taken && !s.name_by)
    s.name_by = now + s.config.limits.name;
  const bool outdated = e == parcae_error::outdated_manager; // not the one it waits for
  if (is_ours(e) && !outdated && !(taken && (s.was_member || now < *s.name_by)))
    return end(self, {render(e)});
  if (const auto failed = ++s.dials_failed; !taken || std::has_single_bit(failed))
    spdlog::warn("{}: {}; dialling again", taken || outdated ? "not welcome" : "no answer to HELLO", render(e));
  if (s.manager)
    self->demonitor(s.manager.address());
  try_next(self);
}

/// Of its cloud and its own, while it is here to stay.
std::string warning_of(instance_actor_state& s) {
  if (s.expires || !s.config.own_warning)
    return s.warning;
  auto own = s.config.own_warning();
  if (own != s.own_warning && !own.empty())
    spdlog::warn(own);
  s.own_warning = own;
  return std::string(clipped(s.warning + (s.warning.empty() || own.empty() ? "" : "; ") + own, hello::longest_warning));
}

hello introduction_of(instance_actor_state& s) {
  auto result = s.config.introduction;
  result.life = s.life;
  result.manager_life = s.manager_life;
  result.manager = s.last_manager;
  result.warning = warning_of(s);
  if (s.config.gpus)
    result.gpus = s.config.gpus();
  if (s.config.ages)
    result.ages = s.config.ages();
  return result;
}

std::vector<slot_actor> slots_of(const instance_actor_state& s) {
  return {s.slots.begin(), s.slots.end()};
}

void greet(instance_pointer self) {
  auto& s = self->state;
  s.phase = instance_phase::greeting;
  // An answer to an earlier HELLO counts no more once another attempt was begun.
  auto attempt = s.attempt;
  auto current = [=] {
    const auto& s = self->state;
    return s.phase == instance_phase::greeting && s.attempt == attempt;
  };
  self->request(s.manager, s.config.limits.greet, introduction_of(s), instance_actor{self}, slots_of(s))
      .then(
          [=](const welcome& x) {
            if (current())
              welcomed(self, x);
          },
          [=](const caf::error& e) {
            if (current())
              refused(self, e);
          });
}

// A member says HELLO each second. A connection may end unnoticed on either side (CAF may have lost the way back, see
// runtime/node/node.cpp); and if the manager notices the end of an old connection only after the HELLO over the new
// one, the handles that came with that HELLO die, too. Repeated HELLOs and their answers show each side that the other
// is still there.
void greet_again(instance_pointer self) {
  auto& s = self->state;
  const auto attempt = s.attempt;
  const auto current = [=] {
    const auto& s = self->state;
    return s.phase == instance_phase::member && s.attempt == attempt;
  };
  self->request(s.manager, s.config.limits.greet, introduction_of(s), instance_actor{self}, slots_of(s))
      .then(
          [=](const welcome&) {
            if (current())
              greet_later(self);
          },
          [=](const caf::error& e) {
            if (current())
              refused(self, e);
          });
}

void connected(instance_pointer self, const caf::strong_actor_ptr& to, const std::set<std::string>& interface) {
  auto& s = self->state;
  if (!to || !self->system().assignable<manager_actor>(interface))
    return end(self, {render(parcae_error::wrong_protocol,
                             "what listens at " + to_string(dialled(s)) + " is not a manager of this build")});
  s.manager = caf::actor_cast<manager_actor>(to);
  self->monitor(s.manager);
  greet(self);
}

// The middleman dials, so that no actor blocks. A handshake that meets a heartbeat tick fails with connection_timeout
// although the peer is healthy (CAF 0.17), and the manager may be away: all failures but one are tried again.
void dial(instance_pointer self) {
  auto& s = self->state;
  auto attempt = s.attempt;
  auto current = [=] {
    const auto& s = self->state;
    return s.phase == instance_phase::dialling && s.attempt == attempt;
  };
  const auto& to = dialled(s);
  self->request(s.config.dialler, s.config.limits.dial, caf::connect_atom_v, to.host, to.port)
      .then(
          [=](const caf::node_id&, caf::strong_actor_ptr& to, const std::set<std::string>& interface) {
            if (current())
              connected(self, to, interface);
          },
          [=](const caf::error& e) {
            if (!current())
              return;
            if (e == caf::sec::incompatible_application_ids)
              return end(self, {render(parcae_error::wrong_protocol, self->state.config.other_build())});
            // Less and less often: it may be away for days.
            if (const auto failed = ++self->state.dials_failed; std::has_single_bit(failed))
              spdlog::warn("cannot reach the manager at {} ({}), trying again", to_string(dialled(self->state)),
                           render(e));
            try_next(self);
          });
}

// While it is leaving.
void look_after_state(instance_pointer self) {
  auto& s = self->state;
  const auto now = self->clock().now();
  if (now < s.looks_at) // woken for something else
    return;
  if (s.phase != instance_phase::member)
    for (const auto& slot : s.slots)
      self->send(slot, snapshot_atom_v);
  s.looks_at = now + s.config.limits.keep_again;
  self->scheduled_send(self, s.looks_at, timer_atom_v);
}

void notice(instance_pointer self, milliseconds grace, const std::string& reason) {
  auto& s = self->state;
  auto expires = self->clock().now() + grace;
  if (s.expires && *s.expires <= expires)
    return;
  // It never was a member: the manager does not know it, and no job uses it.
  if (s.manager_life == 0)
    return end(self, {.failure = {}, .released = true});
  spdlog::info("leaving, at the latest in {}: {}", text_of_duration(grace), reason);
  s.expires = expires;
  s.warning = clipped(reason, hello::longest_warning);
  self->scheduled_send(self, expires, timer_atom_v);
  if (s.phase == instance_phase::member)
    send_notice(self);
  look_after_state(self);
}

using looker_actor = caf::typed_actor<caf::replies_to<place_question>::with<place_answer>>;

/// A disk may hang: then one thread does, and nothing else. Who asks has a limit; here nothing is waited for but the
/// thread's end, before which there is no second one.
caf::result<place_answer> look(instance_pointer self, const place_question& x) {
  auto& s = self->state;
  if (std::exchange(s.looks, true))
    return place_answer{{}, {"it still looks for what another job would use"}};
  const auto looker = self->spawn<caf::detached>([what = s.config.look](looker_actor::pointer by) {
    return looker_actor::behavior_type{[=](const place_question& asked) {
      by->quit();
      return what(asked);
    }};
  });
  auto promise = self->make_response_promise<place_answer>();
  auto answer = [=](place_answer found) mutable {
    self->state.looks = false;
    promise.deliver(std::move(found));
  };
  self->request(looker, caf::infinite, x)
      .then([=](const place_answer& found) mutable { answer(found); },
            [=](const caf::error& e) mutable {
              answer({{}, {"it could not look: " + render(e)}});
            });
  return promise;
}

} // namespace

instance_actor::behavior_type instance(instance_pointer self, instance_config config) {
  self->set_down_handler([=](const caf::down_msg& x) {
    auto& s = self->state;
    if (!s.manager || x.source != s.manager.address())
      return;
    spdlog::warn("connection to the manager lost ({}), dialling", render(x.reason));
    try_next(self);
  });
  // The main program gives notice instead.
  self->set_exit_handler([](const caf::exit_msg&) {});
  self->set_error_handler([](const caf::error&) {});
  self->set_default_handler(caf::drop);
  auto& s = self->state;
  s.config = std::move(config);
  s.random.seed(s.config.seed);
  begin_life(self);
  dial_later(self);
  return {
      [=](die_atom, std::uint64_t delay_ms) {
        if (delay_ms == 0)
          return self->state.config.die();
        self->delayed_send(self, milliseconds(std::min(delay_ms, longest_delay_ms)), die_atom_v, std::uint64_t{0});
      },
      [=](const place_question& x) { return look(self, x); },
      [=](released_atom) {
        if (self->state.expires)
          end(self, {.failure = {}, .released = true});
      },
      [=](notice_atom, std::uint64_t grace_ms, const std::string& reason) {
        notice(self, milliseconds(std::min(grace_ms, longest_delay_ms)), reason);
      },
      [=](risk_atom, const std::string& reason) {
        if (auto& s = self->state; !s.expires)
          s.warning = clipped(reason, hello::longest_warning);
      },
      [=](dial_atom, std::uint64_t attempt) {
        const auto& s = self->state;
        if (attempt != s.attempt)
          return;
        if (s.phase == instance_phase::dialling)
          dial(self);
        else if (s.phase == instance_phase::member)
          greet_again(self);
      },
      [=](timer_atom) {
        const auto& s = self->state;
        if (s.expires && *s.expires <= self->clock().now())
          end(self, {});
        else
          look_after_state(self);
      },
      [=](report_atom, const std::string& what, const std::vector<std::string>& log) { fail(self, what, log); },
      [=](report_atom) { report_failure(self); },
  };
}

} // namespace parcae

#include "actors/node/slot.hpp"

#include "actors/node/parent.hpp"
#include "protocols/wire/behaviors.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace parcae {

namespace {

using slot_pointer = local_slot_actor::stateful_pointer<slot_actor_state>;

void start_stage(slot_pointer self) {
  auto& s = self->state;
  s.stage = self->spawn(stage, s.slot, s.source, s.sink, caf::strong_actor_ptr{self->ctrl()});
  self->monitor(s.stage);
}

void end_stage(slot_pointer self) {
  auto& s = self->state;
  if (!s.stage)
    return;
  self->demonitor(s.stage.address());
  self->send_exit(s.stage, caf::exit_reason::user_shutdown);
  s.stage = nullptr;
}

void end(slot_pointer self, const caf::error& why) {
  end_stage(self);
  self->quit(why);
}

void attach(slot_pointer self, job_id job, const report_sink& sink) {
  auto& s = self->state;
  s.sink = sink;
  if (s.stage && s.job == job)
    return self->send(s.stage, attach_atom_v, sink);
  end_stage(self);
  s.job = job;
  s.newest = s.active = {};
  start_stage(self);
}

} // namespace

local_slot_actor::behavior_type slot(slot_pointer self, slot_id slot, executor_source source,
                                     caf::strong_actor_ptr parent) {
  const auto parent_address = caf::actor_cast<caf::actor_addr>(parent); // handlers that keep a handle keep an actor
  self->set_down_handler([=](const caf::down_msg& x) {
    auto& s = self->state;
    if (is_from(self, parent_address))
      return end(self, x.reason);
    if (!s.stage || !is_from(self, s.stage.address()))
      return;
    auto why = "the stage of " + to_string(s.slot) + " died: " + render(x.reason);
    spdlog::error("{}", why);
    start_stage(self);
    if (s.active != s.newest) // which was prepared beside it
      self->send(s.sink, s.slot, failed{s.active, failure::computation, 0, why, {}});
    self->send(s.sink, s.slot, failed{s.newest, failure::computation, 0, why, {}});
  });
  self->set_exit_handler([=](const caf::exit_msg& x) {
    if (is_from(self, parent_address))
      end(self, x.reason);
  });
  self->set_error_handler([](const caf::error&) {});
  self->set_default_handler(caf::drop);
  self->monitor(parent);
  self->state.slot = std::move(slot);
  self->state.source = std::move(source);
  return behavior_of_each_from<local_slot_actor::behavior_type>(
      std::type_identity<addressee>{}, std::type_identity<command>{},
      [=](const addressee& to, const auto& x) {
        auto& s = self->state;
        if (!s.stage || to != addressee{s.slot, s.job}) // a command of the job before may come late
          return;
        s.newest = std::max(s.newest, generation_of(x));
        if constexpr (std::is_same_v<std::decay_t<decltype(x)>, activate>)
          s.active = x.next;
        self->send(s.stage, x);
      },
      [=](attach_atom, const addressee& to, const report_sink& sink) {
        if (to.slot == self->state.slot)
          attach(self, to.job, sink);
      },
      [=](snapshot_atom) {
        if (auto& s = self->state; s.stage)
          self->send(s.stage, snapshot_atom_v);
      });
}

} // namespace parcae

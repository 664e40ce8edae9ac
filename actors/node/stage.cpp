#include "actors/node/stage.hpp"

#include "actors/node/parent.hpp"
#include "protocols/wire/behaviors.hpp"

namespace parcae {

stage_state::~stage_state() {
  if (worker)
    source.retire(std::move(worker));
}

stage_actor::behavior_type stage(stage_actor::stateful_pointer<stage_state> self, slot_id slot, executor_source source,
                                 report_sink sink, caf::strong_actor_ptr parent) {
  const auto parent_address = caf::actor_cast<caf::actor_addr>(parent); // handlers that keep a handle keep an actor
  self->set_exit_handler([=](const caf::exit_msg& x) {
    if (is_from(self, parent_address))
      self->quit(x.reason);
  });
  self->set_down_handler([=](const caf::down_msg& x) {
    if (is_from(self, parent_address))
      self->quit(x.reason);
  });
  self->set_error_handler([](const caf::error&) {});
  self->set_default_handler(caf::drop);
  self->monitor(parent);
  // What an executor throws ends this stage alone; CAF's own handler would print to stdout.
  self->set_exception_handler([](std::exception_ptr& x) {
    try {
      std::rethrow_exception(x);
    } catch (const std::exception& e) {
      return caf::make_error(parcae_error::internal, std::string(e.what()));
    } catch (...) {
      return caf::make_error(parcae_error::internal);
    }
  });
  auto& s = self->state;
  s.slot = std::move(slot);
  s.source = std::move(source);
  s.sink = std::move(sink);
  // A weak pointer: an executor that is being retired still reports, but must keep nothing of the actor system alive.
  auto to = caf::actor_cast<caf::weak_actor_ptr>(stage_actor{self});
  s.worker = s.source.make(s.slot, [to](report x) {
    if (auto strong = to.lock())
      caf::anon_send(caf::actor_cast<stage_actor>(strong), executor_report{std::move(x)});
  });
  return behavior_of_each<stage_actor::behavior_type>(
      std::type_identity<command>{}, [=](const auto& x) { self->state.worker->submit(x); },
      [=](attach_atom, const report_sink& to) { self->state.sink = to; },
      [=](snapshot_atom) { self->state.worker->want_snapshot(); },
      [=](const executor_report& x) {
        auto& s = self->state;
        std::visit([&](const auto& y) { self->send(s.sink, s.slot, y); }, x.what);
      });
}

} // namespace parcae

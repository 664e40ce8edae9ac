#pragma once

// STAGE: passes commands of one job to the executor it owns, and the executor's reports to the conductor. The executor
// works on threads of its own and reports by message, so that no handler ever waits. Created and monitored by a SLOT.

#include "gpu/executor/executor.hpp"
#include "protocols/wire/actors.hpp"
#include "protocols/wire/type_ids.hpp"

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <functional>
#include <memory>

namespace parcae {

/// From an executor's thread to its STAGE.
struct executor_report {
  report what;
};

} // namespace parcae

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::executor_report)

namespace parcae {

/// Where executors come from and go to. Both functions are called in handlers and must be quick.
struct executor_source {
  std::function<std::unique_ptr<executor>(const slot_id&, std::function<void(report)>)> make;
  /// Destroys an executor on another thread: that may take as long as one layer.
  std::function<void(std::unique_ptr<executor>)> retire;
};

/// Within a node: send a snapshot to the keepers.
using snapshot_atom = caf::atom_constant<caf::atom("snapshot")>;
constexpr snapshot_atom snapshot_atom_v{};

/// Owns the executor of one slot and one job; child of a SLOT.
using stage_actor = takes_each<command>::type::extend<
    // Reports go there from now on. No reply. May be repeated.
    caf::reacts_to<attach_atom, report_sink>,
    // Local only: to the executor's want_snapshot. No reply. May be repeated.
    caf::reacts_to<snapshot_atom>,
    // Local only, from the executor's threads: passed on to the conductor.
    caf::reacts_to<executor_report>>;

struct stage_state {
  static constexpr const char* name = "stage";

  slot_id slot;
  executor_source source;
  report_sink sink;                 ///< the job's conductor
  std::unique_ptr<executor> worker; ///< retired when the actor ends, whatever ended it

  ~stage_state();
};

/// Ends when its parent tells it to, or has ended itself; exits of all others are ignored.
stage_actor::behavior_type stage(stage_actor::stateful_pointer<stage_state> self, slot_id slot, executor_source source,
                                 report_sink sink, caf::strong_actor_ptr parent);

} // namespace parcae

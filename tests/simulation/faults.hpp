#pragma once

// Faults put in by hand, which a simulation must find: in the journal's store, in what is sent, and in the rules of
// workers, keepers and gateways, of which one row is made wrong. Nothing of the product can reach them.

#include "gpu/executor/worker_machine.hpp"
#include "gpu/gateway/pipelines.hpp"
#include "gpu/keeper/keeper_machine.hpp"
#include "protocols/choreography/messages.hpp"
#include "protocols/client/journal.hpp"
#include "tests/simulation/observed.hpp"
#include "tests/simulation/timeline.hpp"

#include <caf/message.hpp>

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

namespace parcae::simulation {

enum class fault : std::uint8_t {
  none,
  // In what is sent.
  version_counted_twice, ///< the layers that a keeper holds at a version count once more, for those it lacks
  dropped_repeat,        ///< a command that is said again does not arrive
  early_release,         ///< RELEASE comes with ACTIVATE
  early_activate,        ///< ACTIVATE comes with PREPARE
  early_decide,          ///< DECIDE comes with ABORT
  needless_abort,        ///< ABORT comes with RELEASE
  two_plans,             ///< PREPARE names another seed to some
  activate_elsewhere,    ///< ACTIVATE names the version after
  decide_elsewhere,      ///< DECIDE names the step after
  confirm_ahead,         ///< CONFIRM names the version after
  another_loss,          ///< RECALLED has another loss of its first step
  another_evaluation,    ///< RECALLED has another validation loss where it has one
  losses_unsaid,         ///< RECALLED brings nothing, nor does the last word on a generation
  last_losses_unsaid,    ///< that brings nothing, RECALLED does
  // In what a user is told of changes.
  stall_untold, ///< none was there
  wait_untold,  ///< nobody waited for state in a first step
  // In the manager.
  limits_forgotten,  ///< the conductor waits a thousand times as long for a phase
  returns_unawaited, ///< after a death it goes on with who is back first
  unfenced,          ///< one that leads no more writes into the journal
  // In the journal.
  unjournaled_entry,  ///< the conductor goes on from an entry that the journal does not have
  unjournaled_number, ///< numbers of generations are given that it does not have
  number_given_back,
  broken_chain,
  ends_late,       ///< a generation, a step after it did
  ends_early,      ///< and before
  generation_void, ///< the next one begins where it began
  digest_wrong,    ///< of a final layer
  digest_lost,
  // In a row of the workers' table. Of others no cluster can show anything: nobody sends ACTIVATE to a part
  // after its ABORT; FAILED of a step that ABORT cut is no news; shards of another job: there are none here.
  stale_decide,                ///< a decision is applied on a step that was applied, or never was there
  open_step_dropped,           ///< and not on the open one
  gradients_kept,              ///< of a step that is not applied
  repeated_prepare_unanswered, ///< once it is prepared
  abort_unanswered,            ///< where it has no part
  followed_ahead,              ///< layers that were followed are said to be a version further
  followed_kept,               ///< layers that were kept in vain stay
  nothing_moved,
  begins_at_another_step, ///< one before
  begins_again,           ///< with each ACTIVATE
  last_word_unsaid,       ///< ACTIVATE that is said again is answered as if it trained
  stop_unheard,
  snapshots_unsent,
  snapshot_not_asked_for, ///< when keepers come
  last_version_unsent,    ///< to keepers that come between the last commit and STOPPED
  void_stage_kept,        ///< what a failed computation spoilt
  void_version_said,      ///< ABORTED has its version
  complete_step_unsaid,   ///< ABORTED does not tell of complete gradients
  cut_unheard,            ///< ABORT does not end a step that waits
  trains_when_superseded,
  left_behind_kept,     ///< RELEASE of a newer generation
  part_kept_at_release, ///< of one that only sent
  kept_when_forgotten,
  // In a row of the keepers' table.
  silent_about_arrivals,
  deaf_to_newer_generations,
  delivers_nothing,
  has_nothing_when_asked,
  writes_nothing,
  silent_about_what_it_read,
  // Where a model is served; early_release, too. A pass that is heard from a broken pipeline is none of them: only the
  // next token counts, whoever says it, and it follows from the request alone.
  token_twice,       ///< a request has each of its tokens twice
  position_ahead,    ///< of what a stage holds a position more counts
  request_forgotten, ///< one of a pipeline that broke
  caches_lie,        ///< stages say that they hold what they are asked for
};

struct named_fault {
  std::string_view name;
  fault what;
  std::uint64_t seeds;      ///< one of the first so many finds it: near twice what it takes
  std::string_view by = {}; ///< what is said of it then has this; empty: anything
};

std::span<const named_fault> all_faults();
/// Where a model is served.
std::span<const named_fault> all_service_faults();

/// What shows these comes so seldom that they have a program of their own: rare_faults_test.
inline bool is_rare(const named_fault& x) {
  return x.seeds > 1'000;
}

/// Puts it into a worker's rules, which must not outlive this, if it is one of theirs; else empty.
std::function<void(worker_machine&)> spoiler_of(fault what);
/// Likewise of keepers.
std::function<void(keeper_machine&)> keeper_spoiler_of(fault what);
/// Likewise of a gateway.
std::function<void(request_book&, pipelines&)> gateway_spoiler_of(fault what);

/// Those where the parts meet.
class faulty_messages {
public:
  faulty_messages(fault what, const observed& seen) : fault_(what), seen_(seen) {}

  /// In the place of a command.
  std::vector<caf::message> in_place_of(const addressee& to, const command& what, const caf::message& message);
  /// In the place of a report.
  std::vector<caf::message> in_place_of(const slot_id& from, const report& what, const caf::message& message) const;
  /// In the place of what the journal is given; none: it is not written.
  std::optional<durable_state> in_place_of(durable_state what, dice& chance) const;

private:
  fault fault_;
  const observed& seen_;
  std::set<std::tuple<slot_id, std::size_t, generation>> said_;
};

} // namespace parcae::simulation

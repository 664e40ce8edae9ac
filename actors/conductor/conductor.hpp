#pragma once

// The choreography of a job's generations as a pure state machine (design, sections 4 and 6): events in, effects out,
// no clock, no CAF, no I/O. The migration_conductor actor hosts it; tests drive it with real executors or dummies.

#include "actors/conductor/phase.hpp"
#include "actors/conductor/training_course.hpp"
#include "planner/choose/live_plan.hpp"
#include "planner/situation/inventory.hpp"
#include "planner/situation/placement.hpp"
#include "protocols/choreography/choreography.hpp"
#include "protocols/choreography/messages.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace parcae {

using time_point = std::chrono::steady_clock::time_point;
using milliseconds = std::chrono::milliseconds;

/// Limits of all waits (design, section 10).
struct conductor_options {
  milliseconds collect{20};          ///< joins and notices are collected this long before planning
  milliseconds request_limit{5'000}; ///< answer to ABORT, DECIDE, ACTIVATE, and of the planner
  milliseconds prepare_limit{60'000};
  milliseconds transfer_limit{60'000}; ///< plus bytes at 10 MB/s
  milliseconds progress_limit{30'000}; ///< no commit for max(this, 10 × the median step): abort
  /// First back-off of a participant that failed; doubles. While that is less than eight times, the job waits for its
  /// return rather than give up steps that only it still holds.
  milliseconds exclusion{1'000};
};

/// What the conductor must know of the model.
struct model_facts {
  std::vector<std::uint64_t> state_bytes; ///< per layer: parameters and moments
  std::vector<layer_cost> costs;          ///< per layer; times are estimates, for until they are measured
};

// --- events
// -----------------------------------------------------------------------------------------------------------

/// A slot may be used. `keeper`: it only holds snapshots. One that was lost may join again with what it holds.
struct slot_joined {
  participant where;
  bool keeper = false;
  std::uint64_t slot_bytes = 0; ///< its memory; 0: unknown
  machine_facts machine = {};
};

/// The registry declared the slot lost. Edge-triggered, once.
struct slot_lost {
  slot_id slot;
  std::string why;
};

/// The slot will vanish at `expires`.
struct slot_leaving {
  slot_id slot;
  time_point expires;
};

/// The slot has a new connection: commands to it and reports of it may have been lost with the one before.
struct slot_returned {
  slot_id slot;
};

struct slot_reported {
  slot_id from;
  report what;
};

/// Answer to request_plan.
struct plan_chosen {
  std::uint64_t request = 0;
  configuration choice;
  decision_note note;                  ///< kept for status
  std::vector<configuration> all = {}; ///< that the choice was from; kept for status
};

/// A reason to plan anew: a forecast, a user's command.
struct plan_wanted {
  std::string why;
};

/// The newest version that the keepers hold is to be written, unless a checkpoint has it.
struct checkpoint_wanted {};

struct cancel_requested {};

/// The manager's process ends, at the latest at `until`: the job stops, and the keepers write to disk where. Ends in
/// job_ended, whose text says how to go on.
struct manager_ends {
  time_point until;
};

/// The time is deadline() or later.
struct tick {};

using conductor_event = std::variant<slot_joined, slot_lost, slot_leaving, slot_returned, slot_reported, plan_chosen,
                                     plan_wanted, checkpoint_wanted, cancel_requested, manager_ends, tick>;

// --- effects
// ----------------------------------------------------------------------------------------------------------

/// Send a command to a slot.
struct tell {
  slot_id to;
  std::shared_ptr<const command> what; ///< never null; one for all that are told the same
};

/// Ask the planner for a configuration. Answered by plan_chosen with the same number.
struct request_plan {
  std::uint64_t request = 0;
  situation now;
};

/// Append to the job's journal before the effects that follow are carried out.
struct record {
  std::vector<chain_link> chain;
  std::string what; ///< one line
};

/// The job's end. Last effect ever.
struct job_ended {
  bool good = false;
  std::string why;
};

enum class severity : std::uint8_t { information, warning, error };

struct log_line {
  severity level = severity::information;
  std::string text;
};

using effect = std::variant<tell, request_plan, record, job_ended, log_line>;

// --- state
// ------------------------------------------------------------------------------------------------------------

/// One change of generation, for status and benchmarks. Times in ms from the start of the change; -1: did not happen.
struct change_record {
  time_point at; ///< its start
  generation to;
  std::string trigger;       ///< what started it
  std::string configuration; ///< "D×P"
  migration kind = migration::none;
  std::uint64_t bytes = 0;
  std::uint64_t replayed_steps =
      0; ///< committed steps lost (only if the chain was cut) or, 1, a step dropped by an abort
  double decided_ms = -1, planned_ms = -1, prepared_ms = -1, stopped_ms = -1, ready_ms = -1, active_ms = -1,
         first_commit_ms = -1;
  double stall_ms = -1; ///< from STOPPED of the last rank (or the loss being declared) to the last ACTIVE
  /// The stall as predicted when the change was first planned, from what earlier ones took; not mended later, however
  /// the change goes. 0 if nothing ran before.
  double predicted_ms = -1;
  std::uint32_t plans = 0; ///< times that it was planned; from the second on it is another than was predicted
  bool waited = false;     ///< for instances, which no prediction knows of
};

/// What the planner answered, and what came of it.
struct decision_record {
  time_point at;
  std::string trigger; ///< why it was asked
  decision_note note;
  generation to;           ///< that carries it out; 0: nothing was changed
  double realised_ms = -1; ///< stall of that change; -1: none yet
};

/// Mean loss over the validation samples.
struct evaluation_record {
  std::uint64_t steps = 0; ///< committed in the version evaluated
  double loss = 0;

  friend bool operator==(const evaluation_record&, const evaluation_record&) = default;
};

/// What a keeper holds.
struct keeper_record {
  slot_id where;
  version newest;           ///< of which it holds something
  std::uint32_t layers = 0; ///< of that version
};

/// All that `status` shows of a job. A plain copy, taken by the host after each event.
struct job_view {
  phase now = phase::waiting;
  generation current;            ///< running, or last that ran
  std::optional<placement> grid; ///< of `current`; empty while waiting, and in the end
  std::uint64_t steps_done = 0;  ///< committed
  commit_result last_result;
  std::optional<evaluation_record> last_evaluation;
  double step_ms = 0;
  std::vector<layer_cost> costs;                     ///< per layer, as measured so far
  std::vector<configuration> configurations;         ///< of the planner's last answer, with what was measured since
  std::map<std::uint32_t, std::uint64_t> peak_bytes; ///< of tensors, by rank of `current`, as far as heard
  double other_ms = 0; ///< processor time per step and rank that is no layer's, in the present configuration
  change_figures figures;
  version protected_version;             ///< newest complete in the keepers and in the chain
  bool protected_now = false;            ///< a keeper is present and has, or will have, current snapshots
  std::deque<change_record> changes;     ///< newest last, at most 1000
  std::deque<decision_record> decisions; ///< newest last, at most 100
  std::uint64_t decision_count = 0;      ///< all that ever were
  std::uint64_t replayed_steps = 0;
  std::uint64_t counts[4] = {};                          ///< changes by migration kind
  std::map<std::uint64_t, std::uint64_t> steps_by_depth; ///< committed steps by pipeline depth P
  std::vector<chain_link> chain;
  version checkpoint; ///< newest complete one that this job wrote, or was started from
  std::vector<std::pair<slot_id, std::string>> checkpoint_folders; ///< where each keeper put its share of it
  std::string checkpoint_problem;                                  ///< why the last attempt to write one failed
  std::vector<layer_digest> layer_digests;                         ///< of the final parameters, once the job is done
  std::string problem;                                             ///< why it waits or failed
  loss_curve losses;
  loss_curve validation_losses;
  double steps_per_s = 0;             ///< of the last minute, stalls included; 0: unknown
  std::vector<keeper_record> keepers; ///< those present
  std::uint32_t layers = 0;           ///< of the model
};

/// The conductor of one job. Single-threaded. The data plane's tokens follow from `secret`, which is never sent.
class conductor {
public:
  conductor(job_id job, job_specification specification, model_facts facts, conductor_options options,
            const secret_key& secret);
  ~conductor();

  /// The effects are to be carried out in order.
  std::vector<effect> handle(time_point now, const conductor_event& x);

  /// When to send the next tick, if nothing happens before.
  std::optional<time_point> deadline() const;

  const job_view& view() const;

  /// When the host cannot go on: ends the workers' part, and has the keepers write what they hold. Nothing is handled
  /// afterwards.
  std::vector<effect> last_will();

  /// For people, after the last will or the job's end: "; go on with …", or empty.
  std::string how_to_go_on() const;

  /// Whether this keeper's share of a checkpoint is awaited, or will be.
  bool writes(const slot_id& keeper) const;

private:
  class machine;
  std::unique_ptr<machine> machine_;
};

} // namespace parcae

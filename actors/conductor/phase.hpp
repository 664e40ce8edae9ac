#pragma once

// Where a change of generation stands, what can happen there, and what comes of it.

#include "protocols/base/rule_table.hpp"
#include "protocols/choreography/choreography.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace parcae {

enum class phase : std::uint8_t {
  recovering, ///< the manager before is no more: its ranks are awaited, and may be training
  waiting,    ///< too few slots, or keepers read a checkpoint; nothing runs
  planning,   ///< nothing runs, a configuration was asked for
  preparing,  ///< PREPARE(g+1) sent, nothing runs
  running,    ///< g trains; a plan may have been asked for
  readying,   ///< g trains, PREPARE(g+1) sent
  warming,    ///< g trains, g+1 is prepared, WARM sent: its layers go there ahead
  stopping,   ///< STOP(g) sent, g+1 prepared, given up, or none
  clearing,   ///< ABORT(g+1) sent, which never ran; nothing runs
  aborting,   ///< ABORT(g) sent
  deciding,   ///< DECIDE(g) sent
  activating, ///< ACTIVATE(g+1) sent to some: shards move, and who has its layers trains
  finishing,  ///< final version reached, waiting for a keeper to hold it
  ended,
};

std::string to_string(phase x);

/// What is so in a phase, whatever happens there: that it makes a difference is said here, and in the rows of the
/// transitions, and nowhere else.
struct phase_facts {
  phase of;
  const char* name;
  bool trains = false;        ///< g does, and was not told to stop
  bool waits = false;         ///< nobody trains, and nothing is under way but what goes to keepers
  bool is_calm = false;       ///< and no change is under way
  bool plans_at_once = false; ///< a reason to plan does not wait for the end of a change
  bool asks_planner = false;  ///< its answer counts
  bool stands_still = false;  ///< nobody trains, or soon will not: all waits for what has to be in the journal
  bool is_unsettled = false;  ///< who computes is being found out, or about to stop: gateways are told nothing
  bool is_final = false;      ///< no step is left
  bool is_over = false;
};

const phase_facts& facts_of(phase x);

enum class trigger_kind : std::uint8_t {
  due,            ///< it is time to plan
  nobody,         ///< there is no slot to plan with
  chosen,         ///< the planner answered
  all_answered,   ///< the last answer that the phase waits for is in
  all_stopped,    ///< all ranks of g stopped unasked
  place_lost,     ///< a rank of g was lost, is taken for lost, or failed
  source_lost,    ///< who sends g shards was lost, is taken for lost, or failed
  part_lost,      ///< a participant of g+1, no rank of g, was lost, or is taken for lost
  lost,           ///< any slot was, and nothing else follows from it
  broken,         ///< communication failed in g
  next_broken,    ///< communication failed in g+1
  refused,        ///< a participant of g+1 cannot prepare
  unreachable,    ///< two participants of g+1 cannot reach each other; of the younger one
  failed_alive,   ///< a slot failed, and can still answer
  late,           ///< the limit of the phase passed
  leaving,        ///< what time slots have left has changed
  notice,         ///< a slot is under notice
  last_moment,    ///< those under notice who alone hold a stage can train no longer
  came,           ///< a slot that this manager does not know, or had lost
  rank_came,      ///< the same, of a rank of g
  source_came,    ///< the same, of a source of g's shards
  keeper_came,    ///< any keeper
  returned,       ///< a slot has a new connection
  loading,        ///< a worker was told to load the data
  asked_back,     ///< an exclusion is over, and what the slot holds is to be asked for
  silent,         ///< a slot that was asked so has not answered
  says_prepared,  ///< a slot says PREPARED of g+1, and so on
  says_warmed,    ///< of g+1
  says_stopped,   ///< of g
  says_active,    ///< of g
  says_aborted,   ///< of any generation
  says_decided,   ///< of g
  says_progress,  ///< of g
  says_evaluated, ///< of g
  says_kept,
  says_restored, ///< of the checkpoint that is to be read
  says_recalled, ///< from the step that was asked for
  first_commit,  ///< the first step of g was committed, as far as was heard
  rank_heard,    ///< a rank of g said where it ended
  keeper_heard,  ///< a keeper said what it holds, for the first time
  newer_kept,    ///< the newest version that keepers hold whole is another
  written,       ///< a checkpoint is on disk
  not_written,   ///< it could not be written
  kept,          ///< what keepers hold, or is known of it, changes
  closing,       ///< the manager ends; said after each event
  over,          ///< done, failed or cancelled
};

/// As in "all answers are in".
std::string to_string(trigger_kind x);

/// Something that the table may have a row for.
struct trigger {
  trigger_kind kind;
  slot_id slot = {};            ///< of whom
  std::string why = {};         ///< for people
  const report* said = nullptr; ///< by that slot, if that is it
  bool known = false;           ///< of one that comes: this manager had lost it
  bool good = false;            ///< of the end: the job is done
};

using phases = enum_set<phase>;

/// "running, stopping"; "any": all but the last.
std::string names_of(const phases& all);

/// Of the table that the conductor runs.
using transition = table_row<phase, trigger_kind>;

} // namespace parcae

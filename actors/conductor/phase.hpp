#pragma once

// Where a change of generation stands, what can happen there, and what comes of it.

#include "protocols/base/enum_set.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace parcae {

enum class phase : std::uint8_t {
  recovering,   ///< the manager before is no more: its ranks are awaited, and may be training
  waiting,      ///< too few slots, or keepers read a checkpoint; nothing runs
  planning,     ///< nothing runs, a configuration was asked for
  preparing,    ///< PREPARE(g+1) sent, nothing runs
  running,      ///< g trains; a plan may have been asked for
  readying,     ///< g trains, PREPARE(g+1) sent
  stopping,     ///< STOP(g) sent, g+1 prepared, given up, or none
  clearing,     ///< ABORT(g+1) sent, which never ran; nothing runs
  aborting,     ///< ABORT(g) sent
  deciding,     ///< DECIDE(g) sent
  transferring, ///< TRANSFER(g+1) sent
  activating,   ///< ACTIVATE(g+1) sent to some
  finishing,    ///< final version reached, waiting for a keeper to hold it
  ended,
};

std::string to_string(phase x);

enum class happening : std::uint8_t {
  due,          ///< it is time to plan
  nobody,       ///< there is no slot to plan with
  chosen,       ///< the planner answered
  all_answered, ///< the last answer that the phase waits for is in
  all_stopped,  ///< all ranks of g stopped unasked
  place_lost,   ///< a rank of g was lost, is taken for lost, or failed
  part_lost,    ///< a participant of g+1, no rank of g, was lost, or is taken for lost
  lost,         ///< any slot was, and nothing else follows from it
  broken,       ///< communication failed in g
  next_broken,  ///< communication failed in g+1
  refused,      ///< a participant of g+1 cannot prepare
  late,         ///< the limit of the phase passed
  notice,       ///< a slot is under notice
  last_moment,  ///< those under notice who alone hold a stage can train no longer
  kept,         ///< keepers hold something else
  closing,      ///< the manager ends; said after each event
  over,         ///< done, failed or cancelled
};

/// As in "all answers are in".
std::string to_string(happening x);

using phases = enum_set<phase>;

/// One row of the table that the conductor runs: of those for a happening, the first for the present phase whose
/// condition holds.
struct transition {
  phases from;
  happening on;
  std::string condition;   ///< empty: always
  std::string does;        ///< before the next phase begins
  std::optional<phase> to; ///< none: the phase goes on
};

/// For people, as a table in Markdown.
std::string table_of(const std::vector<transition>& rows);

} // namespace parcae

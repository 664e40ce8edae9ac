#pragma once

// Where a change of generation stands, and which phase may follow which.

#include <cstdint>
#include <string>

namespace parcae {

enum class phase : std::uint8_t {
  waiting,      ///< too few slots; nothing runs
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

/// Whether the transition table (in phase.cpp) has this transition.
bool allowed(phase from, phase to);

} // namespace parcae

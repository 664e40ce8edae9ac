#pragma once

// When versions go to the keepers, and who sends which layers: what the ranks of a generation come to, each by itself
// (HOW_IT_WORKS.md, "Keepers"). Pure.

#include "protocols/choreography/choreography.hpp"
#include "protocols/values/job_specification.hpp"

#include <cstdint>

namespace parcae {

/// Where snapshots come as often as links allow: of a processor's time, for copying them. What follows takes over
/// twenty times as much: checksums, encryption and the kernel's part, here and at a keeper that may be on a machine
/// that trains.
inline constexpr double copying_share = 0.0005;

/// What a rank asks for with the exchange of a step. Of several ranks: what any of them does.
struct wishes {
  bool stop = false;
  bool snapshot = false; ///< the version goes to the keepers whatever is on its way to them: nobody trains after it
  bool due = false;      ///< a snapshot was put off, or there are keepers that have none yet
  bool busy = false;     ///< this rank's slice of an earlier snapshot is still on its way
  bool rests = false;    ///< it has copied not long ago; of snapshots that come as often as links allow it wants none

  wishes& operator|=(const wishes& x);
};

/// Whether the version that step `step` makes goes to the keepers, by what all ranks ask for.
bool goes_to_keepers(const wishes& of_all, std::uint64_t step, const job_specification& job);

/// Whether that version's turn had come. If it did not go, the next commit that may does it, but for jobs whose every
/// version is due.
bool is_put_off(std::uint64_t step, const job_specification& job);

/// Whether a rank sends this layer of its stage to a keeper: as a part of its replica's slice, or of the `whole` stage.
bool sends_to(const keeper_share& to, const placement& grid, std::uint32_t rank, std::uint32_t layer, bool whole);

/// Whether PROTECT says again what it said before, so that streams go on, and what is on its way in them.
bool is_repeated(const protect& before, const protect& now);

} // namespace parcae

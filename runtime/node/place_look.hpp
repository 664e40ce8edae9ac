#pragma once

// Whether a job would find on this node what it reads or writes, before it is submitted.

#include "protocols/choreography/messages.hpp"

#include <filesystem>
#include <vector>

namespace parcae {

/// Waits for disk and network, never without a limit for the latter: not on an actor's thread. `as`: workers read,
/// keepers write. `allowed`: what jobs may use here (--data); empty: anything. Nothing is written, nothing is read but
/// the first byte of a file and the list of a store.
place_answer look_at_places(const place_question& x, role as, const std::vector<std::filesystem::path>& allowed);

} // namespace parcae

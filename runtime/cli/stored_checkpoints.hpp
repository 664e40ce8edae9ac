#pragma once

// What checkpoints there are, and which of them are needed; for the sources of this folder.

#include "gpu/checkpoint/checkpoint.hpp"
#include "runtime/process/client.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace parcae {

/// A checkpoint that was looked at.
struct stored {
  store_ptr at;
  std::string name;    ///< "gpt-1f/300@4"
  std::string place;   ///< where it is
  std::string problem; ///< why it cannot be used
  std::uint64_t steps = 0, of = 0;
  std::string layers; ///< "all", "0-3"
  std::uint64_t bytes = 0;
  std::chrono::system_clock::time_point written{};
};

/// The last two names of a path or a URL.
std::string name_of(const std::filesystem::path& place);

/// Where keepers write: the usual folder, and the places that the manager knows.
std::set<std::string> known_places(const status_reply* known);

/// By job, the newest first. Throws store_error.
std::vector<stored> stored_below(const store_ptr& place);

/// Those with these names, of a checkpoint or of all of a job; with `keep` all of each job but its newest `keep` usable
/// ones (0: none). Of a job that has not ended, or was started from it, none. Throws checkpoint_error if a name
/// is of none, or of one that such a job needs.
std::vector<stored> to_be_removed(const std::vector<stored>& all, const std::vector<std::string>& names,
                                  std::size_t keep, const status_reply& known);

/// With folders that have nothing in them then. Throws store_error.
void remove_stored(const stored& x);

} // namespace parcae

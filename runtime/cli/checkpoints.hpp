#pragma once

// Checkpoints as people name them.

#include "gpu/checkpoint/checkpoint.hpp"
#include "protocols/base/described.hpp"
#include "runtime/cli/commands.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace parcae {

/// What `parcae checkpoints` lists.
struct listed_checkpoint {
  std::string name;         ///< "gpt-1f/300@4"
  std::string place;        ///< folder or URL
  std::string problem;      ///< why it cannot be used from here; empty: it can
  std::uint64_t steps = 0;  ///< its version
  std::uint64_t of = 0;     ///< that its job was to do; 0: not known
  std::string layers;       ///< "all layers", "layers 0-3"
  std::uint64_t bytes = 0;  ///< 0: not seen from here
  std::int64_t wall_us = 0; ///< when it was written, since 1970; 0: not known
};
BOOST_DESCRIBE_STRUCT(listed_checkpoint, (), (name, place, problem, steps, of, layers, bytes, wall_us))

struct checkpoint_listing {
  std::vector<listed_checkpoint> checkpoints;
  std::vector<std::string> places;   ///< that were looked at
  std::vector<std::string> problems; ///< why others were not
};

/// At a place, or where keepers write as far as this machine and the manager, if there is one, know. Throws
/// store_error: that place cannot be looked at.
checkpoint_listing list_checkpoints(const manager_option& manager, const std::string& place = {});

/// `parcae checkpoints --json`.
std::string json_of(const checkpoint_listing& x);

/// `parcae export JOB --output FILE`: a version that the keepers hold, which may take minutes; without `asks` the
/// newest that is on disk. Throws client_error, checkpoint_error, store_error, std::system_error.
void export_newest(const manager_option& manager, std::uint64_t job, const std::filesystem::path& output, bool asks);

/// A checkpoint by its URL or folder, else by a name that `parcae checkpoints` lists, of a job (its newest complete
/// one) or of one checkpoint, at `where` if that names a place, or where the manager knows keepers to write, if there
/// is one. Throws checkpoint_error or store_error.
store_ptr find_by_name(const std::string& name, const manager_option& manager, const checkpoint_specification& where);

/// The job that runs and writes checkpoints beside this one, as far as the manager, if there is one, says so.
std::optional<std::uint64_t> writer_of(const std::string& checkpoint, const manager_option& manager);

} // namespace parcae

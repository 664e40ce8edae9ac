#pragma once

// The job that is trained again and again, and what it must come to.

#include "protocols/values/job_specification.hpp"

#include <cstdint>
#include <filesystem>
#include <random>
#include <string>

namespace parcae {

struct options {
  double minutes = 20;
  std::uint64_t seed = std::random_device()();
  std::uint64_t steps = 4000;
  int nodes = 6;
  bool disturb_manager = true;
  bool serve = false;         ///< a model that answers clients, instead of jobs that train
  bool feed = false;          ///< a larger model, whose layers go ahead of planned changes
  std::string device = "cpu"; ///< of all workers, as parcae-node's --device; of a GPU each has one slot
};

job_specification chaos_job(const options& x);

/// The same with drawn bounds of depth, copies and policy: none of it changes what it comes to.
job_specification drawn_job(const options& x, std::mt19937_64& random);

/// Of a slow link, Mbit/s: it carries the state of that job in some seconds. On one that takes minutes the word of who
/// is behind it is dropped like all else.
constexpr int slow_mbit(const options& x) {
  return x.feed ? 25 : 1;
}

/// The digest of its parameters after a run that nothing happens to; empty if that fails. Throws cluster_error.
std::string undisturbed(const options& x, const std::filesystem::path& logs);

} // namespace parcae

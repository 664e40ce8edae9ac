#pragma once

// Whether a job could run on the instances that are there. Pure.

#include "protocols/values/costs.hpp"
#include "protocols/values/job_specification.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

/// What the cluster has for a job.
struct fleet_offer {
  struct worker {
    std::string processor; ///< as in HELLO
    std::uint32_t slots = 1;
    slot_memory memory;
  };

  std::vector<worker> workers; ///< alive and not under notice, in the order of their joining
  std::uint32_t keepers = 0;
};

/// Whether a worker with such a processor, as in HELLO, has what the job's layers are made of: all, unless they are of
/// a plug-in.
bool has_layers_of(const job_specification& job, std::string_view processor);

/// Whether the job may use such a worker: if it is to be reproducible, those that compute the same bits as the one it
/// began on. `began_on`: that one's processor; empty: it has not begun.
bool may_use(const job_specification& job, std::string_view began_on, std::string_view processor);

/// Why the job cannot run on that, in one line that says what it waits for; empty: it can.
std::string obstacle_to(const job_specification& job, const fleet_offer& offer);

} // namespace parcae

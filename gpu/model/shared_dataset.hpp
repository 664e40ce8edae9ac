#pragma once

// The data of a job as one process holds it. Torch-free.

#include "gpu/model/dataset.hpp"

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <vector>

namespace parcae {

/// The data is missing, unreadable, or not what the job started with: one line with path and reason.
struct data_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Loaded once per process: the devices of an instance, and the generations of a job, share it while one of them holds
/// it. `folders` as in load_dataset. Any thread; blocks while the data is being loaded. Throws data_error,
/// std::bad_alloc.
std::shared_ptr<const dataset> shared_dataset(const job_specification& job,
                                              const std::vector<std::filesystem::path>& folders);

} // namespace parcae

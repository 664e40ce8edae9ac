#pragma once

// The data of a job as one process holds it. Torch-free.

#include "gpu/data/dataset.hpp"

#include <filesystem>
#include <memory>
#include <vector>

namespace parcae {

/// Loaded once per process: the devices of an instance, and the generations of a job, share it while one of them holds
/// it; one that is spoiled is opened anew. `folders` as in load_dataset. Any thread; blocks while the data is being
/// loaded. Throws data_error, std::bad_alloc.
std::shared_ptr<const dataset> shared_dataset(const job_specification& job,
                                              const std::vector<std::filesystem::path>& folders);

} // namespace parcae

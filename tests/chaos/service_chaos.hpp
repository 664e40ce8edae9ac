#pragma once

#include "tests/chaos/chaos_job.hpp"

#include <filesystem>

namespace parcae {

/// Serves a model while harm is done, and says on standard output what is done and what comes of it. Whether all went
/// well: each answer that clients got is the one of before the harm, and none was lost.
bool serves_through_faults(const options& x, const std::filesystem::path& logs);

} // namespace parcae

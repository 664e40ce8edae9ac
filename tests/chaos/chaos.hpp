#pragma once

#include "tests/chaos/chaos_job.hpp"

#include <filesystem>
#include <string>

namespace parcae {

/// Trains job after job while harm is done, and says on standard output what is done and what comes of it. Whether all
/// went well: `expected` is the digest of each job's parameters.
bool trains_through_faults(const options& x, const std::filesystem::path& logs, const std::string& expected);

} // namespace parcae

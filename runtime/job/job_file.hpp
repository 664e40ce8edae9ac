#pragma once

// Job files: what a user writes (TOML), checked key by key.

#include "protocols/values/job_keys.hpp"
#include "protocols/values/job_specification.hpp"

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

/// A job file that cannot be used. what() is one line: file, line and column (where there is one), the key, and what
/// would be right.
class job_file_error : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// Largest job file that is read.
inline constexpr std::size_t max_job_file_bytes = 1 << 20;

/// Changes to what a file says, "section.key=value": the value is TOML, or a word without quotes. Errors name them.
using job_overrides = std::vector<std::string>;

/// Reads and checks a job file. Throws job_file_error, also if the file cannot be read.
job_specification parse_job_file(const std::filesystem::path& path, const job_overrides& overrides = {});

/// The same for text at hand; `name` stands for the file in errors. Every key that is left out has the default of
/// job_specification, except: job.steps (or job.samples, rounded up to whole steps) and data.path must be given,
/// job.name defaults to the file's name without extension, and parallel.virtual_replicas to the largest power of two up
/// to 8 that divides the number of micro-batches.
job_specification parse_job(std::string_view text, std::string_view name, const job_overrides& overrides = {});

/// A job that is not from a file, changed. Throws job_file_error.
job_specification with_overrides(const job_specification& job, const job_overrides& overrides);

/// Whether the file (its path may be empty) or the changes have the key, "job.steps". Throws job_file_error.
bool is_given(std::string_view key, const std::filesystem::path& file, const job_overrides& overrides);

/// Where the schedule begins of a job that goes on after `steps` steps: another schedule there, the same where it did.
std::uint64_t schedule_start(const optimizer_specification& before, const optimizer_specification& now,
                             std::uint64_t steps);

/// The keys of that kind in which the jobs differ: "batch.global (32, was 16)".
std::vector<std::string> changed_keys(const job_specification& from, const job_specification& to, on_resume of);

} // namespace parcae

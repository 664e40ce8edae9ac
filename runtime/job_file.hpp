#pragma once

// Job files: what a user writes (TOML), checked key by key.

#include "protocols/job_specification.hpp"

#include <filesystem>
#include <stdexcept>
#include <string_view>

namespace parcae {

/// A job file that cannot be used. what() is one line: file, line and column (where there is one), the key, and what
/// would be right.
class job_file_error : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// Largest job file that is read.
inline constexpr std::size_t max_job_file_bytes = 1 << 20;

/// Reads and checks a job file. Throws job_file_error, also if the file cannot be read.
job_specification parse_job_file(const std::filesystem::path& path);

/// The same for text at hand; `name` stands for the file in errors. Every key that is left out has the default of
/// job_specification, except: job.steps (or job.samples, rounded up to whole steps) and data.path must be given,
/// job.name defaults to the file's name without extension, and parallel.virtual_replicas to the largest power of two up
/// to 8 that divides the number of micro-batches.
job_specification parse_job(std::string_view text, std::string_view name);

} // namespace parcae

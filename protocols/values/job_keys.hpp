#pragma once

// All keys of a job file: one table, from which files are read and checked and the reference is printed.

#include "protocols/values/job_specification.hpp"

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace parcae {

/// How often something is done: by steps, or by time, or neither.
struct steps_or_time {
  std::uint64_t steps = 0;
  std::chrono::milliseconds time{0};
};

/// As "1GiB" in a job file.
struct memory_size {
  std::uint64_t bytes = 0;
};

/// What a job file says, before defaults that depend on other keys are filled in.
struct job_draft {
  job_specification job;
  std::uint64_t samples = 0; ///< alternative to job.steps
  double epochs = 0;         ///< another one
  std::chrono::milliseconds planning_interval{60'000};
  std::chrono::milliseconds deadline{0};
  steps_or_time checkpoint_every{0, std::chrono::minutes(30)};
  memory_size cache{serving_specification{}.cache_bytes};
  std::chrono::milliseconds wait{serving_specification{}.wait_ms};
  data_source source{}; ///< the one of [[data.source]] that is being read
};

/// Where a value goes; its type says what is accepted.
using job_field = std::variant<std::string*, bool*, double*, std::vector<double>*, std::uint32_t*, std::uint64_t*,
                               std::chrono::milliseconds*, steps_or_time*, memory_size*, std::vector<std::uint32_t>*>;

/// Whether a job that goes on from a checkpoint may have another value than the checkpoint's.
enum class on_resume : std::uint8_t {
  free,  ///< yes
  fixed, ///< only if that is allowed by name: it changes what is trained, or its bits
  shape, ///< no: the checkpoint's tensors would not fit
};

/// Both ends are allowed.
struct whole_range {
  std::uint64_t least;
  std::uint64_t most;
};

/// Finite numbers.
struct real_range {
  double least;
  double below;
};

/// In bytes, so of characters beyond ASCII fewer fit; none of them commands a terminal.
struct text_length {
  std::size_t least;
  std::size_t most;
};

struct one_of {
  std::string_view names; ///< "adamw, sgd"
};

/// What a value may be. Words are only shown, and checked by a function of problem_of: they are for what depends on
/// other keys.
using job_range = std::variant<std::string_view, whole_range, real_range, text_length, one_of>;

/// The section of which a job may have several: [[data.source]].
inline constexpr std::string_view data_sources = "data.source";

/// Stands for all kinds of models but exported ones.
inline constexpr std::string_view built_in = "built-in";

struct job_key {
  std::string_view section;
  std::string_view name;
  job_field (*target)(job_draft&);
  job_range range;
  std::string_view meaning; ///< one line
  std::string_view kinds{}; ///< values of the section's key `kind` that it is for, or built_in; empty: all
  std::string_view usual{}; ///< its default in words; empty: the value of a new job_draft
  on_resume resume = on_resume::free;
};

/// In the order of the reference.
std::span<const job_key> job_keys();

/// "model.width".
std::string path_of(const job_key& x);

/// The value of job.kind that it is for; empty: any. A job of another kind has no use for it.
std::string_view job_kind_of(const job_key& x);

std::string type_of(const job_key& x);  ///< in words: "whole number"
std::string range_of(const job_key& x); ///< likewise: "1 to 100"

/// A value as a job file has it: 16, 0.001, "gpt", true, "60s".
std::string value_of(const job_key& x, job_draft job);

/// The reference: all keys with type, default, range and meaning, and the formats of data. Lines of at most 160
/// characters.
std::string job_reference();

} // namespace parcae

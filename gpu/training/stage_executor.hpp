#pragma once

#include "gpu/executor/executor.hpp"

#include <chrono>
#include <cstdint>
#include <memory>

namespace parcae {

class data_port;

/// How often a rank reports its progress at most, after its first step: all ranks together some 200 times a second at
/// most, and each often enough for the limits on progress.
std::chrono::milliseconds progress_interval(std::uint32_t ranks);

/// An executor that trains on the CPU with LibTorch. `port` must outlive it.
std::unique_ptr<executor> make_stage_executor(executor_options options, data_port& port);

} // namespace parcae

#pragma once

#include "gpu/executor/executor.hpp"

#include <memory>

namespace parcae {

class data_port;

/// An executor that trains a stage with LibTorch, on options.on. `port` must outlive it.
std::unique_ptr<executor> make_stage_executor(executor_options options, data_port& port);

} // namespace parcae

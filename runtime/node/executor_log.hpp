#pragma once

// What a node's executors are told and say, in its log.

#include "gpu/executor/executor.hpp"

#include <functional>
#include <memory>

namespace parcae {

/// Makes an executor that calls the function given.
using make_executor = std::function<std::unique_ptr<executor>(executor_options)>;

/// An executor whose commands and reports are logged, one line each: all that happen once per change or less often. Log
/// lines of the process are about its job from the first PREPARE on.
std::unique_ptr<executor> make_logged_executor(executor_options options, const make_executor& make);

} // namespace parcae

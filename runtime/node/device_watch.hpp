#pragma once

// A GPU's errors stay until the process ends, and a call to it may never return. A lost instance is what can be
// repaired.

#include "runtime/node/executor_log.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace parcae {

/// An executor that computes on `options.on`, and says once, on any thread and in one line, when nothing can be done
/// there any more: a computation failed and the device refuses all work, or an ABORT was not answered within `limit`.
/// `lost` should end the process. While it computes on the processor, null, neither can happen.
std::unique_ptr<executor> make_watched_executor(executor_options options, const make_executor& make,
                                                std::function<void(const std::string&)> lost,
                                                std::chrono::milliseconds limit = std::chrono::seconds(2));

} // namespace parcae

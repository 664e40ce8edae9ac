#pragma once

// A GPU's errors stay until the process ends, and a call to it may never return. A lost instance is what can be
// repaired.

#include "runtime/node/executor_log.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace parcae {

/// After an ABORT of what a device does.
struct device_limits {
  std::chrono::milliseconds answer{2'000}; ///< to it
  std::chrono::milliseconds work{30'000};  ///< from the answer until what the device was given before is done
  /// Instead of `answer` before the generation's first commit: what is called for the first time loads its library.
  std::chrono::milliseconds first_answer{10'000};
};

/// An executor that computes on `options.on`, and says once, on any thread and in one line, when nothing can be done
/// there any more: something failed and the device refuses all work, or it exceeds a limit. `lost` should end the
/// process. While it computes on the processor, null, nothing of it can happen.
std::unique_ptr<executor> make_watched_executor(executor_options options, const make_executor& make,
                                                std::function<void(const std::string&)> lost,
                                                const device_limits& limits = {});

} // namespace parcae

#pragma once

// Injected failures, for tests: what a spot instance does to a process at a chosen moment inside the executor.

#include "gpu/executor/executor.hpp"

#include <atomic>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

namespace parcae {

enum class process_fault : std::uint8_t {
  kill,       ///< SIGKILL to the own process
  stop,       ///< SIGSTOP to the own process; somebody else continues it
  throw_error ///< the computation fails
};

struct fault {
  std::string phase;                  ///< of fault_point
  std::optional<std::uint64_t> step;  ///< any, if left out
  std::optional<std::uint32_t> index; ///< any, if left out
  process_fault action = process_fault::kill;
};

/// "PHASE@STEP[:INDEX]=kill|stop|throw"; STEP may be "*". Throws std::invalid_argument with one line.
fault parse_fault(std::string_view text);

bool matches(const fault& x, const fault_point& at);

/// Carries out each fault at the first matching moment, once. May be called from any thread.
class fault_injector {
public:
  explicit fault_injector(const std::vector<fault>& faults);
  void operator()(const fault_point& at);

private:
  struct armed_fault {
    fault what;
    std::atomic<bool> done{false};
  };

  std::deque<armed_fault> faults_;
};

} // namespace parcae

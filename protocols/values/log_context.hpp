#pragma once

// What the log lines of this process are about. One job runs at a time, in the manager as in a node; lines of the
// moment between two jobs may name either. Any thread.

#include "protocols/values/state.hpp"

#include <atomic>
#include <cstdint>

namespace parcae {

struct log_context {
  std::atomic<std::uint64_t> job = 0;        ///< 0: none yet; then the others are left out
  std::atomic<std::uint64_t> generation = 0; ///< newest that ran
  std::atomic<std::uint64_t> steps = 0;      ///< committed
};

inline log_context& current_log_context() {
  static log_context context;
  return context;
}

inline void set_log_context(job_id job, const version& at) {
  auto& context = current_log_context();
  context.job = job.value;
  context.generation = at.by.value;
  context.steps = at.steps;
}

} // namespace parcae

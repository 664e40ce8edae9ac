#pragma once

#include <spdlog/sinks/base_sink.h>

#include <memory>
#include <mutex>

namespace parcae {

/// Writes the log to stderr by a thread of its own. A line is written when the call that logs it returns, so a process
/// that is killed next has said it; but if nobody reads for 50 ms (a terminal that is stopped, a pager, a disk that
/// hangs), nothing is waited for until all was read: an actor that waits answers nobody. Meanwhile the newest lines are
/// kept, 1 MiB of them, and how many are not is said. `critical` is waited for, a second at most: the process ends
/// next. So is the rest at the sink's end.
class patient_stderr final : public spdlog::sinks::base_sink<std::mutex> {
public:
  patient_stderr();
  ~patient_stderr() override;

private:
  void sink_it_(const spdlog::details::log_msg& x) override;
  void flush_() override; ///< waits for what was logged, a second at most

  struct writer;
  std::shared_ptr<writer> writer_; ///< also the thread's, which may never return from a write
};

} // namespace parcae

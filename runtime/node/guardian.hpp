#pragma once

// The end of a killed process, told at once.

#include <sys/types.h>

#include <functional>

namespace parcae {

/// Ends this process's TCP connections within a millisecond of its death, by whatever signal. Without it they end only
/// when the kernel has freed the dying process's memory: 17 ms for 300 MB on an idle machine, 50 ms and more on a busy
/// one, in which its peers believe it alive.
///
/// A small child process shares the table of file descriptors (clone(2), CLONE_FILES) and waits for a robust mutex that
/// the calling thread holds. The kernel passes robust mutexes on before it frees memory (futex(2), "Robust futexes");
/// the child then shuts down every internet socket of the table that was not there when the guardian was made, and
/// exits.
///
/// At the end, whichever way it came, the child calls `last_act`, which may exec. It has the memory that this process
/// had when the guardian was made, but for what is shared.
///
/// Make it on the main thread, before any other thread, before memory is allocated and GPUs are opened; destroy it on
/// the same thread. Throws std::system_error.
class guardian {
public:
  explicit guardian(const std::function<void()>& last_act = {});
  ~guardian(); ///< waits for the last act
  guardian(const guardian&) = delete;
  guardian& operator=(const guardian&) = delete;

private:
  struct shared;
  shared* shared_; ///< mapped, also by the child
  pid_t child_;
};

} // namespace parcae

#pragma once

// Waits of main programs: for signals or for an actor that says the process should end.

#include <functional>
#include <memory>

namespace parcae {

/// Lets the main thread wait. Made before any other thread, so that all of them leave SIGTERM and SIGINT to it. From
/// then on the process ignores SIGPIPE, SIGHUP, SIGUSR1, SIGUSR2 and SIGALRM.
class termination {
public:
  termination();
  ~termination();

  /// Returns when stop() was called. `on_signal` is called on this thread for each SIGTERM or SIGINT, `on_hangup` for
  /// each SIGHUP, which is ignored without it. May be called again.
  void wait(std::function<void()> on_signal, std::function<void()> on_hangup = {});

  /// May be called from any thread, also before wait.
  void stop();

private:
  struct implementation;
  std::unique_ptr<implementation> implementation_;
};

/// Ends the process by force after some seconds unless it is gone by then: shutting down waits for actors and threads,
/// and no wait is unbounded.
void limit_shutdown(unsigned seconds);

} // namespace parcae

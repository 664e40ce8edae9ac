#pragma once

// A keeper's connections in one generation.

#include "gpu/executor/executor.hpp"
#include "gpu/keeper/keeper_machine.hpp"
#include "protocols/base/locks.hpp"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <variant>

namespace parcae {

class communicator;
class data_port;

/// What becomes of it.
struct session_connected {
  generation of;
};
struct session_sent {
  generation of;
};
using session_news = std::variant<session_connected, session_sent, failed, killed>;

/// Connects, and sends what it is given. A thread of its own, so that the keeper goes on taking snapshots. Made, used
/// and destroyed by the keeper's thread.
class sending_session {
public:
  /// `tell` is called on the session's thread. `options` and `port` must outlive it.
  sending_session(const executor_options& options, data_port& port, prepare plan,
                  std::function<void(session_news)> tell);

  /// Ends all communication; nothing is told afterwards.
  ~sending_session();

  /// Once, when it is connected.
  void send(keeper_effects::send x);

private:
  void run();
  std::optional<keeper_effects::send> wait_for_work(); ///< none: the session ends
  void send_all(communicator& comm, const keeper_effects::send& x);
  void fail(failure kind, std::uint32_t peer, const std::string& what);
  void tell(session_news x);

  const executor_options& options_;
  data_port& port_;
  const prepare plan_;
  const std::function<void(session_news)> tell_;
  std::atomic<bool> cancelled_ = false; ///< set under the mutex, read by connect()
  mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<communicator> comm_ GUARDED_BY(mutex_); ///< set once, by the session's thread
  std::optional<keeper_effects::send> work_ GUARDED_BY(mutex_);
  std::thread thread_; ///< last: uses all of the above
};

} // namespace parcae

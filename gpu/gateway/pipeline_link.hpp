#pragma once

// A gateway's two connections with a pipeline: rows go out by the one, tokens come by the other.

#include "gpu/dataplane/data_port.hpp"
#include "gpu/dataplane/pass_frames.hpp"
#include "protocols/base/locks.hpp"

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <thread>

namespace parcae {

/// A thread of its own dials, and hears. Other methods than the destructor are for any thread, and do not block.
class pipeline_link {
public:
  /// Called on the link's thread.
  struct listener {
    std::function<void(pipeline_link&)> on_connected;
    std::function<void(pipeline_link&, const pass_answer&)> on_answer;
    /// A connection ended, or what came is not understood.
    std::function<void(pipeline_link&)> on_end;
  };

  /// Its ends: where rows go, and where tokens come from. The port outlives it.
  pipeline_link(data_port& port, pass_call first, pass_call last, const pass_bounds& bounds, listener tells);
  /// Joins the thread, which may be calling.
  ~pipeline_link();

  /// Anew, until it stands: tried again and again.
  void connect();
  void cut();
  /// Nothing if it is not connected.
  void send(const pass_frame& x);

private:
  struct departure {
    std::array<std::byte, pass_frame_bytes> bytes;
    ticket sent;
  };
  /// One time that it was connected.
  struct connection {
    std::unique_ptr<communicator> rows, tokens;
    std::uint64_t went = 0;
    std::array<departure, 8> departures; ///< as many as there are on their way at most
  };

  void run();
  bool wait_for_wish();
  std::shared_ptr<connection> dial();
  void hear(connection& on);

  data_port& port_;
  const pass_call first_, last_;
  const pass_bounds bounds_;
  const listener tells_;

  std::atomic<bool> cancelled_ = false; ///< what is being dialled; set under the mutex
  mutex mutex_;
  std::condition_variable changed_;
  bool wanted_ GUARDED_BY(mutex_) = false;
  bool ended_ GUARDED_BY(mutex_) = false;
  std::shared_ptr<connection> now_ GUARDED_BY(mutex_);
  std::thread thread_; ///< last: uses all of the above
};

} // namespace parcae

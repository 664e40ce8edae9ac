#pragma once

// How a gateway's connections with the ends of a pipeline come about; used by the data port only. Everything here runs
// on its I/O thread, if nothing else is said.

#include "gpu/dataplane/data_port.hpp"
#include "gpu/dataplane/frames.hpp"
#include "gpu/dataplane/port_side.hpp"
#include "protocols/base/locks.hpp"

#include <boost/asio/awaitable.hpp>

#include <array>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace parcae {

/// Which gate a greeting is for.
struct pass_door_key {
  job_id job;
  generation of;
  std::uint32_t rank = 0;

  friend auto operator<=>(const pass_door_key&, const pass_door_key&) = default;
};

/// One accept_passes: who may come in, and who did last.
struct pass_door {
  data_token token;
  parcae::mutex mutex;
  bool open GUARDED_BY(mutex) = true;
  std::array<std::shared_ptr<communicator>, 2> newest GUARDED_BY(mutex); ///< by pass_end

  /// Any thread.
  void close();
};

/// Of a port.
class pass_doors {
public:
  /// Runs what it is given on the I/O thread, and returns then.
  using runner = std::function<void(const std::function<void()>&)>;

  explicit pass_doors(port_side& side) : side_(side) {}

  /// Any thread, as what it returns, which is destroyed before this is.
  std::unique_ptr<pass_gate> open(const pass_door_key& key, const data_token& token, const runner& on_io);

  /// A guest who has greeted. Returns why it may not come in.
  refusal admit(socket_ptr guest, const greeting& hello);

private:
  class gate;

  port_side& side_;
  std::map<pass_door_key, std::shared_ptr<pass_door>> all_;
};

/// One connect_passes.
struct pass_dial {
  explicit pass_dial(pass_call x) : what(std::move(x)) {}

  const pass_call what;
  socket_ptr socket{};
  bool ended = false; ///< nobody waits for it any more

  parcae::mutex mutex{};
  std::condition_variable changed{};
  std::string problem GUARDED_BY(mutex) = "did not connect";
  bool hopeless GUARDED_BY(mutex) = false;
  std::unique_ptr<communicator> result GUARDED_BY(mutex);

  void end();
  /// Any thread.
  std::string why_not();
};

/// Until it is connected, or nobody waits for it.
boost::asio::awaitable<void> dial_for_passes(port_side& side, std::shared_ptr<pass_dial> x);

/// Any thread but the I/O thread. Null: it did not come about.
std::unique_ptr<communicator> wait_for(pass_dial& x, std::chrono::milliseconds limit,
                                       const std::atomic<bool>& cancelled);

} // namespace parcae

#pragma once

// Copies from a device's memory to ordinary memory of the host, by way of pinned memory, as devices copy to no other.

#include "gpu/device/pinned_ring.hpp"
#include "protocols/base/mailbox.hpp"

#include <chrono>
#include <cstddef>
#include <deque>
#include <future>
#include <memory>
#include <span>
#include <thread>
#include <variant>

namespace parcae {

/// Copies in pieces, one after the other, through a ring of pinned memory that is made once, by a stream and a thread
/// of its own: computing threads wait for nothing. Any thread may call. Destruction drops what is not yet under way.
class host_copies {
public:
  struct sizes {
    std::size_t ring = std::size_t{256} << 20;
    std::size_t piece = std::size_t{4} << 20; ///< at most the ring
  };

  /// The device outlives this object. Throws device_error.
  explicit host_copies(device& on) : host_copies(on, sizes()) {}
  host_copies(device& on, sizes x);
  ~host_copies();
  host_copies(const host_copies&) = delete;

  /// Begins once `after` is done (null: at once). The caller keeps both ends as they are until the future is ready.
  /// The future throws device_error, or std::future_error (broken promise) if this object went before.
  std::future<void> to_host(std::span<std::byte> to, const std::byte* from, std::shared_ptr<event> after);

private:
  struct request {
    std::span<std::byte> to;
    const std::byte* from;
    std::shared_ptr<event> after;
    std::promise<void> done;
  };

  /// On its way through one part of the ring.
  struct piece {
    std::shared_ptr<event> copied;
    const std::byte* pinned;
    std::span<std::byte> to;
    std::shared_ptr<request> last_of; ///< null: more pieces of its request follow
  };

  void run();
  void serve(const std::shared_ptr<request>& x);
  void finish_oldest();

  const sizes sizes_;
  pinned_ring ring_; ///< the thread's, as all but the queue
  const std::unique_ptr<stream> stream_;
  std::deque<piece> under_way_;
  mailbox<std::shared_ptr<request>> queue_;
  std::thread thread_;
};

} // namespace parcae

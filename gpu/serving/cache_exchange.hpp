#pragma once

// Caches on their way at a change: what others of a generation go on with leaves this slot's store, what it goes on
// with comes.

#include "gpu/dataplane/pass_frames.hpp"
#include "gpu/serving/cache_store.hpp"
#include "protocols/choreography/choreography.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace parcae {

/// Of one ACTIVATE, as its plan says. Blocks go from pool to pool: nothing is copied in between. Nothing has to arrive:
/// what did is held, of the rest the gateway hears that it is not. The thread that computes; but abort().
class cache_exchange {
public:
  /// Called before each request's caches are sent: tests may let it throw.
  using hook = std::function<void(std::uint32_t)>;

  /// `over`: connections of caches. `what` outlives this.
  cache_exchange(const prepare& what, std::uint32_t self, std::unique_ptr<communicator> over, const tensor_device& on,
                 hook before_sending);
  /// Ends what is under way. What was to be sent is free.
  ~cache_exchange();

  /// What others go on with leaves the store, and is sent. Without a store it says that there is nothing.
  void begin(std::shared_ptr<cache_store> caches);
  /// After begin(), when the store computes the layers of the generation: takes what comes, as far as there is room,
  /// and returns when that is here and all is sent; or `limit` passed, or a connection broke.
  void finish(std::chrono::milliseconds limit);

  /// Any thread: ends all waits.
  void abort() noexcept;

  /// Positions times layers that came and are held.
  std::uint64_t received() const { return received_; }

private:
  using frame_bytes = std::array<std::byte, cache_frame_bytes>;
  using time_point = std::chrono::steady_clock::time_point;

  /// A request's caches in a layer, on their way here.
  struct arrival {
    held_request of;
    std::uint32_t layer = 0;
    std::vector<ticket> blocks;
  };

  void send(std::size_t number);
  void expect(std::size_t number, time_point end);
  void expect(std::size_t number, const held_request& x, std::uint32_t layer, std::uint32_t& n);
  at::Tensor unused_of(std::uint32_t source, std::uint32_t layer);
  bool wait(const ticket& x, time_point end);
  void note(const arrival& x);

  const prepare& what_;
  const std::uint32_t self_;
  const tensor_device on_;
  const hook before_sending_;
  std::unique_ptr<communicator> over_;

  std::shared_ptr<cache_store> caches_;
  std::vector<std::unique_ptr<frame_bytes>> frames_;
  std::vector<cache_store::block_list> leaving_;
  std::vector<ticket> sent_;
  std::vector<arrival> arrivals_;
  std::map<std::uint32_t, at::Tensor> unused_; ///< by source: what has no room is received into
  std::uint64_t received_ = 0;
};

} // namespace parcae

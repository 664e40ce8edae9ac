#pragma once

// A send or a receive of the communicator over TCP.

#include "gpu/dataplane/frames.hpp"

#include <xxhash.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

namespace parcae {

class peer_connection;

inline std::string describe(const tag& x, std::uint64_t length) {
  return "kind " + std::to_string(static_cast<unsigned>(x.kind)) + " step " + std::to_string(x.step) + " index " +
         std::to_string(x.index) + " with " + std::to_string(length) + " bytes";
}

struct hash_state_deleter {
  void operator()(XXH3_state_t* x) const { XXH3_freeState(x); }
};

inline std::uint64_t seed_of(frame x) {
  x.checksum = 0;
  auto bytes = encode(x);
  return XXH3_64bits(bytes.data(), bytes.size());
}

/// One frame. Of a message of several, the last is its ticket: they are done, or fail, in their order.
struct operation : transmission {
  enum class status { pending, done, failed };

  tag what{};
  std::array<std::byte, frame_size> header;
  std::byte* payload = nullptr;
  std::size_t length = 0;                                    ///< of the payload
  std::size_t moved = 0;                                     ///< bytes of header and payload written or read so far
  std::uint64_t checksum = 0;                                ///< shards: as the sender says
  std::unique_ptr<XXH3_state_t, hash_state_deleter> hashing; ///< shards, receiving
  peer_connection* on = nullptr;                             ///< set by send and receive
  bool receives = false;
  std::shared_ptr<operation> first{};          ///< of its message; null: it is that
  std::chrono::steady_clock::time_point began; ///< receiving: its first bytes came; written before `now` changes
  std::string error;                           ///< written before `now` becomes failed
  std::atomic<status> now = status::pending;

  bool header_moved() const { return moved >= frame_size; }
  bool complete() const { return moved == frame_size + length; }
};
using operation_ptr = std::shared_ptr<operation>;

} // namespace parcae

#pragma once

// GATE: what a peer's bytes must be before CAF sees them. CAF 0.17 believes what it reads: a header of 32 bytes can
// have it allocate 4 GB, or end its process. So frames are collected here, each is checked as a whole, and only whole
// ones are passed on. A pure function of the bytes, but for the check of payloads, which the caller brings.

#include "protocols/trust/identity.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace parcae {

/// What a frame of CAF's protocol (BASP) is; the numbers are CAF's.
enum class frame_kind : std::uint8_t {
  server_handshake = 0, ///< who accepted says who it is, and what is published
  client_handshake = 1, ///< who dialled says who it is
  direct_message = 2,
  routed_message = 3, ///< by way of a third node; never let through
  monitor_message = 4,
  down_message = 5,
  heartbeat = 6,
};

/// The first 32 bytes of a frame, big-endian there.
struct frame_header {
  static constexpr std::size_t size = 32;
  static constexpr std::uint8_t named_receiver = 1;    ///< `destination` is a name in CAF's registry; never let through
  static constexpr std::uint8_t select_connection = 2; ///< of a client handshake: send to me over this connection

  frame_kind kind = frame_kind::heartbeat;
  std::uint16_t padding = 0;
  std::uint8_t flags = 0;
  std::uint32_t payload_bytes = 0;
  std::uint64_t data = 0;        ///< a message's id, or the protocol's version
  std::uint64_t source = 0;      ///< an actor's id
  std::uint64_t destination = 0; ///< likewise
};

/// `bytes` has at least frame_header::size of them.
frame_header decode_header(std::span<const char> bytes);
std::vector<char> encode_header(const frame_header& x);

/// Most bytes of a payload that is not a message's.
inline constexpr std::size_t max_small_bytes = 16 * 1024;

/// Empty if a frame may begin so, else what is wrong. `first`: nothing was let through on this connection before.
/// `max_payload_bytes`: of a message.
std::string problem_of(const frame_header& x, link_side here, bool first, std::size_t max_payload_bytes);

class frame_gate {
public:
  /// Says what is wrong with a payload of the size that its header says; empty: nothing.
  using payload_check = std::function<std::string(const frame_header&, std::span<const char> payload)>;

  frame_gate(link_side here, std::size_t max_payload_bytes) : here_(here), max_payload_bytes_(max_payload_bytes) {}

  /// Takes what came in, appends to `out` the frames that are whole, and keeps the rest: at most one frame. Returns
  /// what is wrong, or nothing; after a problem nothing more may be passed.
  std::string pass(std::span<const char> bytes, std::vector<char>& out, const payload_check& check);
  /// The same for one frame, or the begin of one: takes off `bytes` what it took.
  std::string pass_frame(std::span<const char>& bytes, std::vector<char>& out, const payload_check& check);

  /// The handshake went through.
  bool opened() const { return opened_; }

  /// Bytes kept.
  std::size_t held() const { return kept_.capacity(); }

private:
  link_side here_;
  std::size_t max_payload_bytes_;
  std::vector<char> kept_; ///< the begin of a frame
  bool opened_ = false;
};

} // namespace parcae

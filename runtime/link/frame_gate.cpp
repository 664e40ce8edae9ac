#include "runtime/link/frame_gate.hpp"

#include <boost/endian/buffers.hpp>

#include <algorithm>
#include <cstring>

namespace parcae {

namespace {

// As it lies on the wire.
struct wire_header {
  std::uint8_t kind;
  std::uint8_t padding[2];
  std::uint8_t flags;
  boost::endian::big_uint32_buf_t payload_bytes;
  boost::endian::big_uint64_buf_t data, source, destination;
};
static_assert(sizeof(wire_header) == frame_header::size);

std::string problem_of_message(const frame_header& x) {
  if (x.payload_bytes == 0 || x.destination == 0)
    return "a message without content or receiver";
  if ((x.flags & frame_header::select_connection) != 0)
    return "a message with a flag of handshakes";
  if ((x.flags & frame_header::named_receiver) != 0)
    return "a message to a name, which nobody here has for others";
  return {};
}

std::string problem_of_handshake(const frame_header& x, frame_kind expected) {
  if (x.kind != expected)
    return "a handshake in the wrong direction";
  if (x.payload_bytes == 0 || x.source != 0 || x.destination != 0)
    return "an impossible handshake";
  if (expected == frame_kind::client_handshake ? (x.flags & frame_header::named_receiver) != 0 : x.flags != 0)
    return "a handshake with a flag of messages";
  if (expected == frame_kind::server_handshake && x.data == 0)
    return "a handshake without a version";
  return {};
}

} // namespace

frame_header decode_header(std::span<const char> bytes) {
  wire_header x;
  std::memcpy(&x, bytes.data(), sizeof x);
  return {static_cast<frame_kind>(x.kind),
          static_cast<std::uint16_t>(x.padding[0] << 8 | x.padding[1]),
          x.flags,
          x.payload_bytes.value(),
          x.data.value(),
          x.source.value(),
          x.destination.value()};
}

std::vector<char> encode_header(const frame_header& x) {
  wire_header to{};
  to.kind = static_cast<std::uint8_t>(x.kind);
  to.padding[0] = static_cast<std::uint8_t>(x.padding >> 8);
  to.padding[1] = static_cast<std::uint8_t>(x.padding);
  to.flags = x.flags;
  to.payload_bytes = x.payload_bytes;
  to.data = x.data;
  to.source = x.source;
  to.destination = x.destination;
  std::vector<char> result(sizeof to);
  std::memcpy(result.data(), &to, sizeof to);
  return result;
}

std::string problem_of(const frame_header& x, link_side here, bool first, std::size_t max_payload_bytes) {
  const auto handshake = here == link_side::accepted ? frame_kind::client_handshake : frame_kind::server_handshake;
  if (x.kind > frame_kind::heartbeat || x.padding != 0 || x.flags > 3)
    return "not a frame";
  if (first && x.kind != handshake)
    return "no handshake";
  const bool shakes_hands = x.kind == frame_kind::server_handshake || x.kind == frame_kind::client_handshake;
  if (x.payload_bytes > (x.kind == frame_kind::direct_message ? max_payload_bytes : max_small_bytes))
    return "a frame of " + std::to_string(x.payload_bytes) + " bytes";
  if (shakes_hands && !first && x.kind == frame_kind::server_handshake)
    return "a second handshake";
  switch (x.kind) {
  case frame_kind::server_handshake:
  case frame_kind::client_handshake:
    return problem_of_handshake(x, handshake);
  case frame_kind::direct_message:
    return problem_of_message(x);
  case frame_kind::routed_message:
    return "a message for or from a third node";
  case frame_kind::monitor_message:
    return x.payload_bytes > 0 && x.data == 0 && x.source == 0 && x.destination != 0 && x.flags == 0
               ? ""
               : "an impossible wish to monitor";
  case frame_kind::down_message:
    return x.payload_bytes > 0 && x.data == 0 && x.source != 0 && x.destination == 0 && x.flags == 0
               ? ""
               : "an impossible end of an actor";
  case frame_kind::heartbeat:
    return x.payload_bytes == 0 && x.data == 0 && x.source == 0 && x.destination == 0 && x.flags == 0
               ? ""
               : "an impossible heartbeat";
  }
  return "not a frame";
}

std::string frame_gate::pass(std::span<const char> bytes, std::vector<char>& out, const payload_check& check) {
  while (!bytes.empty())
    if (auto problem = pass_frame(bytes, out, check); !problem.empty())
      return problem;
  return {};
}

std::string frame_gate::pass_frame(std::span<const char>& bytes, std::vector<char>& out, const payload_check& check) {
  while (!bytes.empty()) {
    // Never more than the frame that has begun, so that what is kept does not grow by what comes behind it.
    auto wanted = frame_header::size;
    if (kept_.size() >= frame_header::size)
      wanted += decode_header(kept_).payload_bytes;
    const auto taken = std::min(wanted - kept_.size(), bytes.size());
    kept_.insert(kept_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(taken));
    bytes = bytes.subspan(taken);
    if (kept_.size() < wanted)
      return {};
    const auto header = decode_header(kept_);
    if (wanted == frame_header::size) {
      if (auto problem = problem_of(header, here_, !opened_, max_payload_bytes_); !problem.empty())
        return problem;
      if (!opened_)
        kept_.reserve(wanted + header.payload_bytes); // small, and exact
      if (header.payload_bytes > 0)
        continue;
    }
    if (auto problem = check(header, std::span(kept_).subspan(frame_header::size)); !problem.empty())
      return problem;
    opened_ = true;
    out.insert(out.end(), kept_.begin(), kept_.end());
    kept_.clear();
    if (kept_.capacity() > max_small_bytes) // a large frame is rare
      kept_.shrink_to_fit();
    break;
  }
  return {};
}

} // namespace parcae

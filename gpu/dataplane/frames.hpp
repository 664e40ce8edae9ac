#pragma once

// What is written on data connections besides tensors: protocols/frame/frame.capnp as plain values. Encoded, each is
// one Cap'n Proto segment of a fixed size. Decoding touches nothing outside the bytes given and never throws.

#include "gpu/dataplane/communicator.hpp"
#include "protocols/values/secrets.hpp"
#include "protocols/values/state.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace parcae {

/// Version of everything in frame.capnp; a greeting with another one is refused.
inline constexpr std::uint16_t data_protocol_version = 9;

/// No instance's name is longer.
inline constexpr std::size_t max_name_bytes = 104;

/// What a connection is for.
enum class purpose : std::uint16_t {
  generation = 1, ///< the communicator of one generation
  snapshot,       ///< a stream of snapshots of one job
  state,          ///< shards that two participants of a generation have for each other
  passes,         ///< between a gateway and an end of a pipeline that serves a model
  caches,         ///< caches that two participants of a generation have for each other
};

struct greeting {
  purpose what = purpose::generation;
  std::uint32_t from =
      0;                ///< participant who dials; for snapshots the index of the sender's slot, for passes a pass_end
  std::uint32_t to = 0; ///< participant dialled; 0 for snapshots
  job_id job;
  generation of; ///< 0 for snapshots
  data_token token;
  incarnation life; ///< of the sender of snapshots, else 0
  std::string name; ///< of the sender of snapshots, else empty; at most max_name_bytes
  std::uint16_t protocol = data_protocol_version;
};

/// Why a greeting was not accepted.
enum class refusal : std::uint16_t {
  none = 0, ///< accepted
  protocol, ///< another protocol version; final
  token,    ///< the secret is wrong; final
  crowded,  ///< too many connections wait already; try later
  unknown,  ///< no snapshots of this job, or passes of this rank, are expected here; try later
  name,     ///< its certificate is of another than it says to be; final
};

std::string render(refusal x);

/// Before the payload of each message of a communicator.
struct frame {
  tag what;
  std::uint64_t length = 0;   ///< bytes of payload
  std::uint64_t checksum = 0; ///< of channel::shard and channel::cache, else 0
};

/// No part is larger.
inline constexpr std::uint64_t max_part_bytes = std::uint64_t{16} << 30;

/// Before the parts of each shard of a snapshot.
struct snapshot_frame {
  std::uint64_t sequence = 0;  ///< number of the snapshot on its stream
  std::uint32_t remaining = 0; ///< shards of this snapshot that follow this one
  std::uint32_t layer = 0;
  version at;
  std::vector<std::uint64_t> sizes; ///< bytes of each part
  commit_result result;
  std::uint64_t checksum = 0;
};

inline constexpr std::size_t greeting_size = 184;
inline constexpr std::size_t verdict_size = 16;
inline constexpr std::size_t frame_size = 40;
inline constexpr std::size_t snapshot_frame_size = 168;
inline constexpr std::size_t acknowledgement_size = 16;

/// Requires x.name.size() ≤ max_name_bytes.
std::array<std::byte, greeting_size> encode(const greeting& x);
std::array<std::byte, verdict_size> encode(refusal x);
std::array<std::byte, frame_size> encode(const frame& x);
/// Requires x.sizes.size() ≤ max_parts.
std::array<std::byte, snapshot_frame_size> encode(const snapshot_frame& x);
std::array<std::byte, acknowledgement_size> encode_acknowledgement(std::uint64_t sequence);

// Empty if the bytes are malformed or out of bounds.

std::optional<greeting> decode_greeting(std::span<const std::byte, greeting_size> bytes);
std::optional<refusal> decode_verdict(std::span<const std::byte, verdict_size> bytes);
std::optional<frame> decode_frame(std::span<const std::byte, frame_size> bytes);
std::optional<snapshot_frame> decode_snapshot_frame(std::span<const std::byte, snapshot_frame_size> bytes);
std::optional<std::uint64_t> decode_acknowledgement(std::span<const std::byte, acknowledgement_size> bytes);

} // namespace parcae

#pragma once

// What the messages of a feed say of themselves: a source tells a destination that follows its layers what comes next
// (state_feed, shard_follower). Pure.

#include "gpu/dataplane/communicator.hpp"
#include "protocols/model/early_stop.hpp"
#include "protocols/values/state.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace parcae {

enum class feed_kind : std::uint8_t {
  base = 1, ///< the next part of a layer's state at a version follows, from the first on
  gradient, ///< of the step that a layer's version is before follows
  buffers,  ///< of a layer at a version, which replace what is there, follow
  commit,   ///< that leads to a version: what gradients are applied with. It may come before these
  cold,     ///< the layer is not followed any more, nor again
  end,      ///< the feed is over: what is followed is at this version
};

/// One of these comes before each message of a feed, and alone where nothing follows.
struct feed_note {
  feed_kind kind = feed_kind::end;
  std::uint32_t layer = 0; ///< of a commit or an end 0
  version at{};            ///< of `cold` none
  // Of a commit, else as here.
  double rate = 0;                              ///< the optimizer's learning rate
  double clip = 1;                              ///< what gradients are multiplied with
  bool skipped = false;                         ///< the step changes nothing but the version
  std::optional<validation_course> course = {}; ///< of the layer that has one
};

inline constexpr std::size_t feed_note_bytes = 64;
using encoded_feed_note = std::array<std::byte, feed_note_bytes>;

/// Bits of all numbers are kept.
encoded_feed_note encode(const feed_note& x);
/// Of a model with so many layers. Throws communication_error.
feed_note decode_feed_note(std::span<const std::byte, feed_note_bytes> x, std::uint32_t layers);

/// Of the n-th note on a connection.
inline tag feed_note_tag(std::uint64_t n) {
  return {channel::shard, n, UINT32_MAX};
}

/// Parts of a layer's state are fewer: base's have shard_tag's numbers.
inline constexpr std::size_t gradient_part = max_parts - 2, buffers_part = max_parts - 1;

} // namespace parcae

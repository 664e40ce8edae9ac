#pragma once

// What goes round a pipeline that serves a model: from the gateway to stage 0, from stage to stage, and from the last
// one back. Each of one size, so that a receive can be posted before anything is known. Pure.

#include "gpu/dataplane/communicator.hpp"
#include "protocols/schedule/request_row.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace parcae {

enum class pass_frame_kind : std::uint8_t {
  rows = 1, ///< a pass; its answer has tokens
  held,     ///< how many positions of these requests every stage holds, and has room for
  idle,     ///< nothing: stage 0 says it now and then while there is nothing else
  drained,  ///< said by stage 0 once: it takes nothing more, what it took is before this
  failed,   ///< said by a stage: the pass of this number threw there
};

/// The token that follows a row is wanted.
struct pass_draw {
  std::uint32_t row = 0;
  sampling how{};

  friend bool operator==(const pass_draw&, const pass_draw&) = default;
};

/// To stage 0 and from stage to stage.
struct pass_frame {
  static constexpr std::size_t max_rows = 192, max_draws = 64, max_over = 64, max_asked = 64;

  pass_frame_kind kind = pass_frame_kind::idle;
  std::uint64_t epoch = 0;           ///< drawn by the gateway whenever it has connected
  std::uint64_t number = 0;          ///< of what the gateway sent in it, from 1 on
  std::uint32_t size = 0;            ///< rows: what they are padded to
  std::uint64_t room = 0;            ///< held: positions that the caches of every stage so far have, less than 2^63
  std::vector<request_row> rows{};   ///< held: by request the positions of every stage so far, no tokens
  std::vector<pass_draw> draws{};    ///< with rising rows
  std::vector<std::uint64_t> over{}; ///< requests whose caches may go

  friend bool operator==(const pass_frame&, const pass_frame&) = default;
};

/// From the last stage to the gateway.
struct pass_answer {
  static constexpr std::uint32_t no_token = UINT32_MAX; ///< none follows: logits are not finite

  pass_frame_kind kind = pass_frame_kind::idle;
  std::uint64_t epoch = 0, number = 0;
  std::uint64_t room = 0;
  std::vector<request_row> tokens{}; ///< at their positions; held: as in the question

  friend bool operator==(const pass_answer&, const pass_answer&) = default;
};

/// What numbers in frames are below.
struct pass_bounds {
  std::uint32_t context = 0, vocabulary = 0;
};

inline constexpr std::size_t pass_frame_bytes = 5680, pass_answer_bytes = 1072;

/// Requires no more of each list than there may be.
void encode(const pass_frame& x, std::span<std::byte, pass_frame_bytes> to);
void encode(const pass_answer& x, std::span<std::byte, pass_answer_bytes> to);

/// Into what was used before, without new memory. Throws communication_error: not understood, or out of bounds.
void decode(std::span<const std::byte, pass_frame_bytes> from, const pass_bounds& bounds, pass_frame& to);
void decode(std::span<const std::byte, pass_answer_bytes> from, const pass_bounds& bounds, pass_answer& to);

/// What somebody has in caches of a request.
struct held_request {
  std::uint64_t request = 0;
  std::uint32_t positions = 0; ///< [0, positions), at least 1

  friend bool operator==(const held_request&, const held_request&) = default;
};

/// Before the caches that one participant sends another: of whom they are, in the order in which they come.
struct cache_frame {
  static constexpr std::size_t max_requests = 1024;

  std::vector<held_request> requests{}; ///< each once, the longest first

  friend bool operator==(const cache_frame&, const cache_frame&) = default;
};

inline constexpr std::size_t cache_frame_bytes = 16 * (cache_frame::max_requests + 1);

/// As those of passes.
void encode(const cache_frame& x, std::span<std::byte, cache_frame_bytes> to);
void decode(std::span<const std::byte, cache_frame_bytes> from, const pass_bounds& bounds, cache_frame& to);

/// Of a move of a plan: 0 says of whom, caches follow it.
inline tag cache_tag(std::size_t move, std::uint32_t n) {
  return {channel::cache, move, n};
}

/// Of the n-th on a connection.
inline tag pass_tag(std::uint64_t n) {
  return {channel::pass, n, 0};
}

} // namespace parcae

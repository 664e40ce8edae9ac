#pragma once

// Which rows of which requests go next through a pipeline that serves a model: the gateway sends them by it, the
// planner counts with it. A row is a position of a request; a pass takes some rows, of any requests. A prompt, the next
// token and what is computed again after a loss are all rows, so there is nothing besides. Pure.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace parcae {

/// Positions [first, first + count) of a request in a pass.
struct pass_rows {
  std::uint64_t request = 0;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool yields = false; ///< its last known position is among them: with them comes its next token

  friend bool operator==(const pass_rows&, const pass_rows&) = default;
};

struct pass_limits {
  std::uint32_t depth = 1;              ///< passes under way, as many as there are stages
  std::uint32_t requests = 64;          ///< at once
  std::uint32_t chunk = 64;             ///< rows of requests that do not decode yet, in a pass
  std::uint32_t rows = 192;             ///< in a pass
  std::uint64_t positions = UINT64_MAX; ///< of caches, in each stage
  /// Of passes, rising, as they are padded to the next one; empty: a pass is as large as its rows.
  std::vector<std::uint32_t> sizes{};
};

/// The passes of one pipeline. Requests are served in the order in which they entered.
class pass_schedule {
public:
  struct request {
    std::uint64_t id = 0;
    std::uint32_t known = 0; ///< positions whose token is known: the prompt, tokens so far
    std::uint32_t sent = 0;  ///< positions computed, or in passes under way
    std::uint32_t most = 0;  ///< positions it ends with
    std::uint32_t was = 0;   ///< positions that had been computed before it entered: up to there it is a replay
  };

  /// Limits are at least 1.
  explicit pass_schedule(const pass_limits& limits);

  /// Whether a request may enter that ends with `most` positions: there is a place, and all of them are free.
  bool has_room(std::uint32_t most) const;

  /// Requires room; sent < known < most. `sent`: what its caches hold.
  void enter(const request& x);

  /// The next pass, valid until the next call; null: P are under way, or there is nothing to compute. First those that
  /// decode: a row each, but no more than their share of P passes, so that stages work side by side. Then chunks of the
  /// others, which may follow each other without a pause, as each stage computes passes in order. Where some decode, so
  /// that there is another pass anyway, rows wait for that which would take more padding than they are.
  const std::vector<pass_rows>* next();

  /// From the next pass on only rows of this request, as long as it is here; none: of all.
  void only(std::optional<std::uint64_t> id) { only_ = id; }

  /// From the next pass on, as long as any decode, replays go only into passes of so many rows in all: more than
  /// decoding(), or they wait for those.
  void replay_within(std::uint32_t rows) { replay_within_ = rows; }
  /// Of a pass, at most, that decode.
  std::uint32_t decoding() const;

  /// The oldest pass under way is over; the requests whose next token came, valid until the next call. Those that have
  /// all leave. Requires one under way.
  const std::vector<request>& done();

  /// It ends before it has all tokens, or goes elsewhere; its rows under way count no more.
  void leave(std::uint64_t id);

  const std::vector<request>& requests() const { return requests_; }
  std::size_t under_way() const { return under_way_; }
  bool is_full() const { return under_way_ == passes_.size(); } ///< no pass begins before one is over
  std::uint64_t rows_left() const;                              ///< to be computed until all have all tokens

private:
  bool waits(const request& x) const { return only_ && x.id != *only_; }
  std::uint32_t add_decoding(std::vector<pass_rows>& pass, std::uint32_t most);
  /// Of `room` rows of chunks beside `taken`: as many as are worth their padding.
  std::uint32_t worth_padding(std::uint32_t taken, std::uint32_t room) const;
  void add_chunks(std::vector<pass_rows>& pass, std::uint32_t room, std::uint32_t of_replays);

  pass_limits limits_;
  std::vector<request> requests_;              ///< oldest first
  std::uint64_t positions_ = 0;                ///< that they may come to hold
  std::vector<std::vector<pass_rows>> passes_; ///< a ring of `depth`
  std::size_t oldest_ = 0;                     ///< of the ring
  std::size_t under_way_ = 0;
  std::vector<request> yielded_;
  std::optional<std::uint64_t> only_;
  std::uint32_t replay_within_ = UINT32_MAX;
};

/// Which pipeline a request enters that ends with `most` positions: of those with room the one with the fewest
/// requests, then with the fewest rows left, then the first. None: it waits.
std::optional<std::size_t> pipeline_for(std::span<const pass_schedule* const> pipelines, std::uint32_t most);

} // namespace parcae

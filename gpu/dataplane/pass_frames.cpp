#include "gpu/dataplane/pass_frames.hpp"

#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <type_traits>

namespace parcae {

namespace {

// As they lie in the frame; both ends are of one kind of machine.

struct head {
  std::uint8_t kind = 0;
  std::uint8_t zeros[3]{};
  std::uint32_t size = 0;
  std::uint64_t epoch = 0, number = 0, room = 0;
  std::uint32_t rows = 0, draws = 0, over = 0, zero = 0;
};

struct draw {
  std::uint32_t row = 0, top_k = 0;
  std::uint64_t seed = 0;
  double temperature = 0, top_p = 0;
};

static_assert(sizeof(head) == 48 && sizeof(draw) == 32 && sizeof(request_row) == 16);
static_assert(std::is_trivially_copyable_v<request_row>);

constexpr std::size_t row_bytes = sizeof(request_row);
constexpr std::size_t draws_at = sizeof(head) + pass_frame::max_rows * row_bytes;
constexpr std::size_t over_at = draws_at + pass_frame::max_draws * sizeof(draw);
static_assert(over_at + pass_frame::max_over * sizeof(std::uint64_t) == pass_frame_bytes);
static_assert(sizeof(head) + pass_frame::max_draws * row_bytes == pass_answer_bytes);
static_assert(pass_frame::max_asked <= pass_frame::max_draws);

[[noreturn]] void refuse(const std::string& what) {
  throw communication_error("a frame of a pass is not understood: " + what);
}

void require(bool holds, const char* what) {
  if (!holds)
    refuse(what);
}

head head_of(const std::byte* from) {
  head x;
  std::memcpy(&x, from, sizeof x);
  const auto kind = static_cast<pass_frame_kind>(x.kind);
  require(kind >= pass_frame_kind::rows && kind <= pass_frame_kind::failed, "its kind");
  require(x.zeros[0] == 0 && x.zeros[1] == 0 && x.zeros[2] == 0 && x.zero == 0, "what is to be zero");
  require(kind == pass_frame_kind::held ? x.room >> 63 == 0 : x.room == 0, "its room");
  return x;
}

template <class T>
void read(std::vector<T>& to, std::size_t count, const std::byte* from) {
  to.resize(count);
  if (count > 0)
    std::memcpy(to.data(), from, count * sizeof(T));
}

template <class T>
void write(std::byte* to, const std::vector<T>& all) {
  if (!all.empty())
    std::memcpy(to, all.data(), all.size() * sizeof(T));
}

/// Positions that are held may be as many as there are.
void check_held(const std::vector<request_row>& rows, const pass_bounds& bounds) {
  for (const auto& x : rows)
    require(x.position <= bounds.context && x.token == 0, "what is held");
}

void check_rows(const pass_frame& x, const pass_bounds& bounds) {
  require(!x.rows.empty() && x.rows.size() <= x.size && x.size <= pass_frame::max_rows, "its size");
  for (const auto& row : x.rows)
    require(row.position < bounds.context && row.token < bounds.vocabulary, "a row");
}

void check_draw(const draw& x, std::size_t rows, std::uint32_t least) {
  require(x.row >= least && x.row < rows, "a row that a token is to follow");
  require(std::isfinite(x.temperature) && x.temperature >= 0 && x.top_p > 0 && x.top_p <= 1, "how a token is drawn");
}

} // namespace

void encode(const pass_frame& x, std::span<std::byte, pass_frame_bytes> to) {
  head h;
  h.kind = static_cast<std::uint8_t>(x.kind);
  h.size = x.size;
  h.epoch = x.epoch;
  h.number = x.number;
  h.room = x.room;
  h.rows = static_cast<std::uint32_t>(x.rows.size());
  h.draws = static_cast<std::uint32_t>(x.draws.size());
  h.over = static_cast<std::uint32_t>(x.over.size());
  std::memset(to.data(), 0, to.size());
  std::memcpy(to.data(), &h, sizeof h);
  write(to.data() + sizeof h, x.rows);
  auto* place = to.data() + draws_at;
  for (const auto& [row, how] : x.draws) {
    const draw one{row, how.top_k, how.seed, how.temperature, how.top_p};
    std::memcpy(place, &one, sizeof one);
    place += sizeof one;
  }
  write(to.data() + over_at, x.over);
}

void encode(const pass_answer& x, std::span<std::byte, pass_answer_bytes> to) {
  head h;
  h.kind = static_cast<std::uint8_t>(x.kind);
  h.epoch = x.epoch;
  h.number = x.number;
  h.room = x.room;
  h.rows = static_cast<std::uint32_t>(x.tokens.size());
  std::memset(to.data(), 0, to.size());
  std::memcpy(to.data(), &h, sizeof h);
  write(to.data() + sizeof h, x.tokens);
}

void decode(std::span<const std::byte, pass_frame_bytes> from, const pass_bounds& bounds, pass_frame& to) {
  const auto h = head_of(from.data());
  to.kind = static_cast<pass_frame_kind>(h.kind);
  const bool is_pass = to.kind == pass_frame_kind::rows;
  const auto most = is_pass ? pass_frame::max_rows : to.kind == pass_frame_kind::held ? pass_frame::max_asked : 0;
  require(h.rows <= most && h.draws <= (is_pass ? pass_frame::max_draws : 0) && h.over <= pass_frame::max_over,
          "how many there are");
  require(is_pass || h.size == 0, "its size");
  to.epoch = h.epoch;
  to.number = h.number;
  to.room = h.room;
  to.size = h.size;
  read(to.rows, h.rows, from.data() + sizeof h);
  read(to.over, h.over, from.data() + over_at);
  if (is_pass)
    check_rows(to, bounds);
  else
    check_held(to.rows, bounds);
  to.draws.clear();
  std::uint32_t least = 0;
  for (std::uint32_t i = 0; i < h.draws; ++i) {
    draw one;
    std::memcpy(&one, from.data() + draws_at + i * sizeof one, sizeof one);
    check_draw(one, to.rows.size(), least);
    least = one.row + 1;
    to.draws.push_back({one.row, {one.seed, one.temperature, one.top_p, one.top_k}});
  }
}

void decode(std::span<const std::byte, pass_answer_bytes> from, const pass_bounds& bounds, pass_answer& to) {
  const auto h = head_of(from.data());
  to.kind = static_cast<pass_frame_kind>(h.kind);
  const bool has_tokens = to.kind == pass_frame_kind::rows;
  const auto most = has_tokens ? pass_frame::max_draws : to.kind == pass_frame_kind::held ? pass_frame::max_asked : 0;
  require(h.rows <= most && h.draws == 0 && h.over == 0 && h.size == 0, "how many there are");
  to.epoch = h.epoch;
  to.number = h.number;
  to.room = h.room;
  read(to.tokens, h.rows, from.data() + sizeof h);
  if (!has_tokens)
    return check_held(to.tokens, bounds);
  for (const auto& x : to.tokens)
    require(x.position <= bounds.context && (x.token < bounds.vocabulary || x.token == pass_answer::no_token),
            "a token");
}

// Entries of 16 bytes, of which the first says how many follow.

void encode(const cache_frame& x, std::span<std::byte, cache_frame_bytes> to) {
  std::memset(to.data(), 0, to.size());
  const std::uint64_t count = x.requests.size();
  std::memcpy(to.data(), &count, sizeof count);
  auto* place = to.data() + 16;
  for (const auto& [request, positions] : x.requests) {
    std::memcpy(place, &request, sizeof request);
    std::memcpy(place + 8, &positions, sizeof positions);
    place += 16;
  }
}

void decode(std::span<const std::byte, cache_frame_bytes> from, const pass_bounds& bounds, cache_frame& to) {
  std::uint64_t count = 0, zero = 0;
  std::memcpy(&count, from.data(), sizeof count);
  std::memcpy(&zero, from.data() + 8, sizeof zero);
  require(count <= cache_frame::max_requests && zero == 0, "how many there are");
  to.requests.clear();
  std::set<std::uint64_t> known;
  auto most = bounds.context;
  for (std::size_t i = 0; i < count; ++i) {
    const auto* place = from.data() + 16 * (i + 1);
    held_request x;
    std::uint32_t rest = 0;
    std::memcpy(&x.request, place, sizeof x.request);
    std::memcpy(&x.positions, place + 8, sizeof x.positions);
    std::memcpy(&rest, place + 12, sizeof rest);
    require(rest == 0 && x.positions > 0 && x.positions <= most && known.insert(x.request).second, "what is held");
    most = x.positions;
    to.requests.push_back(x);
  }
}

} // namespace parcae

#include "gpu/dataplane/feed_note.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace parcae {

namespace {

constexpr std::uint8_t is_skipped = 1, has_course = 2;

/// As it lies in the note; both ends are of one kind of machine.
struct layout {
  std::uint8_t kind = 0;
  std::uint8_t flags = 0;
  std::uint16_t unused = 0;
  std::uint32_t layer = 0;
  std::uint64_t steps = 0;
  std::uint64_t by = 0;
  double rate = 0;
  double clip = 0;
  float best = 0;
  float worse = 0;
  std::array<std::uint64_t, 2> zeros{};
};
static_assert(sizeof(layout) == feed_note_bytes);

} // namespace

encoded_feed_note encode(const feed_note& x) {
  layout to;
  to.kind = static_cast<std::uint8_t>(x.kind);
  to.flags = static_cast<std::uint8_t>((x.skipped ? is_skipped : 0) | (x.course ? has_course : 0));
  to.layer = x.layer;
  to.steps = x.at.steps;
  to.by = x.at.by.value;
  to.rate = x.rate;
  to.clip = x.clip;
  if (x.course) {
    to.best = x.course->best;
    to.worse = x.course->worse;
  }
  encoded_feed_note result;
  std::memcpy(result.data(), &to, sizeof to);
  return result;
}

feed_note decode_feed_note(std::span<const std::byte, feed_note_bytes> x, std::uint32_t layers) {
  layout from;
  std::memcpy(&from, x.data(), sizeof from);
  const auto kind = static_cast<feed_kind>(from.kind);
  const bool commits = kind == feed_kind::commit;
  const bool of_layer = !commits && kind != feed_kind::end;
  const bool known = kind >= feed_kind::base && kind <= feed_kind::end;
  if (!known || from.layer >= (of_layer ? layers : 1) || from.flags > (commits ? is_skipped | has_course : 0) ||
      from.unused != 0 || from.zeros != decltype(from.zeros){})
    throw communication_error("a note of a feed is not understood: kind " + std::to_string(from.kind) + ", layer " +
                              std::to_string(from.layer) + " of " + std::to_string(layers));
  feed_note result{.kind = kind, .layer = from.layer, .at = {from.steps, {from.by}}};
  if (commits) {
    result.rate = from.rate;
    result.clip = from.clip;
    result.skipped = (from.flags & is_skipped) != 0;
    if ((from.flags & has_course) != 0)
      result.course = validation_course{from.best, from.worse};
  }
  return result;
}

} // namespace parcae

// Everything that is written on data connections besides tensors.

#include "gpu/dataplane/frames.hpp"

#include "tests/fuzz/fuzz.hpp"

#include <array>

namespace parcae {
namespace {

template <std::size_t Size>
std::array<std::byte, Size> head_of(std::string_view bytes) {
  std::array<std::byte, Size> result{};
  std::memcpy(result.data(), bytes.data(), std::min(Size, bytes.size()));
  return result;
}

/// What was decoded is the same after it was encoded: by its bytes, which a second time do not change.
template <class T, std::size_t Size, class Decode>
void check(std::string_view bytes, Decode decode) {
  const std::optional<T> x = decode(std::span<const std::byte, Size>(head_of<Size>(bytes)));
  if (!x)
    return;
  const auto again = encode(*x);
  const auto y = decode(std::span<const std::byte, Size>(again));
  promise(y && encode(*y) == again, "what is decoded can be encoded");
}

} // namespace
} // namespace parcae

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  fuzz_input input(data, size);
  const auto which = input.take<std::uint8_t>();
  const auto bytes = input.rest();
  switch (which % 5) {
  case 0:
    check<greeting, greeting_size>(bytes, decode_greeting);
    break;
  case 1:
    if (const auto x = decode_verdict(head_of<verdict_size>(bytes)))
      promise(!render(*x).empty() && decode_verdict(encode(*x)) == x, "a verdict stays the same");
    break;
  case 2:
    check<frame, frame_size>(bytes, decode_frame);
    break;
  case 3:
    if (const auto x = decode_snapshot_frame(head_of<snapshot_frame_size>(bytes))) {
      promise(x->sizes.size() <= max_parts, "there are not too many parts");
      for (const auto part : x->sizes)
        promise(part <= max_part_bytes, "no part is too large");
      check<snapshot_frame, snapshot_frame_size>(bytes, decode_snapshot_frame);
    }
    break;
  case 4:
    if (const auto x = decode_acknowledgement(head_of<acknowledgement_size>(bytes)))
      promise(decode_acknowledgement(encode_acknowledgement(*x)) == x, "an acknowledgement stays the same");
    break;
  }
  return 0;
}

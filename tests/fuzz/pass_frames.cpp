// What goes round a pipeline that serves a model.

#include "gpu/dataplane/pass_frames.hpp"

#include "tests/fuzz/fuzz.hpp"

#include <array>

namespace {

using namespace parcae;

template <std::size_t Size, class Frame>
void try_frame(const std::array<std::byte, Size>& bytes, std::size_t most) {
  constexpr pass_bounds bounds{.context = 64, .vocabulary = 256};
  try {
    Frame x, y;
    decode(std::span<const std::byte, Size>(bytes), bounds, x);
    if constexpr (requires { x.rows; })
      promise(x.rows.size() <= most, "there are no more rows than a frame has");
    else if constexpr (requires { x.requests; })
      promise(x.requests.size() <= most, "there are no more requests than a frame has");
    else
      promise(x.tokens.size() <= most, "there are no more tokens than a frame has");
    std::array<std::byte, Size> again;
    encode(x, again);
    decode(std::span<const std::byte, Size>(again), bounds, y);
    promise(x == y, "what is decoded can be encoded");
  } catch (const communication_error&) {
  }
}

} // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz_input input(data, size);
  const auto kind = input.take<std::uint8_t>() % 3;
  if (kind == 2)
    try_frame<cache_frame_bytes, cache_frame>(input.take<std::array<std::byte, cache_frame_bytes>>(),
                                              cache_frame::max_requests);
  else if (kind == 0)
    try_frame<pass_frame_bytes, pass_frame>(input.take<std::array<std::byte, pass_frame_bytes>>(),
                                            pass_frame::max_rows);
  else
    try_frame<pass_answer_bytes, pass_answer>(input.take<std::array<std::byte, pass_answer_bytes>>(),
                                              pass_frame::max_draws);
  return 0;
}

// What a source says of each message of a feed.

#include "gpu/dataplane/feed_note.hpp"

#include "tests/fuzz/fuzz.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  fuzz_input input(data, size);
  const auto bytes = input.take<encoded_feed_note>();
  try {
    const auto x = decode_feed_note(bytes, 4);
    promise(x.layer < 4, "a note is of a layer of the model");
    const auto again = encode(x);
    promise(encode(decode_feed_note(again, 4)) == again, "what is decoded can be encoded");
  } catch (const communication_error&) {
  }
  return 0;
}

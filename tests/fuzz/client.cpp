// Requests of commands, and the manager's replies.

#include "protocols/client/client.hpp"

#include "tests/fuzz/fuzz.hpp"

#include <stdexcept>
#include <vector>

namespace parcae {
namespace {

/// Malformed bytes are a std::runtime_error; what is decoded is the same after it was encoded.
template <class Decode>
void check(std::span<const char> bytes, Decode decode) {
  std::vector<char> once;
  try {
    const auto x = decode(bytes);
    if (const auto* submitted = std::get_if<0>(&x); submitted != nullptr)
      if constexpr (std::is_same_v<decltype(submitted), const submit_request*>)
        problem_of(submitted->job); // whatever is in it
    once = encode(x);
    if (once.size() > client_message_limit_bytes)
      return;
  } catch (const std::runtime_error&) {
    return;
  }
  promise(encode(decode(std::span<const char>(once))) == once, "what is decoded can be encoded");
}

} // namespace
} // namespace parcae

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  const std::span bytes(reinterpret_cast<const char*>(data), size);
  check(bytes, decode_request);
  check(bytes, decode_reply);
  return 0;
}

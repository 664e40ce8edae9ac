// Manifests of checkpoints.

#include "protocols/client/manifest.hpp"

#include "tests/fuzz/fuzz.hpp"

#include <stdexcept>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  std::vector<char> once;
  try {
    const auto x = decode_manifest({reinterpret_cast<const char*>(data), size});
    problem_of(x.specification);
    promise(x.at.steps > 0, "a checkpoint is of some step");
    once = encode(x);
    if (once.size() > manifest_limit_bytes)
      return 0;
  } catch (const std::runtime_error&) {
    return 0;
  }
  promise(encode(decode_manifest(once)) == once, "what is decoded can be encoded");
  return 0;
}

// Headers of NumPy's files.

#include "gpu/data/npy.hpp"

#include "tests/fuzz/fuzz.hpp"

#include <stdexcept>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  // As if the file went on: its size is the first eight bytes.
  fuzz_input input(data, size);
  const auto more = input.take<std::uint64_t>() % 65'536;
  const auto begin = input.rest();
  const auto bytes = begin.size() + more;
  try {
    const auto x = parse_npy(std::as_bytes(std::span(begin)), bytes);
    promise(x.shape.size() == 1 || x.shape.size() == 2, "one or two dimensions");
    promise(x.bytes == 1 || x.bytes == 2 || x.bytes == 4 || x.bytes == 8, "a size that is read");
    promise(x.values_at <= bytes && x.values() <= bytes && x.values_at + x.values() * x.bytes == bytes,
            "the values are exactly what is behind the header");
  } catch (const std::runtime_error&) {
  }
  return 0;
}

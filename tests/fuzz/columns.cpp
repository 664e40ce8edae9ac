// samples.json of exported data sets.

#include "gpu/data/columns.hpp"

#include "tests/fuzz/fuzz.hpp"

#include <stdexcept>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  try {
    const auto x = parse_columns(as_text(data, size));
    promise(x.samples > 0 && !x.inputs.empty(), "there are samples of something");
    auto bytes = x.targets.values() * x.targets.bytes;
    for (const auto& column : x.inputs) {
      promise(column.bytes > 0 && column.values() > 0, "every column has values");
      bytes += column.values() * column.bytes;
    }
    promise(bytes == x.sample_bytes() && bytes < std::uint64_t{1} << 40, "a sample's extent does not overflow");
  } catch (const std::runtime_error&) {
  }
  return 0;
}

// Profiles of workloads, networks and peers.

#include "planner/cost/profile.hpp"

#include "tests/fuzz/fuzz.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  const auto text = as_text(data, size);
  const auto read = [](auto parse, std::string_view from) {
    try {
      parse(from);
    } catch (const parse_error&) {
    }
  };
  read(
      [](std::string_view x) {
        const auto y = parse_profile(x);
        y.fastest(8);
        promise(y.min_depth <= y.max_depth, "there is a depth");
      },
      text);
  read(parse_network, text);
  read(parse_peers, text);
  return 0;
}

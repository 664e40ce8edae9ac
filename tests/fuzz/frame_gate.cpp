// Frames of the control plane, before their payloads are looked at: first whose end it is and how large the pieces are
// in which bytes come.

#include "runtime/link/frame_gate.hpp"

#include "tests/fuzz/fuzz.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  fuzz_input input(data, size);
  const auto here = input.take<std::uint8_t>() % 2 == 0 ? link_side::accepted : link_side::dialled;
  const std::size_t piece = 1 + input.take<std::uint8_t>();
  const auto check = [](const frame_header& x, std::span<const char> payload) {
    promise(payload.size() == x.payload_bytes, "payloads are whole");
    return std::string(payload.size() > 3 && payload[0] == '!' ? "bad" : "");
  };
  constexpr std::size_t most = 1024 * 1024;
  frame_gate gate(here, most);
  std::vector<char> out;
  for (std::span<const char> rest(input.rest()); !rest.empty(); rest = rest.subspan(std::min(piece, rest.size()))) {
    const auto problem = gate.pass(rest.first(std::min(piece, rest.size())), out, check);
    promise(gate.opened() || (out.empty() && gate.held() <= 64 * 1024),
            "a stranger's bytes go nowhere, and it holds few");
    if (!problem.empty())
      break;
  }
  // What went through are whole frames, which go through again.
  frame_gate again(here, most);
  std::vector<char> same;
  promise(again.pass(out, same, check).empty() && same == out, "only good frames go through");
  return 0;
}

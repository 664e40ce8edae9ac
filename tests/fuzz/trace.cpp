// Traces of availability.

#include "planner/simulation/trace.hpp"

#include "tests/fuzz/fuzz.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  const auto text = as_text(data, size);
  try {
    if (is_counts(text)) {
      parse_trace(text);
      return 0;
    }
    const auto events = parse_events(text);
    promise(to_csv(parse_events(to_csv(events))) == to_csv(events), "what is read can be written");
    longest_notice_ms(events);
  } catch (const parse_error&) {
  }
  return 0;
}

// Traces of availability.

#include "planner/simulation/trace.hpp"

#include "tests/fuzz/fuzz.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  const auto text = as_text(data, size);
  try {
    double seconds = -1;
    std::uint32_t available = 0;
    for (const auto& row : parse_trace(text)) {
      promise(row.seconds > seconds, "time goes on");
      promise(row.lost <= available + row.joined && row.available == available + row.joined - row.lost, "rows add up");
      seconds = row.seconds;
      available = row.available;
    }
    if (is_counts(text))
      return 0;
    const auto events = parse_events(text);
    promise(to_csv(parse_events(to_csv(events))) == to_csv(events), "what is read can be written");
    longest_notice_ms(events);
  } catch (const parse_error& e) {
    promise(std::string_view(e.what()).find("line ") == 0 || std::string_view(e.what()).ends_with(" intervals"),
            "an error says where");
  }
  return 0;
}

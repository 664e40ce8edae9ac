#include "runtime/simulate/trace_input.hpp"

#include "planner/simulation/trace_generator.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>

namespace parcae {

trace_input load_trace(const std::string& name) {
  const auto colon = name.find(':');
  const auto kinds = trace_kinds();
  if (std::find(kinds.begin(), kinds.end(), name.substr(0, colon)) != kinds.end() && !std::filesystem::exists(name)) {
    std::uint64_t seed = 1;
    if (colon != std::string::npos) {
      const auto* end = name.data() + name.size();
      const auto [rest, error] = std::from_chars(name.data() + colon + 1, end, seed);
      if (error != std::errc() || rest != end)
        throw std::runtime_error("the seed in --trace " + name + " must be a whole number");
    }
    auto events = generate_trace(trace_kind(name.substr(0, colon)), seed);
    auto intervals = intervals_of(events);
    return {std::move(intervals), std::move(events)};
  }
  if (!std::filesystem::exists(name))
    throw std::runtime_error(name + " cannot be opened; generated traces are KIND:SEED with one of " + names_of(kinds));
  return from_file(name, [](const std::string& text) {
    trace_input result{parse_trace(text), {}};
    if (result.intervals.size() < 2)
      throw parse_error(result.intervals.empty() ? "the trace has no intervals"
                                                 : "the trace has one interval only; it ends with its last line");
    if (!is_counts(text))
      result.events = parse_events(text);
    return result;
  });
}

std::string names_of(const std::vector<std::string>& names) {
  std::string result;
  for (const auto& name : names)
    result += (result.empty() ? "" : ", ") + name;
  return result;
}

} // namespace parcae

#include "runtime/lab/availability.hpp"

#include "planner/simulation/trace_generator.hpp"
#include "runtime/simulate/trace_input.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace parcae {

namespace {

using std::chrono::milliseconds;

std::vector<availability_change> changes_of(const std::vector<trace_event>& events) {
  std::map<std::uint64_t, int> deltas;
  for (const auto& x : events)
    deltas[x.ms] += x.added ? 1 : -1;
  std::vector<availability_change> result;
  for (auto [at, delta] : deltas)
    if (delta != 0)
      result.push_back({milliseconds(at), delta});
  return result;
}

} // namespace

std::vector<availability_change> read_trace(const std::filesystem::path& path) {
  return changes_of(from_file(path.string(), parse_events));
}

std::vector<availability_change> scaled(const std::vector<availability_change>& trace, int instances) {
  int present = 0;
  int peak = 0;
  for (const auto& x : trace) {
    present = std::max(0, present + x.delta);
    peak = std::max(peak, present);
  }
  std::vector<availability_change> result;
  present = 0;
  int before = 0;
  for (const auto& x : trace) {
    present = std::max(0, present + x.delta);
    auto now = peak <= instances ? present : (2 * present * instances + peak) / (2 * peak);
    if (now != before)
      result.push_back({x.at, now - before});
    before = now;
  }
  return result;
}

std::vector<availability_change> made_up_trace(int instances, double hours, std::uint64_t seed) {
  auto options = trace_kind("p3");
  options.hours = hours;
  return scaled(changes_of(generate_trace(options, seed)), instances);
}

} // namespace parcae

#include "runtime/availability.hpp"

#include "planner/trace_generator.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>

namespace parcae {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t most_bytes = 16 << 20;

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
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw std::runtime_error("cannot read the trace " + path.string());
  std::string text;
  text.resize(most_bytes + 1);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > most_bytes)
    throw std::runtime_error("the trace " + path.string() + " is larger than 16 MiB");
  return changes_of(parse_events(text));
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

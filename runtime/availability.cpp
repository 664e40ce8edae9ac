#include "runtime/availability.hpp"

#include "planner/trace.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <random>
#include <stdexcept>
#include <string>

namespace parcae {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t most_bytes = 16 << 20;

// Exponentially distributed; written out because the standard leaves its distributions' algorithms open.
double exponential(std::mt19937_64& random, double mean) {
  auto uniform = static_cast<double>(random() >> 11) * 0x1p-53;
  return -mean * std::log1p(-uniform);
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
  std::map<std::uint64_t, int> deltas;
  for (const auto& x : parse_events(text))
    deltas[x.ms] += x.added ? 1 : -1;
  std::vector<availability_change> result;
  for (auto [at, delta] : deltas)
    if (delta != 0)
      result.push_back({milliseconds(at), delta});
  return result;
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

std::vector<availability_change> made_up_trace(int instances, milliseconds length, std::uint64_t seed) {
  constexpr double group_ms = 518'000;
  constexpr double replacement_ms = 1'200'000;
  constexpr double mean_share = 2.1 / 24;
  constexpr double largest_share = 6.0 / 24;
  std::mt19937_64 random(seed);
  std::map<std::int64_t, int> deltas{{0, instances}};
  std::multimap<std::int64_t, int> returns;
  int present = instances;
  double now = 0;
  for (;;) {
    now += exponential(random, group_ms);
    if (now >= static_cast<double>(length.count()))
      break;
    auto at = static_cast<std::int64_t>(now);
    while (!returns.empty() && returns.begin()->first <= at) {
      present += 1;
      returns.erase(returns.begin());
    }
    auto share = std::min(largest_share, exponential(random, mean_share));
    auto size = std::min(present, std::max(1, static_cast<int>(std::lround(share * instances))));
    if (size == 0)
      continue;
    deltas[at] -= size;
    present -= size;
    for (int i = 0; i < size; ++i) {
      auto back = at + 1 + static_cast<std::int64_t>(exponential(random, replacement_ms));
      deltas[back] += 1;
      returns.emplace(back, 1);
    }
  }
  std::vector<availability_change> result;
  for (auto [at, delta] : deltas)
    if (delta != 0 && at < length.count())
      result.push_back({milliseconds(at), delta});
  return result;
}

} // namespace parcae

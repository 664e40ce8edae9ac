#include "tests/chaos/process_watch.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

namespace parcae {

namespace {

using namespace std::chrono_literals;

constexpr auto long_life = 180s;
constexpr auto sample_interval = 1s;
constexpr double max_growth = 1.1;

struct kind {
  const char* name;
  double little; ///< what may come and go
};
constexpr std::array<kind, holding::kinds> kinds_of{{{"KiB", 16 * 1024}, {"descriptors", 16}, {"threads", 4}}};

/// In clock ticks since boot; 0: it is not there.
std::uint64_t start_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  file.ignore(4096, ')'); // the name of these programs has none
  std::string x;
  for (int field = 3; field <= 22; ++field)
    file >> x;
  return file ? std::stoull(x) : 0;
}

std::optional<std::array<double, 3>> held_by(pid_t process) {
  const std::filesystem::path folder = "/proc/" + std::to_string(process);
  std::ifstream status(folder / "status");
  std::array<double, 3> result{};
  for (std::string key; status >> key; status.ignore(1000, '\n'))
    if (key == "VmRSS:")
      status >> result[0];
    else if (key == "Threads:")
      status >> result[2];
  std::error_code gone;
  for (std::filesystem::directory_iterator x(folder / "fd", gone), end; !gone && x != end; x.increment(gone))
    ++result[1];
  if (gone || result[0] == 0) // it ended, and is not waited for yet
    return std::nullopt;
  return result;
}

bool is_long(std::span<const holding> life) {
  return !life.empty() && life.back().at - life.front().at >= long_life;
}

} // namespace

void process_watch::look(const std::string& name, pid_t process, double models) {
  const auto start = start_of(process);
  if (start == 0)
    return;
  auto& life = lives_[{name, process, start}];
  const auto now = clock::now();
  if (!life.empty() && now - life.back().at < sample_interval)
    return;
  if (const auto held = held_by(process))
    life.push_back({now, *held, models});
}

std::size_t process_watch::judged() const {
  return static_cast<std::size_t>(std::ranges::count_if(lives_, [](const auto& x) { return is_long(x.second); }));
}

std::size_t process_watch::judged(const std::string& name) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(lives_, [&](const auto& x) { return std::get<0>(x.first) == name && is_long(x.second); }));
}

std::vector<std::string> process_watch::growing() const {
  std::vector<std::string> result;
  for (const auto& [who, life] : lives_)
    for (const auto& what : growth_of(life))
      result.push_back(fmt::format("{} (process {}) grows: {}", std::get<0>(who), std::get<1>(who), what));
  return result;
}

std::vector<std::string> growth_of(std::span<const holding> life) {
  std::vector<std::string> result;
  if (!is_long(life))
    return result;
  const auto lasted = life.back().at - life.front().at;
  holding second{}, last{}; // the most of each
  for (const auto& x : life) {
    if (x.at < life.front().at + lasted / 3)
      continue;
    auto& third = x.at >= life.back().at - lasted / 3 ? last : second;
    for (std::size_t k = 0; k < holding::kinds; ++k)
      third.held[k] = std::max(third.held[k], x.held[k]);
    third.models = std::max(third.models, x.models);
  }
  for (std::size_t k = last.models > second.models ? 1 : 0; k < holding::kinds; ++k)
    if (last.held[k] > max_growth * second.held[k] + kinds_of[k].little)
      result.push_back(fmt::format("{} {}, after {} before, in a life of {:.0f} s", last.held[k], kinds_of[k].name,
                                   second.held[k], std::chrono::duration<double>(lasted).count()));
  return result;
}

} // namespace parcae

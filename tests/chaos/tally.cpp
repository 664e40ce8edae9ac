#include "tests/chaos/tally.hpp"

#include <spdlog/fmt/fmt.h>

namespace parcae {

namespace {

constexpr std::pair<const char*, std::uint64_t> each_hour[] = {{"change", 200},
                                                               {"two or more losses at once", 25},
                                                               {"harm during a change", 10},
                                                               {"kill of the manager", 10},
                                                               {"freeze of the manager", 5},
                                                               {"loss of a keeper", 5},
                                                               {"kill of all workers", 2},
                                                               {"slow disk", 5}};
constexpr std::pair<const char*, std::uint64_t> each_hour_of_links[] = {
    {"cut", 20}, {"slow link", 5}, {"cut of the manager", 2}};

} // namespace

std::uint64_t tally::count(const std::string& what) const {
  const auto i = counts_.find(what);
  return i == counts_.end() ? 0 : i->second;
}

std::vector<std::string> tally::lines() const {
  std::vector<std::string> result;
  for (const auto& [what, count] : counts_)
    result.push_back(fmt::format("  {:4} × {}", count, what));
  return result;
}

std::vector<std::string> tally::too_few(double minutes, bool links) const {
  std::vector<std::string> result;
  const auto look = [&](const auto& least) {
    for (const auto& [what, wanted] : least)
      if (count(what) < wanted)
        result.push_back(fmt::format("too little: {} × {}, not {}", count(what), what, wanted));
  };
  if (minutes >= 60)
    look(each_hour);
  if (minutes >= 60 && links)
    look(each_hour_of_links);
  return result;
}

} // namespace parcae

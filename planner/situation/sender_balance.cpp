#include "planner/situation/sender_balance.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace parcae {

sender_balance::sender_balance(std::vector<demand>& demands, std::span<const std::uint64_t> layer_bytes,
                               std::vector<std::uint64_t>& load) :
    demands_(demands),
    layer_bytes_(layer_bytes), load_(load), sent_by_(load.size()) {
  for (std::size_t i = 0; i < demands_.size(); ++i)
    sent_by_[demands_[i].source].push_back(i);
}

void sender_balance::improve() {
  const auto least = least_possible();
  // Each success lowers the sorted vector of loads lexicographically; the bound only guards against long plateaus.
  for (std::size_t round = 0; round < 4 * demands_.size() + 4; ++round) {
    const auto most = *std::max_element(load_.begin(), load_.end());
    bool improved = false;
    for (std::uint32_t s = 0; s < load_.size() && most > least && !improved; ++s)
      improved = load_[s] == most && relieve(s);
    if (!improved)
      return;
  }
}

// No choice of sources makes the busiest sender carry less.
std::uint64_t sender_balance::least_possible() const {
  std::uint64_t largest = 0, smallest = UINT64_MAX, sum = 0;
  std::set<std::uint32_t> senders;
  const std::vector<std::uint32_t>* last = nullptr;
  for (const auto& x : demands_) {
    largest = std::max(largest, layer_bytes_[x.layer]);
    smallest = std::min(smallest, layer_bytes_[x.layer]);
    sum += layer_bytes_[x.layer];
    if (std::exchange(last, x.possible) != x.possible) // those of a layer come together
      senders.insert(x.possible->begin(), x.possible->end());
  }
  if (largest == smallest && largest > 0) // whole layers
    return (sum / largest + senders.size() - 1) / senders.size() * largest;
  return std::max(largest, (sum + senders.size() - 1) / senders.size());
}

bool sender_balance::relieve(std::uint32_t busiest) {
  constexpr auto none = std::numeric_limits<std::size_t>::max();
  std::vector<std::size_t> by(load_.size(), none); // the demand that would be handed to a sender
  std::vector<std::uint32_t> queue{busiest};
  std::vector<bool> seen(load_.size(), false);
  std::set<const std::vector<std::uint32_t>*> asked; // all of them are in the queue
  seen[busiest] = true;
  for (std::size_t head = 0; head < queue.size(); ++head)
    for (auto i : sent_by_[queue[head]]) {
      if (!asked.insert(demands_[i].possible).second)
        continue;
      for (auto to : *demands_[i].possible) {
        if (seen[to])
          continue;
        seen[to] = true;
        by[to] = i;
        queue.push_back(to);
        if (!is_better(by, busiest, to))
          continue;
        for (auto s = to; s != busiest;)
          s = hand_over(by[s], s);
        return true;
      }
    }
  return false;
}

// With the chain to `end` carried out, everyone on it is below the busiest of now.
bool sender_balance::is_better(const std::vector<std::size_t>& by, std::uint32_t busiest, std::uint32_t end) const {
  std::uint64_t given = 0; // by s
  for (auto s = end; s != busiest; s = demands_[by[s]].source) {
    const auto taken = layer_bytes_[demands_[by[s]].layer];
    if (load_[s] + taken - given >= load_[busiest])
      return false;
    given = taken;
  }
  return given > 0;
}

// Returns the sender before.
std::uint32_t sender_balance::hand_over(std::size_t i, std::uint32_t to) {
  const auto giver = std::exchange(demands_[i].source, to);
  const auto bytes = layer_bytes_[demands_[i].layer];
  load_[to] += bytes;
  load_[giver] -= bytes;
  std::erase(sent_by_[giver], i);
  sent_by_[to].insert(std::lower_bound(sent_by_[to].begin(), sent_by_[to].end(), i), i);
  return giver;
}

} // namespace parcae

#include "actors/manager/link_report.hpp"

#include "protocols/base/text.hpp"

#include <array>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace parcae {

namespace {

/// How many links there are of each sort.
class link_places {
public:
  explicit link_places(const placement& grid) : grid_(grid) {}

  /// Of each of these ranks to each other; their number may be large.
  void add(std::span<const std::uint32_t> ranks) {
    std::map<std::string_view, std::uint64_t> by_instance, by_host; // an instance is on one host
    for (const auto rank : ranks) {
      const auto& x = grid_.participants.at(rank);
      ++by_instance[x.slot.instance];
      ++by_host[x.host];
    }
    const auto pairs = [](std::uint64_t n) { return n * (n - 1) / 2; };
    std::uint64_t of_instances = 0, of_hosts = 0;
    for (const auto& [instance, n] : by_instance)
      of_instances += pairs(n);
    for (const auto& [host, n] : by_host)
      of_hosts += pairs(n);
    counts_[0] += of_instances;
    counts_[1] += of_hosts - of_instances;
    counts_[2] += pairs(ranks.size()) - of_hosts;
  }

  bool empty() const { return counts_ == decltype(counts_){}; }
  bool within_process() const { return counts_[1] == 0 && counts_[2] == 0; }

  /// "1 link between slots of one process, 2 between processes of one machine".
  std::string text(bool copied) const {
    const std::array<std::string, 3> names{std::string("slots of one process") +
                                               (copied ? " (copied from GPU to GPU)" : ""),
                                           "processes of one machine", "machines"};
    std::string result;
    for (std::size_t i = 0; i < names.size(); ++i)
      if (counts_[i] > 0)
        result +=
            (result.empty() ? counted(counts_[i], "link") : ", " + std::to_string(counts_[i])) + " between " + names[i];
    return result;
  }

private:
  const placement& grid_;
  std::array<std::uint64_t, 3> counts_{};
};

/// What moves these, and why it is no better, `why` that is not NCCL.
link_status link_of(const std::string& kind, const link_places& places, const transport_state& said,
                    const std::string& why) {
  if (said.by == "nccl")
    return {kind, said.by, {}};
  if (said.peers.used && places.within_process())
    return {kind, "peer", said.peers.reason.empty() ? std::string() : places.text(false) + "; " + said.peers.reason};
  std::string reason = why;
  if (!reason.empty() && !said.peers.reason.empty())
    reason += "; within a process: " + said.peers.reason;
  return {kind, said.by, reason.empty() ? reason : places.text(said.peers.used) + "; " + reason};
}

/// Why the job as a whole is not on NCCL; empty: for processors there is nothing better.
std::string obstacle_of(const transport_state& said, const std::string& wanted) {
  if (said.device == "cpu")
    return {};
  if (!said.reason.empty())
    return said.reason;
  if (wanted == "nccl")
    return "NCCL is not yet made";
  return "NCCL is not asked for (job.transport is " + wanted + ")";
}

} // namespace

std::vector<link_status> links_of(const placement& grid, const transport_state& said, const std::string& wanted) {
  if (said.by.empty() || grid.ranks() < 2)
    return {};
  link_places activations(grid), sums(grid), all(grid);
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t rank = 0; rank < grid.ranks(); ++rank) {
    ranks.push_back(rank);
    if (grid.stage_of(rank) + 1 < grid.depth)
      activations.add(std::array{rank, rank + 1});
  }
  all.add(ranks);
  for (std::uint32_t stage = 0; stage < grid.depth; ++stage) {
    std::vector<std::uint32_t> pipelines;
    for (std::uint32_t d = 0; d < grid.width; ++d)
      pipelines.push_back(grid.rank(d, stage));
    sums.add(pipelines);
  }
  const auto why = obstacle_of(said, wanted);
  std::vector<link_status> result;
  for (const auto& [kind, places] : {std::pair("activations", &activations), std::pair("all-reduce", &sums)})
    if (!places->empty())
      result.push_back(link_of(kind, *places, said, why));
  auto by_tcp = said; // as the next generation begins
  by_tcp.by = "tcp";
  result.push_back(link_of("shards", all, by_tcp, said.device == "cpu" ? "" : "they move before NCCL is made"));
  return result;
}

} // namespace parcae

#include "actors/manager/link_report.hpp"

#include "protocols/base/text.hpp"

#include <array>
#include <utility>

namespace parcae {

namespace {

/// How many links there are of each sort.
class link_places {
public:
  explicit link_places(const placement& grid) : grid_(grid) {}

  void add(std::uint32_t one, std::uint32_t other) {
    const auto &x = grid_.participants.at(one), &y = grid_.participants.at(other);
    ++counts_[x.slot.instance == y.slot.instance ? 0 : x.host == y.host ? 1 : 2];
  }

  bool empty() const { return counts_ == decltype(counts_){}; }

  /// "1 link between slots of one process, 2 between processes of one machine".
  std::string text() const {
    constexpr std::array names{"slots of one process", "processes of one machine", "machines"};
    std::string result;
    for (std::size_t i = 0; i < names.size(); ++i)
      if (counts_[i] > 0)
        result +=
            (result.empty() ? counted(counts_[i], "link") : ", " + std::to_string(counts_[i])) + " between " + names[i];
    return result;
  }

private:
  const placement& grid_;
  std::array<std::uint32_t, 3> counts_{};
};

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
  link_places activations(grid), sums(grid);
  for (std::uint32_t rank = 0; rank < grid.ranks(); ++rank) {
    if (grid.stage_of(rank) + 1 < grid.depth)
      activations.add(rank, rank + 1);
    for (auto d = grid.pipeline_of(rank) + 1; d < grid.width; ++d)
      sums.add(rank, grid.rank(d, grid.stage_of(rank)));
  }
  const auto why = obstacle_of(said, wanted);
  std::vector<link_status> result;
  for (const auto& [kind, places] : {std::pair("activations", &activations), std::pair("all-reduce", &sums)})
    if (!places->empty())
      result.push_back({kind, said.by, said.by == "nccl" || why.empty() ? std::string() : places->text() + "; " + why});
  result.push_back({"shards", "tcp", said.device == "cpu" ? "" : "they move before NCCL is made"});
  return result;
}

} // namespace parcae

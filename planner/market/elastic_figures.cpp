#include "planner/market/elastic_figures.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

namespace parcae::market {

namespace {

class change_times {
public:
  change_times(const profile& workload, const change_figures& figures, std::uint32_t slots) :
      workload_(workload), costs_(workload_, options_of(figures, slots)), slots_(slots) {}

  // Mean over random losses; those that come are prepared while the others train.
  double seconds(std::uint32_t from, std::uint32_t to) {
    const auto [found, is_new] = known_.try_emplace({from, to}, 0);
    if (is_new) {
      const auto before = workload_.fastest(from * slots_), after = workload_.fastest(to * slots_);
      if (after.width > 0)
        found->second =
            (before.width == 0 ? costs_.start_ms(after, false)
                               : costs_.move_ms(before, after, std::max(from, to), from > to ? from - to : 0)) /
            1000;
    }
    return found->second;
  }

private:
  static realistic_options options_of(const change_figures& figures, std::uint32_t slots) {
    realistic_options result;
    result.figures = figures;
    result.devices = slots;
    result.kept.at_once = true;
    return result;
  }

  profile workload_;
  realistic_cost costs_;
  std::uint32_t slots_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, double> known_;
};

} // namespace

change_figures figures_with_builds(const profile& workload) {
  auto result = figures_of(workload);
  if (workload.changes)
    return result;
  double build_ms = 0;
  for (const auto& [depth, ms] : workload.model_build_ms)
    build_ms += ms / static_cast<double>(workload.model_build_ms.size());
  result.prepare_ms += build_ms;
  return result;
}

purchase_options elastic_figures(const profile& workload, const change_figures& figures, std::uint32_t slots,
                                 std::uint32_t most) {
  purchase_options result;
  for (std::uint32_t n = 0; n <= most; ++n)
    result.samples_per_s.push_back(workload.throughput(workload.fastest(n * slots)));
  const auto times = std::make_shared<change_times>(workload, figures, slots);
  result.change_s = [times](std::uint32_t from, std::uint32_t to) { return times->seconds(from, to); };
  double parameters = 0;
  for (const auto& x : workload.layers)
    parameters += x.parameters;
  const double bytes = parameters * workload.state_bytes_per_parameter();
  for (std::uint32_t n = 1; n <= most; ++n)
    result.move_s = std::max(result.move_s, times->seconds(0, n) + bytes / figures.link_bytes_per_ms / 1000);
  return result;
}

} // namespace parcae::market

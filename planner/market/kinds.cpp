#include "planner/market/kinds.hpp"

#include <algorithm>
#include <numeric>

namespace parcae::market {

namespace {

std::optional<double> least_usd_per_h(const std::string& kind, bool spot, const std::vector<instance_pool>& pools) {
  std::optional<double> result;
  for (const auto& x : pools)
    if (x.kind == kind && x.spot == spot && x.usd_per_h)
      result = std::min(result.value_or(*x.usd_per_h), *x.usd_per_h);
  return result;
}

double sum(const std::vector<double>& rates, std::size_t sizes) {
  return std::accumulate(rates.begin(), rates.begin() + static_cast<std::ptrdiff_t>(sizes), 0.0);
}

} // namespace

double speed_of(const std::string& kind, const renting_job& job, const std::vector<instance_pool>& pools) {
  if (kind == job.kind || job.kind.empty())
    return 1;
  if (const auto known = job.speeds.find(kind); known != job.speeds.end())
    return known->second;
  for (const bool spot : {false, true}) {
    const auto usd = least_usd_per_h(kind, spot, pools), known_usd = least_usd_per_h(job.kind, spot, pools);
    if (usd && known_usd && *usd > 0 && *known_usd > 0)
      return *usd / *known_usd;
  }
  return 1;
}

double speed_between(const std::vector<double>& of, const std::vector<double>& over) {
  const auto sizes = std::min(of.size(), over.size());
  const double known = sum(over, sizes);
  return known > 0 ? sum(of, sizes) / known : 1;
}

} // namespace parcae::market

#include "forecast/lattice.hpp"

#include <utility>

namespace parcae {

std::uint32_t quantile(const distribution& p, double q) {
  double below = 0;
  for (std::size_t i = 0; i < p.size(); ++i)
    if ((below += p[i]) >= q - 1e-12)
      return static_cast<std::uint32_t>(i);
  return p.empty() ? 0 : static_cast<std::uint32_t>(p.size() - 1);
}

std::vector<distribution> availability_of(const availability_lattice& x) {
  std::vector<distribution> result;
  auto weight = x.start;
  for (std::size_t h = 0; h < x.look_ahead(); ++h) {
    std::vector<double> next(x.stages[h + 1].size(), 0);
    for (std::size_t i = 0; i < x.stages[h].size(); ++i)
      for (const auto& b : x.stages[h][i].branches)
        next[b.next] += weight[i] * b.probability;
    distribution p;
    for (std::size_t i = 0; i < next.size(); ++i) {
      const auto n = x.stages[h + 1][i].available;
      if (p.size() <= n)
        p.resize(n + 1, 0);
      p[n] += next[i];
    }
    result.push_back(std::move(p));
    weight = std::move(next);
  }
  return result;
}

double intervals_until_change(const availability_lattice& x, double most) {
  auto mass = x.start;
  double changes = 0;
  for (std::size_t h = 0; h < x.look_ahead(); ++h) {
    std::vector<double> next(x.stages[h + 1].size(), 0);
    for (std::size_t i = 0; i < mass.size(); ++i)
      for (const auto& b : x.stages[h][i].branches) {
        next[b.next] += mass[i] * b.probability;
        changes += b.joined + b.lost > 0 ? mass[i] * b.probability : 0;
      }
    mass = std::move(next);
  }
  const auto intervals = static_cast<double>(x.look_ahead());
  return changes * most > intervals ? intervals / changes : most;
}

availability_lattice single_path(std::uint32_t available, const std::vector<std::uint32_t>& next) {
  availability_lattice result;
  result.start = {1};
  result.stages.push_back({{available, {}}});
  for (auto n : next) {
    result.stages.back()[0].branches = {{n > available ? n - available : 0, n < available ? available - n : 0, 1, 0}};
    result.stages.push_back({{n, {}}});
    available = n;
  }
  return result;
}

} // namespace parcae

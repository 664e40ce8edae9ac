#include "forecast/lattice.hpp"

#include <map>
#include <tuple>
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

availability_lattice merged(const std::vector<availability_lattice>& parts, const std::vector<double>& weights) {
  availability_lattice result;
  std::vector<std::vector<double>> mass; // by part and node of the stage
  for (std::size_t i = 0; i < parts.size(); ++i) {
    mass.push_back(parts[i].start);
    for (auto& x : mass.back())
      x *= weights[i];
  }
  const auto look_ahead = parts.empty() ? 0 : parts[0].look_ahead();
  for (std::size_t h = 0; h <= look_ahead; ++h) {
    // By availability: total mass and the masses of what happens next, (joined, lost).
    std::map<std::uint32_t, std::pair<double, std::map<std::pair<std::uint32_t, std::uint32_t>, double>>> merged_nodes;
    std::vector<std::vector<double>> next_mass;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      next_mass.emplace_back(h < look_ahead ? parts[i].stages[h + 1].size() : 0, 0);
      for (std::size_t k = 0; k < parts[i].stages[h].size(); ++k) {
        const auto& node = parts[i].stages[h][k];
        auto& [sum, steps] = merged_nodes[node.available];
        sum += mass[i][k];
        for (const auto& b : node.branches) {
          steps[{b.joined, b.lost}] += mass[i][k] * b.probability;
          next_mass[i][b.next] += mass[i][k] * b.probability;
        }
      }
    }
    std::map<std::uint32_t, std::uint32_t> next_number; // the next stage's nodes will be in order of availability
    if (h < look_ahead) {
      for (const auto& part : parts)
        for (const auto& node : part.stages[h + 1])
          next_number[node.available] = 0;
      std::uint32_t number = 0;
      for (auto& [available, index] : next_number)
        index = number++;
    }
    auto& stage = result.stages.emplace_back();
    for (const auto& [available, content] : merged_nodes) {
      const auto& [sum, steps] = content;
      auto& node = stage.emplace_back(lattice_node{available, {}});
      if (h == 0)
        result.start.push_back(sum);
      for (const auto& [step, p] : steps)
        if (p > 0)
          node.branches.push_back(
              {step.first, step.second, p / sum, next_number.at(available + step.first - step.second)});
      if (h < look_ahead && node.branches.empty()) // mass 0: anything that leads on
        node.branches.push_back({0, 0, 1, next_number.begin()->second});
    }
    mass = std::move(next_mass);
  }
  return result;
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

#pragma once

// A distribution over the next intervals: a layered graph whose paths are possible futures. Nodes know how many
// instances there are; branches say what happens at the start of the next interval. Everything that forecasts yields
// one of these.

#include <cstdint>
#include <vector>

namespace parcae {

struct lattice_branch {
  std::uint32_t joined = 0;
  std::uint32_t lost = 0;
  double probability = 0; ///< of this branch, given the node
  std::uint32_t next = 0; ///< node of the next stage
};

struct lattice_node {
  std::uint32_t available = 0;
  std::vector<lattice_branch> branches; ///< probabilities sum to 1; empty in the last stage
};

/// stages[0] holds the present: one node, or several that are told apart only later, with their weights. stages.size()
/// is the look-ahead + 1.
struct availability_lattice {
  std::vector<std::vector<lattice_node>> stages;
  std::vector<double> start; ///< weights of stages[0]; sum to 1

  std::size_t look_ahead() const { return stages.empty() ? 0 : stages.size() - 1; }
};

/// Probabilities of 0, 1, 2, … instances (or losses).
using distribution = std::vector<double>;

/// Smallest value with at least this probability of not being exceeded; 0 of nothing.
std::uint32_t quantile(const distribution& p, double q);

/// Of the availability after each interval of the look-ahead.
std::vector<distribution> availability_of(const availability_lattice& x);

/// Mean number of intervals until the fleet changes, `most` at most.
double intervals_until_change(const availability_lattice& x, double most);

/// A lattice with one path.
availability_lattice single_path(std::uint32_t available, const std::vector<std::uint32_t>& next);

} // namespace parcae

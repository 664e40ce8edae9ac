#include "tests/planner/situation/least_cost.hpp"

#define LEMON_ONLY_TEMPLATES // no library
#include <lemon/network_simplex.h>
#include <lemon/smart_graph.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace parcae {

cost_in_order least_cost(const std::vector<std::vector<cost_in_order>>& cost) {
  const auto rows = cost.size(), columns = cost.at(0).size();
  cost_in_order most{};
  for (const auto& row : cost)
    for (const auto& x : row)
      for (std::size_t i = 0; i < x.size(); ++i)
        most[i] = std::max(most[i], x[i]);
  // A component weighs more than any sum of those behind it.
  const auto places = static_cast<std::int64_t>(rows);
  const std::int64_t second = places * most[2] + 1, first = second * (places * most[1] + 1);
  if (std::ldexp(static_cast<double>(rows + columns), 1) * static_cast<double>(most[0] + 1) *
          static_cast<double>(first) >
      std::ldexp(1, 62))
    throw std::overflow_error("these costs are too large to be weighed");

  lemon::SmartDigraph graph;
  lemon::SmartDigraph::NodeMap<int> supply(graph);
  lemon::SmartDigraph::ArcMap<std::int64_t> weight(graph);
  for (std::size_t i = 0; i < rows + columns; ++i)
    supply[graph.addNode()] = i < rows ? 1 : -1; // a column takes at most one
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      weight[graph.addArc(graph.nodeFromId(static_cast<int>(i)), graph.nodeFromId(static_cast<int>(rows + j)))] =
          cost[i][j][0] * first + cost[i][j][1] * second + cost[i][j][2];
  lemon::NetworkSimplex<lemon::SmartDigraph, int, std::int64_t> simplex(graph);
  if (simplex.supplyMap(supply).costMap(weight).run() != simplex.OPTIMAL)
    throw std::invalid_argument("there are fewer columns than rows");

  cost_in_order sum{};
  for (lemon::SmartDigraph::ArcIt arc(graph); arc != lemon::INVALID; ++arc)
    if (simplex.flow(arc) > 0) {
      const auto row = static_cast<std::size_t>(graph.id(graph.source(arc)));
      const auto column = static_cast<std::size_t>(graph.id(graph.target(arc))) - rows;
      for (std::size_t i = 0; i < sum.size(); ++i)
        sum[i] += cost[row][column][i];
    }
  return sum;
}

} // namespace parcae

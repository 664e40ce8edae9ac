#include "planner/placement.hpp"

#include <algorithm>
#include <compare>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <tuple>

namespace parcae {

namespace {

// Kuhn–Munkres by shortest augmenting paths with potentials (Jonker and Volgenant's form). Cost may be any ordered
// abelian group, so ties can be broken by further components without scaling.
template <class Cost>
std::vector<std::uint32_t> kuhn_munkres(const std::vector<std::vector<Cost>>& cost) {
  const std::size_t rows = cost.size();
  const std::size_t columns = rows == 0 ? 0 : cost[0].size();
  if (columns < rows)
    throw std::invalid_argument("fewer columns than rows to assign");
  constexpr auto nobody = std::numeric_limits<std::size_t>::max();
  std::vector<Cost> row_potential(rows), column_potential(columns + 1);
  std::vector<std::size_t> row_of(columns + 1, nobody); // column `columns` stands for the row being placed
  for (std::size_t placed = 0; placed < rows; ++placed) {
    std::vector<std::optional<Cost>> distance(columns);
    std::vector<std::size_t> from(columns, columns);
    std::vector<bool> done(columns + 1, false);
    std::size_t column = columns;
    row_of[column] = placed;
    while (row_of[column] != nobody) {
      done[column] = true;
      const auto row = row_of[column];
      std::size_t next = nobody;
      for (std::size_t j = 0; j < columns; ++j) {
        if (done[j])
          continue;
        const Cost reduced = cost[row][j] - row_potential[row] - column_potential[j];
        if (!distance[j] || reduced < *distance[j]) {
          distance[j] = reduced;
          from[j] = column;
        }
        if (next == nobody || *distance[j] < *distance[next])
          next = j;
      }
      const Cost delta = *distance[next];
      for (std::size_t j = 0; j <= columns; ++j) {
        if (done[j]) {
          row_potential[row_of[j]] = row_potential[row_of[j]] + delta;
          column_potential[j] = column_potential[j] - delta;
        } else if (j < columns) {
          distance[j] = *distance[j] - delta;
        }
      }
      column = next;
    }
    for (; column != columns; column = from[column])
      row_of[column] = row_of[from[column]];
  }
  std::vector<std::uint32_t> result(rows);
  for (std::size_t j = 0; j < columns; ++j)
    if (row_of[j] != nobody)
      result[row_of[j]] = static_cast<std::uint32_t>(j);
  return result;
}

// What a place costs, compared in this order.
struct place_cost {
  std::int64_t bytes = 0; // to move
  std::int64_t moved = 0; // 1: the slot had another place before
  std::int64_t age = 0;   // position in order of age

  friend auto operator<=>(const place_cost&, const place_cost&) = default;

  friend place_cost operator+(const place_cost& a, const place_cost& b) {
    return {a.bytes + b.bytes, a.moved + b.moved, a.age + b.age};
  }

  friend place_cost operator-(const place_cost& a, const place_cost& b) {
    return {a.bytes - b.bytes, a.moved - b.moved, a.age - b.age};
  }
};

// A layer that one destination needs, and who could send it.
struct demand {
  std::uint32_t layer;
  std::uint32_t destination;           // rank
  std::vector<std::uint32_t> possible; // candidates, sorted
  std::uint32_t source = 0;            // one of them
};

// Takes load off the busiest senders along shortest chains "a's demand goes to b, b's to c …", as long as the load of
// the busiest falls without another rising to it. Optimal for layers of equal size (Harvey et al., Semi-matchings for
// bipartite graphs); else a good heuristic, as the problem is NP-hard.
void balance(std::vector<demand>& demands, std::span<const std::uint64_t> layer_bytes,
             std::vector<std::uint64_t>& load) {
  const auto senders = static_cast<std::uint32_t>(load.size());
  auto relieve = [&](std::uint32_t busiest) {
    constexpr auto none = std::numeric_limits<std::size_t>::max();
    std::vector<std::size_t> by(senders, none); // the demand that would be handed to a sender
    std::vector<std::uint32_t> queue{busiest};
    std::vector<bool> seen(senders, false);
    seen[busiest] = true;
    for (std::size_t head = 0; head < queue.size(); ++head)
      for (std::size_t i = 0; i < demands.size(); ++i) {
        if (demands[i].source != queue[head])
          continue;
        for (auto to : demands[i].possible) {
          if (seen[to])
            continue;
          seen[to] = true;
          by[to] = i;
          queue.push_back(to);
          // Follow the chain back: with it carried out, everyone on it must stay below the busiest of now.
          auto after = load;
          for (auto s = to; s != busiest; s = demands[by[s]].source) {
            after[s] += layer_bytes[demands[by[s]].layer];
            after[demands[by[s]].source] -= layer_bytes[demands[by[s]].layer];
          }
          bool better = after[busiest] < load[busiest];
          for (auto s = to; s != busiest; s = demands[by[s]].source)
            better = better && after[s] < load[busiest];
          if (!better)
            continue;
          for (auto s = to; s != busiest;) {
            auto& moved = demands[by[s]];
            const auto giver = moved.source;
            moved.source = s;
            s = giver;
          }
          load = after;
          return true;
        }
      }
    return false;
  };
  // Each success lowers the sorted vector of loads lexicographically; the bound only guards against long plateaus.
  for (std::size_t round = 0; round < 4 * demands.size() + 4; ++round) {
    const auto most = *std::max_element(load.begin(), load.end());
    bool improved = false;
    for (std::uint32_t s = 0; s < senders && !improved; ++s)
      improved = load[s] == most && relieve(s);
    if (!improved)
      return;
  }
}

migration kind_of(const placement& target, const placement* before) {
  if (before == nullptr)
    return migration::none;
  if (target.depth != before->depth)
    return migration::pipeline;
  std::map<slot_id, std::uint32_t> old_stage;
  for (std::uint32_t rank = 0; rank < before->ranks(); ++rank)
    old_stage[before->participants.at(rank).slot] = before->stage_of(rank);
  bool same = target.width == before->width && target.first_layer == before->first_layer;
  for (std::uint32_t rank = 0; rank < target.ranks(); ++rank) {
    const auto& slot = target.participants[rank].slot;
    auto old = old_stage.find(slot);
    if (old != old_stage.end() && old->second != target.stage_of(rank))
      return migration::inter_stage;
    same = same && slot == before->participants.at(rank).slot;
  }
  if (target.first_layer != before->first_layer)
    return migration::inter_stage;
  return same ? migration::none : migration::intra_stage;
}

} // namespace

std::vector<std::uint32_t> partition_layers(std::span<const double> layer_ms, std::uint32_t depth) {
  const auto n = static_cast<std::uint32_t>(layer_ms.size());
  if (depth < 1 || depth > n)
    throw std::invalid_argument("cannot split " + std::to_string(n) + " layers into " + std::to_string(depth) +
                                " stages");
  // The slowest stage's time is one of the sums of consecutive layers. Sums are always added from the front, so that
  // they compare exactly.
  std::vector<double> sums;
  sums.reserve(static_cast<std::size_t>(n) * (n + 1) / 2);
  for (std::uint32_t i = 0; i < n; ++i) {
    double sum = 0;
    for (std::uint32_t j = i; j < n; ++j)
      sums.push_back(sum += layer_ms[j]);
  }
  std::sort(sums.begin(), sums.end());
  sums.erase(std::unique(sums.begin(), sums.end()), sums.end());
  // stages_needed[i]: least number of stages for the layers from i on; n + 1 if one layer alone is too slow.
  std::vector<std::uint32_t> stages_needed(n + 1);
  auto fill = [&](double limit) {
    stages_needed[n] = 0;
    for (auto i = n; i-- > 0;) {
      double sum = layer_ms[i];
      auto end = i;
      stages_needed[i] = n + 1;
      while (end < n && sum <= limit) {
        ++end;
        stages_needed[i] = std::min(stages_needed[i], stages_needed[end] + 1);
        if (end < n)
          sum += layer_ms[end];
      }
    }
    return stages_needed[0];
  };
  const auto best = std::partition_point(sums.begin(), sums.end(), [&](double limit) { return fill(limit) > depth; });
  if (best == sums.end())
    throw std::invalid_argument("layer times must be finite and not negative");
  fill(*best);
  std::vector<std::uint32_t> first{0};
  for (std::uint32_t left = depth - 1; left > 0; --left) {
    auto end = first.back() + 1;
    while (stages_needed[end] > left)
      ++end;
    first.push_back(end);
  }
  first.push_back(n);
  return first;
}

std::vector<std::uint32_t> assign(const std::vector<std::vector<std::int64_t>>& cost) {
  return kuhn_munkres(cost);
}

change_plan plan_change(std::uint32_t width, std::span<const std::uint32_t> first_layer,
                        const std::vector<candidate>& candidates, const version& at,
                        std::span<const std::uint64_t> layer_bytes, const placement* before) {
  if (width < 1 || first_layer.size() < 2 || first_layer.back() != layer_bytes.size())
    throw std::invalid_argument("stages do not cover the layers");
  const auto layers = static_cast<std::uint32_t>(layer_bytes.size());
  const auto depth = static_cast<std::uint32_t>(first_layer.size() - 1);
  change_plan plan;
  plan.target.width = width;
  plan.target.depth = depth;
  plan.target.first_layer.assign(first_layer.begin(), first_layer.end());
  const auto ranks = plan.target.ranks();

  // From here on in order of age, so that the order in which candidates are given does not matter.
  std::vector<const candidate*> all;
  for (const auto& x : candidates)
    all.push_back(&x);
  std::sort(all.begin(), all.end(), [](const candidate* a, const candidate* b) {
    return std::tie(a->age, a->where.slot) < std::tie(b->age, b->where.slot);
  });

  // Who holds what at the version wanted; keepers count only for what no worker holds.
  std::vector<std::vector<bool>> holds(all.size(), std::vector<bool>(layers, false));
  std::vector<std::vector<std::uint32_t>> holders(layers);
  for (const bool keeper : {false, true}) {
    std::vector<std::vector<std::uint32_t>> found(layers);
    for (std::uint32_t i = 0; i < all.size(); ++i)
      if (all[i]->keeper == keeper)
        for (const auto& [layer, held_at] : all[i]->held)
          if (layer < layers && held_at == at && !holds[i][layer]) {
            holds[i][layer] = true;
            found[layer].push_back(i);
          }
    for (std::uint32_t layer = 0; layer < layers; ++layer)
      if (holders[layer].empty())
        holders[layer] = std::move(found[layer]);
  }
  for (std::uint32_t layer = 0; layer < layers; ++layer)
    if (holders[layer].empty()) {
      if (at != version{})
        throw std::invalid_argument("nobody holds layer " + std::to_string(layer) + " at " + to_string(at));
      plan.seeded.push_back(layer);
    }

  std::vector<std::uint32_t> usable;
  for (std::uint32_t i = 0; i < all.size(); ++i)
    if (!all[i]->keeper && !all[i]->leaving)
      usable.push_back(i);
  if (usable.size() < ranks)
    throw std::invalid_argument(std::to_string(ranks) + " places, but only " + std::to_string(usable.size()) +
                                " slots for them");
  std::map<slot_id, std::pair<std::uint32_t, std::uint32_t>> old_place; // (pipeline, stage)
  if (before != nullptr)
    for (std::uint32_t rank = 0; rank < before->ranks(); ++rank)
      old_place[before->participants.at(rank).slot] = {before->pipeline_of(rank), before->stage_of(rank)};

  std::vector<std::vector<place_cost>> cost(ranks, std::vector<place_cost>(usable.size()));
  for (std::uint32_t column = 0; column < usable.size(); ++column) {
    const auto i = usable[column];
    const auto old = old_place.find(all[i]->where.slot);
    for (std::uint32_t stage = 0; stage < depth; ++stage) {
      std::int64_t bytes = 0;
      for (auto layer = first_layer[stage]; layer < first_layer[stage + 1]; ++layer)
        if (!holds[i][layer] && !holders[layer].empty())
          bytes += static_cast<std::int64_t>(layer_bytes[layer]);
      for (std::uint32_t pipeline = 0; pipeline < width; ++pipeline) {
        const bool stays = old != old_place.end() && old->second == std::pair(pipeline, stage);
        cost[plan.target.rank(pipeline, stage)][column] = {bytes, stays ? 0 : 1, column};
      }
    }
  }
  std::vector<std::uint32_t> chosen = kuhn_munkres(cost);
  std::uint32_t kept_place = 0;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    kept_place += cost[rank][chosen[rank]].moved == 0 ? 1 : 0;
    chosen[rank] = usable[chosen[rank]];
    plan.target.participants.push_back(all[chosen[rank]]->where);
  }

  // Sources: large layers first, each from the sender with least so far; then improved.
  std::vector<demand> demands;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const auto stage = plan.target.stage_of(rank);
    for (auto layer = first_layer[stage]; layer < first_layer[stage + 1]; ++layer)
      if (!holds[chosen[rank]][layer] && !holders[layer].empty())
        demands.push_back({layer, rank, holders[layer]});
  }
  std::stable_sort(demands.begin(), demands.end(),
                   [&](const demand& a, const demand& b) { return layer_bytes[a.layer] > layer_bytes[b.layer]; });
  std::vector<std::uint64_t> load(all.size(), 0);
  for (auto& x : demands) {
    x.source = *std::min_element(x.possible.begin(), x.possible.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::tuple(load[a], !all[a]->leaving, a) < std::tuple(load[b], !all[b]->leaving, b);
    });
    load[x.source] += layer_bytes[x.layer];
    plan.bytes += layer_bytes[x.layer];
  }
  if (!demands.empty())
    balance(demands, layer_bytes, load);

  std::map<std::uint32_t, std::uint32_t> participant_of;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    participant_of[chosen[rank]] = rank;
  std::set<std::uint32_t> senders;
  for (const auto& x : demands)
    senders.insert(x.source);
  for (auto i : senders)
    if (participant_of.try_emplace(i, static_cast<std::uint32_t>(plan.target.participants.size())).second)
      plan.target.participants.push_back(all[i]->where);
  for (const auto& x : demands)
    plan.moves.push_back({x.layer, participant_of.at(x.source), x.destination});
  std::sort(plan.moves.begin(), plan.moves.end(), [](const shard_move& a, const shard_move& b) {
    return std::tie(a.layer, a.destination) < std::tie(b.layer, b.destination);
  });
  plan.kind = kind_of(plan.target, before);
  plan.reason = std::to_string(width) + "x" + std::to_string(depth) + " on " + std::to_string(usable.size()) +
                " slots: " + std::to_string(kept_place) + " of " + std::to_string(ranks) + " places as before, " +
                std::to_string(plan.bytes) + " bytes from " + std::to_string(senders.size()) + " senders";
  return plan;
}

} // namespace parcae

#include "planner/situation/placement.hpp"

#include <algorithm>
#include <compare>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace parcae {

namespace {

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

// Candidates that are alike: they hold the same, and had the same stage before, in a pipeline that there still is.
struct candidate_class {
  std::uint32_t home = UINT32_MAX;    // stage
  std::vector<place_cost> cost;       // by stage, without age
  std::vector<std::uint32_t> members; // ages, ascending
  std::vector<std::uint32_t> placed;  // by stage: how many; all together the oldest
  std::uint32_t taken = 0;            // sum of placed

  bool is_free() const { return taken < members.size(); }
  place_cost youngest_cost(std::uint32_t stage) const { return cost[stage] + place_cost{0, 0, members[taken]}; }
};

// The cheapest way to give each stage `width` candidates: successive shortest augmenting paths with potentials, as
// Kuhn–Munkres, but with what is alike taken together. A stage's places cost the same (who had one of them keeps it),
// so a path only goes from stage to stage, over the classes that are placed there; age does not depend on the stage, so
// of a class the oldest are taken, and it only counts at a path's end. O(places · stages · (stages + classes)) instead
// of O(places² · candidates), and far less where most stay.
class stage_assignment {
public:
  stage_assignment(std::uint32_t stages, std::vector<candidate_class>& classes) :
      classes_(classes), present_(stages), potential_(stages) {
    for (auto& c : classes_)
      c.placed.assign(stages, 0);
  }

  void fill(std::uint32_t width) {
    for (std::uint32_t i = 0; i < width; ++i)
      for (std::uint32_t stage = 0; stage < present_.size(); ++stage)
        place_one_more(stage);
  }

private:
  // How a stage is reached: one of class `by` leaves it for stage `to`.
  struct reached {
    std::optional<place_cost> distance;
    std::uint32_t to = 0;
    std::size_t by = 0;
    bool done = false;
  };

  void place_one_more(std::uint32_t start) {
    const auto stages = static_cast<std::uint32_t>(present_.size());
    std::vector<reached> at(stages);
    at[start].distance = place_cost{};
    std::optional<place_cost> shortest; // to a candidate that is free, of class `last_class`, for `last_stage`
    std::uint32_t last_stage = 0;
    std::size_t last_class = 0;
    for (;;) {
      auto stage = stages;
      for (std::uint32_t s = 0; s < stages; ++s)
        if (!at[s].done && at[s].distance && (stage == stages || *at[s].distance < *at[stage].distance))
          stage = s;
      if (stage == stages || (shortest && !(*at[stage].distance < *shortest)))
        break;
      at[stage].done = true;
      const auto from_here = *at[stage].distance - potential_[stage];
      for (std::size_t c = 0; c < classes_.size(); ++c)
        if (classes_[c].is_free())
          if (const auto distance = from_here + classes_[c].youngest_cost(stage); !shortest || distance < *shortest) {
            shortest = distance;
            last_stage = stage;
            last_class = c;
          }
      for (std::uint32_t s = 0; s < stages; ++s) {
        if (at[s].done)
          continue;
        for (auto c : present_[s]) {
          const auto distance = from_here + classes_[c].cost[stage] - classes_[c].cost[s] + potential_[s];
          if (!at[s].distance || distance < *at[s].distance)
            at[s] = {distance, stage, c, false};
        }
      }
    }
    for (std::uint32_t s = 0; s < stages; ++s)
      if (at[s].done)
        potential_[s] = potential_[s] + *shortest - *at[s].distance;
    ++classes_[last_class].taken;
    add(last_class, last_stage);
    for (auto s = last_stage; s != start; s = at[s].to) {
      remove(at[s].by, s);
      add(at[s].by, at[s].to);
    }
  }

  void add(std::size_t c, std::uint32_t stage) {
    if (classes_[c].placed[stage]++ == 0)
      present_[stage].push_back(c);
  }

  void remove(std::size_t c, std::uint32_t stage) {
    if (--classes_[c].placed[stage] == 0)
      std::erase(present_[stage], c);
  }

  std::vector<candidate_class>& classes_;
  std::vector<std::vector<std::size_t>> present_; // by stage: classes placed there
  std::vector<place_cost> potential_;             // by stage
};

// A layer that one destination needs, and who could send it.
struct demand {
  std::uint32_t layer;
  std::uint32_t destination;                  // rank
  const std::vector<std::uint32_t>* possible; // candidates, sorted
  std::uint32_t source = 0;                   // one of them
};

// Takes load off the busiest senders along shortest chains "a's demand goes to b, b's to c …", as long as the load of
// the busiest falls without another rising to it. Optimal for layers of equal size (Harvey et al., Semi-matchings for
// bipartite graphs); else a good heuristic, as the problem is NP-hard.
class sender_balance {
public:
  sender_balance(std::vector<demand>& demands, std::span<const std::uint64_t> layer_bytes,
                 std::vector<std::uint64_t>& load) :
      demands_(demands),
      layer_bytes_(layer_bytes), load_(load), sent_by_(load.size()) {
    for (std::size_t i = 0; i < demands_.size(); ++i)
      sent_by_[demands_[i].source].push_back(i);
  }

  void improve() {
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

private:
  static constexpr auto none = std::numeric_limits<std::size_t>::max();

  // No choice of sources makes the busiest sender carry less.
  std::uint64_t least_possible() const {
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

  bool relieve(std::uint32_t busiest) {
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
  bool is_better(const std::vector<std::size_t>& by, std::uint32_t busiest, std::uint32_t end) const {
    std::uint64_t given = 0; // by s
    for (auto s = end; s != busiest; s = demands_[by[s]].source) {
      const auto taken = layer_bytes_[demands_[by[s]].layer];
      if (load_[s] + taken - given >= load_[busiest])
        return false;
      given = taken;
    }
    return given > 0;
  }

  // Returns who sent it before.
  std::uint32_t hand_over(std::size_t i, std::uint32_t to) {
    const auto giver = std::exchange(demands_[i].source, to);
    const auto bytes = layer_bytes_[demands_[i].layer];
    load_[to] += bytes;
    load_[giver] -= bytes;
    std::erase(sent_by_[giver], i);
    sent_by_[to].insert(std::lower_bound(sent_by_[to].begin(), sent_by_[to].end(), i), i);
    return giver;
  }

  std::vector<demand>& demands_;
  std::span<const std::uint64_t> layer_bytes_;
  std::vector<std::uint64_t>& load_;
  std::vector<std::vector<std::size_t>> sent_by_; // by sender: demands, ascending
};

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
  std::map<slot_id, std::uint32_t> old_rank;
  if (before != nullptr)
    for (std::uint32_t rank = 0; rank < before->ranks(); ++rank)
      old_rank[before->participants.at(rank).slot] = rank;
  // The rank of the same pipeline and stage, if there is one.
  const auto same_place = [&](std::uint32_t i) -> std::optional<std::uint32_t> {
    const auto old = old_rank.find(all[i]->where.slot);
    if (old == old_rank.end() || before->pipeline_of(old->second) >= width || before->stage_of(old->second) >= depth)
      return {};
    return plan.target.rank(before->pipeline_of(old->second), before->stage_of(old->second));
  };

  std::vector<candidate_class> classes;
  std::map<std::pair<std::vector<bool>, std::uint32_t>, std::size_t> class_of;
  for (auto i : usable) {
    const auto same = same_place(i);
    const auto home = same ? plan.target.stage_of(*same) : UINT32_MAX;
    const auto [found, is_new] = class_of.try_emplace({holds[i], home}, classes.size());
    if (is_new) {
      auto& c = classes.emplace_back();
      c.home = home;
      for (std::uint32_t stage = 0; stage < depth; ++stage) {
        std::int64_t bytes = 0;
        for (auto layer = first_layer[stage]; layer < first_layer[stage + 1]; ++layer)
          if (!holds[i][layer] && !holders[layer].empty())
            bytes += static_cast<std::int64_t>(layer_bytes[layer]);
        c.cost.push_back({bytes, stage == home ? 0 : 1, 0});
      }
    }
    classes[found->second].members.push_back(i);
  }
  stage_assignment(depth, classes).fill(width);

  // Slots assigned to the stage they had keep their place; the others take the places left, oldest first.
  constexpr auto nobody = UINT32_MAX;
  std::vector<std::uint32_t> chosen(ranks, nobody);
  std::vector<std::vector<std::uint32_t>> newcomers(depth);
  std::uint32_t kept_place = 0;
  for (const auto& c : classes) {
    auto next = c.members.begin();
    if (c.home != UINT32_MAX)
      for (std::uint32_t n = 0; n < c.placed[c.home]; ++n, ++next, ++kept_place)
        chosen[*same_place(*next)] = *next;
    // In the order of ranks: of slots that are alike the first make up the first pipeline.
    auto left = c.placed;
    if (c.home != UINT32_MAX)
      left[c.home] = 0;
    while (std::ranges::any_of(left, [](auto n) { return n > 0; }))
      for (std::uint32_t stage = 0; stage < depth; ++stage)
        if (left[stage] > 0) {
          --left[stage];
          newcomers[stage].push_back(*next++);
        }
  }
  for (std::uint32_t stage = 0; stage < depth; ++stage) {
    std::sort(newcomers[stage].begin(), newcomers[stage].end());
    auto next = newcomers[stage].begin();
    for (std::uint32_t pipeline = 0; pipeline < width; ++pipeline)
      if (auto& place = chosen[plan.target.rank(pipeline, stage)]; place == nobody)
        place = *next++;
  }
  for (auto i : chosen)
    plan.target.participants.push_back(all[i]->where);

  // Sources: large layers first, each from the sender with least so far; then improved.
  std::vector<demand> demands;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const auto stage = plan.target.stage_of(rank);
    for (auto layer = first_layer[stage]; layer < first_layer[stage + 1]; ++layer)
      if (!holds[chosen[rank]][layer] && !holders[layer].empty())
        demands.push_back({layer, rank, &holders[layer]});
  }
  std::stable_sort(demands.begin(), demands.end(),
                   [&](const demand& a, const demand& b) { return layer_bytes[a.layer] > layer_bytes[b.layer]; });
  std::vector<std::uint64_t> load(all.size(), 0);
  for (auto& x : demands) {
    x.source = *std::min_element(x.possible->begin(), x.possible->end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::tuple(load[a], !all[a]->leaving, a) < std::tuple(load[b], !all[b]->leaving, b);
    });
    load[x.source] += layer_bytes[x.layer];
    plan.bytes += layer_bytes[x.layer];
  }
  if (!demands.empty())
    sender_balance(demands, layer_bytes, load).improve();

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

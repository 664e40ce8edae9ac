#include "planner/situation/placement.hpp"

#include "planner/situation/sender_balance.hpp"
#include "planner/situation/stage_assignment.hpp"
#include "protocols/base/text.hpp"
#include "protocols/values/shape.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace parcae {

namespace {

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

// A change, step by step. Candidates are numbered in order of age, so that the order in which they are given does not
// matter.
class change_planner {
public:
  change_planner(std::uint32_t width, std::span<const std::uint32_t> first_layer,
                 const std::vector<candidate>& candidates, const version& at,
                 std::span<const std::uint64_t> layer_bytes, const placement* before) :
      at_(at),
      layer_bytes_(layer_bytes), before_(before) {
    plan_.target.width = width;
    plan_.target.depth = static_cast<std::uint32_t>(first_layer.size() - 1);
    plan_.target.first_layer.assign(first_layer.begin(), first_layer.end());
    for (const auto& x : candidates)
      candidates_.push_back(&x);
    std::sort(candidates_.begin(), candidates_.end(), [](const candidate* a, const candidate* b) {
      return std::tie(a->age, a->where.slot) < std::tie(b->age, b->where.slot);
    });
  }

  change_plan plan() {
    find_holders();
    assign_places();
    choose_sources();
    number_participants();
    explain();
    return std::move(plan_);
  }

private:
  static constexpr auto nobody = UINT32_MAX;

  // The holders of each layer at the version wanted; keepers count only for what no worker holds.
  void find_holders() {
    const auto layers = static_cast<std::uint32_t>(layer_bytes_.size());
    holds_.assign(candidates_.size(), std::vector<bool>(layers, false));
    holders_.resize(layers);
    for (const bool keeper : {false, true}) {
      std::vector<std::vector<std::uint32_t>> found(layers);
      for (std::uint32_t i = 0; i < candidates_.size(); ++i)
        if (candidates_[i]->keeper == keeper)
          for (const auto& [layer, held_at] : candidates_[i]->held)
            if (layer < layers && held_at == at_ && !holds_[i][layer]) {
              holds_[i][layer] = true;
              found[layer].push_back(i);
            }
      for (std::uint32_t layer = 0; layer < layers; ++layer)
        if (holders_[layer].empty())
          holders_[layer] = std::move(found[layer]);
    }
    for (std::uint32_t layer = 0; layer < layers; ++layer)
      if (holders_[layer].empty()) {
        if (at_ != version{})
          throw std::invalid_argument("nobody holds layer " + std::to_string(layer) + " at " + to_string(at_));
        plan_.seeded.push_back(layer);
      }
  }

  // Gives each rank a slot. Slots that may stay where they were do; the others take what is left, by age.
  void assign_places() {
    for (std::uint32_t i = 0; i < candidates_.size(); ++i)
      if (!candidates_[i]->keeper && !candidates_[i]->leaving)
        usable_.push_back(i);
    const auto ranks = plan_.target.ranks();
    if (usable_.size() < ranks)
      throw std::invalid_argument(std::to_string(ranks) + " places, but only " + std::to_string(usable_.size()) +
                                  " slots for them");
    if (before_ != nullptr)
      for (std::uint32_t rank = 0; rank < before_->ranks(); ++rank)
        old_rank_[before_->participants.at(rank).slot] = rank;
    auto classes = classes_of_usable();
    stage_assignment(plan_.target.depth, classes).fill(plan_.target.width);
    chosen_.assign(ranks, nobody);
    std::vector<std::vector<std::uint32_t>> newcomers(plan_.target.depth);
    for (const auto& c : classes)
      seat(c, newcomers);
    for (std::uint32_t stage = 0; stage < plan_.target.depth; ++stage) {
      std::sort(newcomers[stage].begin(), newcomers[stage].end());
      auto next = newcomers[stage].begin();
      for (std::uint32_t pipeline = 0; pipeline < plan_.target.width; ++pipeline)
        if (auto& place = chosen_[plan_.target.rank(pipeline, stage)]; place == nobody)
          place = *next++;
    }
  }

  // The rank of the same pipeline and stage as before, if there is one.
  std::optional<std::uint32_t> same_place(std::uint32_t i) const {
    const auto old = old_rank_.find(candidates_[i]->where.slot);
    if (old == old_rank_.end() || before_->pipeline_of(old->second) >= plan_.target.width ||
        before_->stage_of(old->second) >= plan_.target.depth)
      return {};
    return plan_.target.rank(before_->pipeline_of(old->second), before_->stage_of(old->second));
  }

  std::vector<candidate_class> classes_of_usable() const {
    std::vector<candidate_class> classes;
    std::map<std::pair<std::vector<bool>, std::uint32_t>, std::size_t> class_of;
    for (auto i : usable_) {
      const auto same = same_place(i);
      const auto home = same ? plan_.target.stage_of(*same) : UINT32_MAX;
      const auto [found, is_new] = class_of.try_emplace({holds_[i], home}, classes.size());
      if (is_new) {
        auto& c = classes.emplace_back();
        c.home = home;
        for (std::uint32_t stage = 0; stage < plan_.target.depth; ++stage)
          c.cost.push_back({bytes_to_move(i, stage), stage == home ? 0 : 1, 0});
      }
      classes[found->second].members.push_back(i);
    }
    return classes;
  }

  std::int64_t bytes_to_move(std::uint32_t i, std::uint32_t stage) const {
    std::int64_t bytes = 0;
    each_missing(i, stage, [&](std::uint32_t layer) { bytes += static_cast<std::int64_t>(layer_bytes_[layer]); });
    return bytes;
  }

  // Calls f(layer) for what i must be sent to compute a stage.
  template <class F>
  void each_missing(std::uint32_t i, std::uint32_t stage, F f) const {
    for (auto layer = plan_.target.first_layer[stage]; layer < plan_.target.first_layer[stage + 1]; ++layer)
      if (!holds_[i][layer] && !holders_[layer].empty())
        f(layer);
  }

  // Those of a class: at home its oldest, who keep their places; else in the order of ranks, since of slots that are
  // alike the first make up the first pipeline.
  void seat(const candidate_class& c, std::vector<std::vector<std::uint32_t>>& newcomers) {
    auto next = c.members.begin();
    auto left = c.placed;
    if (c.home != UINT32_MAX)
      for (; left[c.home] > 0; --left[c.home], ++next, ++kept_places_)
        chosen_[*same_place(*next)] = *next;
    while (std::ranges::any_of(left, [](auto n) { return n > 0; }))
      for (std::uint32_t stage = 0; stage < plan_.target.depth; ++stage)
        if (left[stage] > 0) {
          --left[stage];
          newcomers[stage].push_back(*next++);
        }
  }

  // Large layers first, each from the sender with least so far; then improved.
  void choose_sources() {
    for (std::uint32_t rank = 0; rank < chosen_.size(); ++rank)
      each_missing(chosen_[rank], plan_.target.stage_of(rank), [&](std::uint32_t layer) {
        demands_.push_back({layer, rank, &holders_[layer]});
      });
    std::stable_sort(demands_.begin(), demands_.end(),
                     [&](const demand& a, const demand& b) { return layer_bytes_[a.layer] > layer_bytes_[b.layer]; });
    std::vector<std::uint64_t> load(candidates_.size(), 0);
    for (auto& x : demands_) {
      x.source = *std::min_element(x.possible->begin(), x.possible->end(), [&](std::uint32_t a, std::uint32_t b) {
        return std::tuple(load[a], !candidates_[a]->leaving, a) < std::tuple(load[b], !candidates_[b]->leaving, b);
      });
      load[x.source] += layer_bytes_[x.layer];
      plan_.bytes += layer_bytes_[x.layer];
    }
    if (!demands_.empty())
      sender_balance(demands_, layer_bytes_, load).improve();
  }

  // Ranks come first, then those that only send, by age.
  void number_participants() {
    auto& participants = plan_.target.participants;
    std::map<std::uint32_t, std::uint32_t> number_of;
    for (std::uint32_t rank = 0; rank < chosen_.size(); ++rank) {
      participants.push_back(candidates_[chosen_[rank]]->where);
      number_of[chosen_[rank]] = rank;
    }
    for (const auto& x : demands_)
      senders_.insert(x.source);
    for (auto i : senders_)
      if (number_of.try_emplace(i, static_cast<std::uint32_t>(participants.size())).second)
        participants.push_back(candidates_[i]->where);
    for (const auto& x : demands_)
      plan_.moves.push_back({x.layer, number_of.at(x.source), x.destination});
    std::sort(plan_.moves.begin(), plan_.moves.end(), [](const shard_move& a, const shard_move& b) {
      return std::tie(a.layer, a.destination) < std::tie(b.layer, b.destination);
    });
  }

  void explain() {
    plan_.kind = kind_of(plan_.target, before_);
    plan_.reason = to_string(shape{plan_.target.width, plan_.target.depth}) + " on " + counted(usable_.size(), "slot") +
                   ": " + std::to_string(kept_places_) + " of " + counted(chosen_.size(), "place") + " as before, " +
                   (plan_.bytes == 0 ? "nothing to move"
                                     : text_of_quantity(static_cast<double>(plan_.bytes)) + "B to move, from " +
                                           counted(senders_.size(), "sender"));
  }

  const version at_;
  const std::span<const std::uint64_t> layer_bytes_;
  const placement* const before_;
  std::vector<const candidate*> candidates_;        // by age
  std::vector<std::vector<bool>> holds_;            // by candidate, layer
  std::vector<std::vector<std::uint32_t>> holders_; // by layer: candidates
  std::vector<std::uint32_t> usable_;               // candidates for places
  std::map<slot_id, std::uint32_t> old_rank_;
  std::vector<std::uint32_t> chosen_; // by rank: candidate
  std::uint32_t kept_places_ = 0;
  std::vector<demand> demands_;
  std::set<std::uint32_t> senders_; // candidates
  change_plan plan_;
};

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
  return change_planner(width, first_layer, candidates, at, layer_bytes, before).plan();
}

} // namespace parcae

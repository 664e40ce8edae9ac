#include "actors/conductor/cache_planning.hpp"

#include "planner/serving/cache_moves.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace parcae {

namespace {

/// Slots as the planner knows them: those of the new placement by participant, others behind them.
using slot_numbers = std::map<slot_id, std::uint64_t>;

serving::pipeline_places places_of(const placement& grid, std::uint32_t pipeline, slot_numbers& numbers) {
  serving::pipeline_places result;
  for (std::uint32_t stage = 0; stage < grid.depth; ++stage) {
    const auto& slot = grid.participants[grid.rank(pipeline, stage)].slot;
    const auto number = numbers.try_emplace(slot, numbers.size()).first->second;
    result.stages.push_back({number, grid.first_layer[stage + 1]});
  }
  return result;
}

bool is_whole(const cache_situation& now, std::uint32_t pipeline) {
  for (std::uint32_t stage = 0; stage < now.before->depth; ++stage)
    if (!now.there.contains(now.before->participants[now.before->rank(pipeline, stage)].slot))
      return false;
  return true;
}

/// Quicker to compute: why. Empty: it is not, or nothing is measured.
std::string why_computed(const cache_situation& now, const serving::cache_plan& plan) {
  if (!(now.row_ms > 0) || !(now.link_bytes_per_ms > 0))
    return {};
  const auto layer = std::accumulate(now.layer_bytes.begin(), now.layer_bytes.end(), 0.0) /
                     static_cast<double>(now.layer_bytes.size());
  const auto moving = plan.transfer_ms(layer, now.link_bytes_per_ms);
  const auto computing = plan.computing_ms(now.row_ms);
  return moving < computing ? std::string()
                            : ", caches are computed again, in " + text_of_quantity(computing / 1e3) +
                                  "s, as to move them takes " + text_of_quantity(moving / 1e3) + "s";
}

} // namespace

planned_caches plan_cache_moves(const cache_situation& now, placement& target) {
  planned_caches result;
  if (!now.before || now.layer_bytes.size() != target.first_layer.back() ||
      now.before->first_layer.back() != target.first_layer.back())
    return result;
  slot_numbers numbers;
  for (const auto& x : target.participants)
    numbers.try_emplace(x.slot, numbers.size());
  std::vector<serving::pipeline_places> next;
  for (std::uint32_t i = 0; i < target.width; ++i)
    next.push_back(places_of(target, i, numbers));
  std::vector<serving::cached_pipeline> old;
  for (std::uint32_t i = 0; i < now.before->width; ++i) {
    const auto known = now.cached.empty() ? 0 : now.cached.at(i);
    // Requests may have come since, but not into a pipeline that is not whole.
    old.push_back({places_of(*now.before, i, numbers), is_whole(now, i) ? known + 1 : 0});
  }
  const auto plan = serving::plan_all_caches(old, next);
  if (plan.moves.empty())
    return result;
  if (result.reason = why_computed(now, plan); !result.reason.empty())
    return result;
  auto& all = target.participants;
  for (const auto& x : plan.moves) {
    if (std::all_of(now.layer_bytes.begin() + x.first_layer, now.layer_bytes.begin() + x.last_layer,
                    [](double bytes) { return bytes == 0; }))
      continue;
    const auto source = std::ranges::find(numbers, x.source, [](const auto& y) { return y.second; })->first;
    const auto known = std::ranges::find(all, source, &participant::slot);
    const auto number = static_cast<std::uint32_t>(known - all.begin());
    if (known == all.end())
      all.push_back(*std::ranges::find(now.before->participants, source, &participant::slot));
    result.moves.push_back({x.first_layer, x.last_layer, number, static_cast<std::uint32_t>(x.destination)});
  }
  result.reason = ", " + counted(result.moves.size(), "move") + " of caches";
  return result;
}

} // namespace parcae

#include "actors/conductor/generations.hpp"

#include <algorithm>
#include <ranges>
#include <utility>

namespace parcae {

std::vector<std::uint32_t> layers_of(const placement& grid, std::uint32_t stage) {
  std::vector<std::uint32_t> result;
  for (auto layer = grid.first_layer[stage]; layer < grid.first_layer[stage + 1]; ++layer)
    result.push_back(layer);
  return result;
}

std::uint64_t steps_told_by(const aborted& x) {
  return std::max(x.at.steps, x.result.step == no_step ? 0 : x.result.step + 1);
}

void rank_starts::begins(const active& x, std::optional<time_point> answered_at, time_point now) {
  auto at = now;
  if (answered_at && x.since_ms >= 0) {
    const std::chrono::duration<double, std::milli> since(x.since_ms), at_most(now - *answered_at);
    if (since < at_most)
      at = *answered_at + std::chrono::duration_cast<time_point::duration>(since);
  }
  last = std::max(last.value_or(at), at);
  early_ms = std::max(early_ms, x.early_ms);
}

trained_generation::trained_generation(generation g, placement grid, std::uint64_t base,
                                       std::chrono::steady_clock::time_point begun_at) :
    g(g),
    grid(std::move(grid)), base(base), begun_at(begun_at) {
  for (std::uint32_t rank = 0; rank < this->grid.ranks(); ++rank)
    rank_of[this->grid.participants[rank].slot] = rank;
}

std::optional<std::uint32_t> trained_generation::rank(const slot_id& slot) const {
  const auto it = rank_of.find(slot);
  return it == rank_of.end() ? std::nullopt : std::optional(it->second);
}

bool trained_generation::is_source(const slot_id& slot) const {
  const auto& all = grid.participants;
  return !committed &&
         std::any_of(all.begin() + grid.ranks(), all.end(), [&](const auto& x) { return x.slot == slot; });
}

std::set<slot_id> trained_generation::sources() const {
  std::set<slot_id> result;
  for (auto i = grid.ranks(); !committed && i < grid.participants.size(); ++i)
    result.insert(grid.participants[i].slot);
  return result;
}

std::set<slot_id> trained_generation::ranks() const {
  const auto slots = rank_of | std::views::keys;
  return {slots.begin(), slots.end()};
}

std::set<slot_id> trained_generation::ranks_of_pipeline(const slot_id& slot) const {
  std::set<slot_id> result;
  if (const auto r = rank(slot))
    for (std::uint32_t stage = 0; stage < grid.depth; ++stage)
      result.insert(grid.participants[grid.rank(grid.pipeline_of(*r), stage)].slot);
  return result;
}

std::vector<std::uint32_t> trained_generation::layers_of(const slot_id& slot) const {
  const auto r = rank(slot);
  return r ? parcae::layers_of(grid, grid.stage_of(*r)) : std::vector<std::uint32_t>{};
}

std::vector<rank_report> trained_generation::said() const {
  std::vector<rank_report> result;
  for (const auto& [rank, answer] : aborted_ranks)
    result.push_back({rank, answer});
  return result;
}

inventory trained_generation::left_by_release(const slot_id& slot, inventory held) const {
  const auto keeps = layers_of(slot);
  std::erase_if(held, [&](const auto& x) { return !std::ranges::binary_search(keeps, x.layer); });
  return held;
}

void trained_generation::note_answer(const slot_id& slot) {
  if (const auto r = rank(slot))
    answered_stages.insert(grid.stage_of(*r));
}

bool trained_generation::only_holder_among(const std::set<slot_id>& awaited) const {
  return answered_stages.size() < grid.depth && std::ranges::any_of(awaited, [&](const slot_id& slot) {
           const auto r = rank(slot);
           return r && !answered_stages.contains(grid.stage_of(*r));
         });
}

bool trained_generation::stands_at_base() const {
  return !committed && std::ranges::any_of(aborted_ranks, [&](const auto& x) { // a void stage has a result
    return x.second.at.steps <= base && x.second.complete == no_step && x.second.result.step == no_step;
  });
}

bool trained_generation::lacks_stage() const {
  std::vector<bool> held(grid.depth);
  auto missing = grid.depth;
  for (const auto& [rank, said] : aborted_ranks) {
    const auto stage = grid.stage_of(rank);
    if (held[stage] || !std::ranges::all_of(parcae::layers_of(grid, stage), [&](auto layer) {
          return std::ranges::find(said.held, layer_version{layer, said.at}) != said.held.end();
        }))
      continue;
    held[stage] = true;
    if (--missing == 0)
      return false; // asked once per answer of a thousand ranks
  }
  return true;
}

std::set<slot_id> planned_generation::participants() const {
  std::set<slot_id> result;
  for (const auto& x : what.target.participants)
    result.insert(x.slot);
  return result;
}

std::set<slot_id> planned_generation::destinations() const {
  std::set<slot_id> result;
  for (const auto& x : what.moves)
    result.insert(what.target.participants[x.destination].slot);
  return result;
}

bool planned_generation::has(const slot_id& slot) const {
  return std::ranges::any_of(what.target.participants, [&](const auto& x) { return x.slot == slot; });
}

std::optional<std::uint32_t> planned_generation::rank(const slot_id& slot) const {
  const auto& all = what.target.participants;
  const auto ranks = all.begin() + what.target.ranks();
  const auto it = std::find_if(all.begin(), ranks, [&](const auto& x) { return x.slot == slot; });
  return it == ranks ? std::nullopt : std::optional(static_cast<std::uint32_t>(it - all.begin()));
}

} // namespace parcae

#include "actors/conductor/protection.hpp"

#include "planner/situation/keeper_shares.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>

namespace parcae {

namespace {

std::vector<holder> keepers_of(const roster& all) {
  std::vector<holder> result;
  for (const auto& [id, slot] : all.keepers())
    result.push_back({id, true, slot.held});
  return result;
}

std::set<std::uint32_t> layers_at(const version& x, const slot_state& keeper) {
  std::set<std::uint32_t> result;
  for (const auto& held : keeper.held)
    if (held.at == x && x.steps > 0)
      result.insert(held.layer);
  return result;
}

std::map<std::string, std::set<std::uint32_t>> computed_by_machine(const roster& all, const placement* grid) {
  std::map<std::string, std::set<std::uint32_t>> result;
  for (std::uint32_t rank = 0; grid && rank < grid->ranks(); ++rank)
    if (const auto* slot = all.find(grid->participants[rank].slot); slot && !slot->machine.id.empty()) {
      const auto stage = grid->stage_of(rank);
      auto& layers = result[slot->machine.id];
      for (auto layer = grid->first_layer[stage]; layer < grid->first_layer[stage + 1]; ++layer)
        layers.insert(layer);
    }
  return result;
}

keeper_status status_of(const slot_id& where, const inventory& held) {
  version newest;
  for (const auto& layer : held)
    newest = std::max(newest, layer.at);
  const auto layers = std::ranges::count(held, newest, &layer_version::at);
  return {where.instance, newest.steps, static_cast<std::uint32_t>(layers)};
}

} // namespace

bool protection::assign(const roster& all, const placement* grid) {
  const auto before = std::exchange(shares_, {});
  computed_ = computed_by_machine(all, grid);
  std::vector<keeper_room> rooms;
  for (auto& keeper : all.snapshot_targets()) {
    const auto& slot = *all.find(keeper.slot);
    rooms.push_back({layers_at(newest(), slot), slot.memory.bytes, computed_beside(slot)});
    shares_.push_back({std::move(keeper), {}});
  }
  auto layers = share_among_keepers(rooms, job_.model.state_bytes, job_.specification.keeper_copies);
  std::vector<std::uint32_t> copies(job_.layers());
  for (std::size_t k = 0; k < shares_.size(); ++k) {
    for (const auto layer : layers[k])
      ++copies[layer];
    shares_[k].layers = std::move(layers[k]);
  }
  fewest_ = copies.empty() ? 0 : *std::ranges::min_element(copies);
  return shares_ != before;
}

std::set<std::uint32_t> protection::computed_beside(const slot_state& keeper) const {
  const auto x = computed_.find(keeper.machine.id);
  return x == computed_.end() ? std::set<std::uint32_t>{} : x->second;
}

std::set<std::uint32_t> protection::held_with_ranks(const version& x, const roster& all) const {
  std::set<std::uint32_t> result, apart;
  for (const auto& [id, slot] : all.keepers()) {
    const auto computed = computed_beside(slot);
    for (const auto layer : layers_at(x, slot))
      (computed.contains(layer) ? result : apart).insert(layer);
  }
  for (const auto layer : apart)
    result.erase(layer);
  return result;
}

bool protection::update(roster& all, const commit_chain& chain, std::uint64_t steps_done) {
  const auto holders = keepers_of(all);
  const auto before = std::pair(newest(), safe_);
  steps_done_ = steps_done;
  view_.protected_version = newest_complete(chain, job_.layers(), holders);
  if (newest() > before.first) {
    const auto after = before.first.steps > 0 ? newest().steps - before.first.steps : 0;
    came_late_ = std::max({after, steps_done - std::min(steps_done, newest().steps), came_late_ / 2});
  }
  view_.protected_now = is_recent(newest());
  reached_ = std::max(reached_, newest());
  safe_ = newest_complete(chain, job_.layers(), holders, std::max(fewest_, 1u));
  last_safe_ = std::max(last_safe_, safe_);
  if (newest() != before.first) {
    digests_asked_ = false;
    for (auto&& [id, slot] : all.keepers())
      slot.digests.clear();
  }
  return before != std::pair(newest(), safe_);
}

// Of snapshots that come as links allow the next one is as slow as the last, and on its way when that has come.
std::uint64_t protection::max_behind() const {
  constexpr std::uint64_t least = 10;
  return 2 * (job_.specification.paces_snapshots() ? std::max(least, 2 * came_late_) : job_.specification.keeper_every);
}

std::vector<std::pair<slot_id, replicate>> protection::missing(const roster& all) const {
  std::map<slot_id, std::set<std::uint32_t>> held;
  for (const auto& [id, slot] : all.keepers())
    if (!slot.excluded)
      held[id] = layers_at(newest(), slot);
  std::vector<std::uint32_t> needed(job_.layers()); // more copies
  for (const auto& [keeper, layers] : shares_)
    for (const auto layer : layers)
      ++needed[layer];
  for (const auto& [keeper, layers] : shares_) // not only those that are to: what is somewhere need not be moved
    for (const auto layer : layers_at(newest(), *all.find(keeper.slot)))
      if (layer < needed.size() && needed[layer] > 0)
        --needed[layer];
  std::map<slot_id, std::uint64_t> sent; // bytes
  std::vector<std::pair<slot_id, replicate>> result;
  for (const auto& [keeper, layers] : shares_) {
    const auto has = layers_at(newest(), *all.find(keeper.slot));
    std::map<slot_id, std::vector<std::uint32_t>> by_source;
    for (const auto layer : layers) {
      const slot_id* from = nullptr;
      for (const auto& [id, theirs] : held)
        if (theirs.contains(layer) && (!from || sent[id] < sent[*from]))
          from = &id;
      if (!from || needed[layer] == 0 || has.contains(layer))
        continue;
      --needed[layer];
      sent[*from] += job_.model.state_bytes[layer];
      by_source[*from].push_back(layer);
    }
    for (auto& [from, what] : by_source)
      result.emplace_back(from, replicate{job_.id, newest(), keeper, std::move(what)});
  }
  return result;
}

protection_view protection::view(const roster& all) const {
  auto result = view_;
  result.protected_steps = newest().steps;
  result.layers = job_.layers();
  for (const auto& [id, slot] : all.keepers())
    result.keepers.push_back(status_of(id, slot.held));
  const auto& at = result.copied_version = is_recent(safe_) ? safe_ : newest();
  result.copied_steps = at.steps;
  if (at.steps == 0 || job_.layers() == 0)
    return result;
  const auto wanted = job_.specification.keeper_copies;
  const auto copies = copies_at(at, job_.layers(), keepers_of(all));
  result.copies = std::min(wanted, *std::ranges::min_element(copies));
  const auto with_ranks = all.machine_count() > 1 ? held_with_ranks(at, all) : std::set<std::uint32_t>{};
  if (result.copies < wanted)
    result.copies_problem = problem_of(at, all);
  else if (!with_ranks.empty())
    result.copies_problem = "of " + counted(with_ranks.size(), "layer") + ", from layer " +
                            std::to_string(*with_ranks.begin()) + " on, only where they are trained";
  return result;
}

std::string protection::problem_of(const version& x, const roster& all) const {
  const auto wanted = job_.specification.keeper_copies;
  if (shares_.size() < wanted)
    return "there " + std::string(shares_.size() == 1 ? "is " : "are ") + counted(shares_.size(), "keeper");
  if (fewest_ < wanted)
    return "the keepers have too little memory";
  std::string names;
  for (const auto& [keeper, layers] : shares_)
    if (!std::ranges::includes(layers_at(x, *all.find(keeper.slot)), layers))
      names += (names.empty() ? "" : ", ") + keeper.slot.instance;
  return names + " lacks step " + std::to_string(x.steps);
}

void protection::believe(slot_state& keeper, std::uint64_t most, time_point now) {
  keeper.held = keeper.reported;
  if (std::erase_if(keeper.held, [&](const auto& x) { return x.at.steps > most; }) > 0 && !doubtful_)
    doubtful_ = now;
}

std::map<std::uint32_t, std::string> digests_of(const roster& all) {
  std::map<std::uint32_t, std::string> result;
  for (const auto& [id, slot] : all.keepers())
    for (const auto& x : slot.digests)
      result[x.layer] = x.sha256;
  return result;
}

checkpoint_reading reading_of(const roster& all, const version& at, std::uint32_t layers) {
  checkpoint_reading result;
  std::vector<bool> held(layers);
  for (const auto& [id, slot] : all.keepers()) {
    if (slot.excluded)
      continue;
    result.asked = true;
    if (!slot.read)
      result.readers.insert(id);
    else if (!slot.read->problem.empty()) {
      result.problems += (result.problems.empty() ? "" : "; ") + slot.read->problem;
      result.damaged |= slot.read->damaged;
      result.passing |= slot.read->passing;
    }
    for (const auto& x : slot.held)
      if (x.at == at && x.layer < layers)
        held[x.layer] = true;
  }
  for (std::uint32_t layer = 0; layer < layers; ++layer)
    if (!held[layer])
      result.lost.push_back(layer);
  return result;
}

} // namespace parcae

#include "actors/conductor/protection.hpp"

#include <algorithm>

namespace parcae {

bool protection::update(roster& all, const commit_chain& chain, std::uint32_t layers, std::uint64_t steps_done,
                        std::uint64_t keeper_every) {
  std::vector<holder> holders;
  for (const auto& [id, slot] : all.keepers())
    holders.push_back({id, true, slot.held});
  const auto before = newest();
  view_.protected_version = newest_complete(chain, layers, holders);
  view_.protected_now = newest().steps > 0 && newest().steps + 2 * keeper_every > steps_done;
  if (newest() == before)
    return false;
  digests_asked_ = false;
  for (auto&& [id, slot] : all.keepers())
    slot.digests.clear();
  if (newest().steps > 0)
    confirmed_ = std::max(confirmed_, newest());
  return true;
}

void protection::believe(slot_state& keeper, std::uint64_t most, time_point now) {
  keeper.held = keeper.told;
  if (std::erase_if(keeper.held, [&](const auto& x) { return x.at.steps > most; }) > 0 && !doubtful_)
    doubtful_ = now;
}

keeper_record keeper_record_of(const slot_id& where, const inventory& held) {
  keeper_record result{where, {}, 0};
  for (const auto& layer : held)
    result.newest = std::max(result.newest, layer.at);
  for (const auto& layer : held)
    result.layers += layer.at == result.newest;
  return result;
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

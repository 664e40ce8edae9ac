#include "tests/simulation/faults.hpp"

#include "protocols/wire/type_ids.hpp"

#include <caf/make_message.hpp>

#include <algorithm>
#include <map>
#include <variant>

namespace parcae::simulation {

namespace {

std::vector<std::uint32_t> layers_of(const generation_history& g, const slot_id& slot) {
  std::vector<std::uint32_t> result;
  for (std::uint32_t r = 0; r < g.grid.ranks(); ++r)
    if (g.grid.participants[r].slot == slot)
      for (auto l = g.grid.first_layer[g.grid.stage_of(r)]; l < g.grid.first_layer[g.grid.stage_of(r) + 1]; ++l)
        result.push_back(l);
  return result;
}

inventory counted_twice(const inventory& held, std::uint32_t layers) {
  std::map<version, std::set<std::uint32_t>> by_version;
  for (const auto& x : held)
    by_version[x.at].insert(x.layer);
  for (auto& [at, all] : by_version) {
    auto more = all.size();
    for (std::uint32_t layer = 0; layer < layers && more > 0; ++layer)
      more -= all.insert(layer).second;
  }
  inventory result;
  for (const auto& [at, all] : by_version)
    for (const auto layer : all)
      result.push_back({layer, at});
  std::ranges::sort(result);
  return result;
}

} // namespace

std::vector<caf::message> faulty_messages::in_place_of(const addressee& to, const command& what,
                                                       const caf::message& message) {
  const auto g = generation_of(what);
  if (fault_ == fault::dropped_repeat && g != generation{} && !said_.emplace(to.slot, what.index(), g).second)
    return {};
  if (const auto* a = std::get_if<activate>(&what); a && fault_ == fault::early_release)
    if (const auto known = seen_.generations.find(a->next); known != seen_.generations.end())
      return {message, caf::make_message(to, release{a->next, layers_of(known->second, to.slot)})};
  return {message};
}

std::vector<caf::message> faulty_messages::in_place_of(const slot_id& from, const report& what,
                                                       const caf::message& message) const {
  if (const auto* k = std::get_if<kept>(&what); k && fault_ == fault::version_counted_twice) {
    auto other = *k;
    other.held = counted_twice(k->held, seen_.layers);
    return {caf::make_message(from, other)};
  }
  return {message};
}

} // namespace parcae::simulation

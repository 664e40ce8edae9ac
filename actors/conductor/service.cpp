#include "actors/conductor/service.hpp"

#include "actors/conductor/cache_planning.hpp"

#include <algorithm>
#include <iterator>

namespace parcae {

// Gateways

std::vector<service::gateway>::const_iterator service::find(const slot_id& slot) const {
  return std::ranges::find(gateways_, slot, &gateway::slot);
}

std::vector<service::gateway>::iterator service::find(const slot_id& slot) {
  return std::ranges::find(gateways_, slot, &gateway::slot);
}

void service::join(const slot_id& slot, std::string http) {
  lose(slot);
  gateways_.push_back({slot, std::move(http), {}, {}});
}

void service::lose(const slot_id& slot) {
  std::erase_if(gateways_, [&](const auto& x) { return x.slot == slot; });
}

std::vector<slot_id> service::gateways() const {
  std::vector<slot_id> result;
  for (const auto& x : gateways_)
    result.push_back(x.slot);
  return result;
}

bool service::is_idle(const slot_id& slot) const {
  const auto x = find(slot);
  return x == gateways_.end() || x != gateways_.begin() ||
         (x->said && x->said->requests.queued + x->said->requests.running == 0);
}

void service::hear(const slot_id& slot, const routed& x) {
  const auto by = find(slot);
  if (by == gateways_.end())
    return;
  by->said = x;
  if (by == gateways_.begin()) {
    meter_.learn(x);
    if (x.pipelines > 0 && x.cached.size() == x.pipelines)
      cached_ = {x.current, x.cached};
  }
  if (by->told != way{x.current, x.pipelines})
    by->told.reset(); // it was another process, or has not heard it yet: a ROUTE that comes twice does no harm
}

void service::forget_told(const slot_id& slot) {
  if (const auto x = find(slot); x != gateways_.end())
    x->told.reset();
}

bool service::is_told(const way& x) const {
  return std::ranges::all_of(gateways_,
                             [&](const auto& y) { return y.told == (&y == &gateways_.front() ? x : way{}); });
}

std::vector<std::pair<slot_id, service::way>> service::to_be_told(const way& x) {
  std::vector<std::pair<slot_id, way>> result;
  for (auto& each : gateways_) {
    const auto wanted = &each == &gateways_.front() ? x : way{};
    if (each.told == wanted)
      continue;
    each.told = wanted;
    result.emplace_back(each.slot, wanted);
  }
  return result;
}

// Ranks

bool service::hear(const trained_generation& g, const slot_id& rank, const served& x) {
  if (of_ != g.g) {
    of_ = g.g;
    heard_.clear();
    last_.clear();
  }
  if (!g.has(rank) || g.gone.contains(rank))
    return false;
  last_[rank] = x;
  const auto stage = g.grid.stage_of(g.rank_of.at(rank));
  meter_.learn(g.grid.first_layer[stage], g.grid.first_layer[stage + 1], x.by_size);
  heard_.insert(rank);
  const bool all = std::ranges::all_of(
      g.rank_of, [&](const auto& y) { return heard_.contains(y.first) || g.gone.contains(y.first); });
  if (all)
    heard_.clear();
  return all;
}

std::string service::plan_caches(const generations& all, const roster& slots,
                                 const std::vector<std::uint64_t>& layer_bytes, double link_bytes_per_ms,
                                 prepare& into) const {
  if (!all.last_grid)
    return {};
  cache_situation now{
      .before = &*all.last_grid, .row_ms = meter_.row_ms(*all.last_grid), .link_bytes_per_ms = link_bytes_per_ms};
  for (std::uint32_t rank = 0; rank < now.before->ranks(); ++rank) {
    const auto& id = now.before->participants[rank].slot;
    const auto* slot = slots.find(id);
    if (slot && !slot->excluded && !(all.current && all.current->gone.contains(id)))
      now.there.insert(id);
  }
  if (cached_.first == all.last && cached_.second.size() == now.before->width)
    now.cached = cached_.second;
  now.layer_bytes.assign(layer_bytes.begin(), layer_bytes.end());
  auto plan = plan_cache_moves(now, into.target);
  into.caches = std::move(plan.moves);
  return plan.reason;
}

std::vector<std::uint32_t> service::common_sizes(const trained_generation& g, const roster& slots) {
  std::optional<std::vector<std::uint32_t>> result;
  for (const auto& [id, rank] : g.rank_of) {
    if (g.gone.contains(id))
      continue;
    const auto* slot = slots.find(id);
    if (!slot || slot->passes.sizes.empty())
      return {};
    const auto& sizes = slot->passes.sizes;
    std::vector<std::uint32_t> common;
    if (result)
      std::ranges::set_intersection(*result, sizes, std::back_inserter(common));
    result = result ? common : sizes;
  }
  return result.value_or(std::vector<std::uint32_t>{});
}

service_status service::view() const {
  service_status result;
  result.gateways = static_cast<std::uint32_t>(gateways_.size());
  if (!gateways_.empty()) {
    const auto& x = gateways_.front();
    result.gateway = x.slot.instance;
    result.http = x.http;
    if (x.said)
      result.requests = x.said->requests;
  }
  result.gateway_problem = problem();
  for (const auto& [rank, x] : last_) {
    result.cache_blocks += x.cache_blocks;
    result.free_blocks += x.free_blocks;
  }
  return result;
}

std::string service::problem() const {
  if (gateways_.empty())
    return "there is no gateway to answer requests; start one with `parcae-node --role gateway --http HOST:PORT`";
  const auto& x = gateways_.front();
  return x.said && !x.said->problem.empty() ? to_string(x.slot) + ": " + x.said->problem : "";
}

} // namespace parcae

#include "planner/situation/inventory.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>

namespace parcae {

namespace {

constexpr std::uint64_t running = UINT64_MAX;

bool holds_stage(const inventory& held, std::uint32_t first, std::uint32_t end, const version& at) {
  for (auto layer = first; layer < end; ++layer)
    if (std::find(held.begin(), held.end(), layer_version{layer, at}) == held.end())
      return false;
  return true;
}

struct open_step {
  commit_result known;   // of the newest step of the generation whose result is known
  std::uint64_t reached; // the newest version of it that anybody holds any of
};

open_step newest_of(generation g, std::uint64_t base, const std::vector<rank_report>& reports,
                    const std::vector<kept>& keepers) {
  open_step x{{}, base};
  auto learn = [&](const commit_result& result) {
    if (x.known.step == no_step || result.step > x.known.step)
      x.known = result;
  };
  for (const auto& [rank, said] : reports) {
    const auto step = said.result.step;
    const bool applied = said.at.by == g && step + 1 == said.at.steps;
    // Gradients outlive the exchange, so a result without them was left by an earlier generation.
    const bool open = step == said.at.steps && step == said.complete;
    if (step != no_step && step >= base && (applied || open))
      learn(said.result);
    if (said.at.by == g)
      x.reached = std::max(x.reached, said.at.steps);
  }
  for (const auto& keeper : keepers)
    for (const auto& [layer, at] : keeper.held) {
      if (at.by != g || at.steps <= base)
        continue;
      x.reached = std::max(x.reached, at.steps);
      // Results do not carry a generation: only those of versions held here belong to g.
      for (const auto& result : keeper.results)
        if (result.step + 1 == at.steps)
          learn(result);
    }
  return x;
}

} // namespace

void commit_chain::begin(generation g, std::uint64_t base) {
  if (!links_.empty() && (links_.back().last == running || links_.back().by >= g))
    throw std::logic_error("generation " + std::to_string(g.value) + " begins before its predecessor ended");
  if (base != newest().steps)
    throw std::logic_error("generation " + std::to_string(g.value) + " begins at " + std::to_string(base) +
                           ", the chain ends at " + std::to_string(newest().steps));
  links_.push_back({g, base, running});
}

void commit_chain::end(generation g, std::uint64_t last) {
  if (links_.empty() || links_.back().by != g || last < links_.back().base || last == running)
    throw std::logic_error("generation " + std::to_string(g.value) + " cannot end at " + std::to_string(last));
  auto& link = links_.back();
  if (link.last != running && link.last != last)
    throw std::logic_error("generation " + std::to_string(g.value) + " ended at another version before");
  link.last = last;
}

void commit_chain::cut(std::uint64_t steps) {
  while (!links_.empty() && links_.back().base > steps)
    links_.pop_back();
  if (!links_.empty())
    links_.back().last = std::min(links_.back().last, steps);
}

bool commit_chain::valid(const version& x) const {
  if (x == version{})
    return true;
  // Links are sorted by generation, and there are as many as there were changes.
  const auto link = std::ranges::lower_bound(links_, x.by, {}, &chain_link::by);
  return link != links_.end() && link->by == x.by && link->base < x.steps && x.steps <= link->last &&
         x.steps != running;
}

std::optional<version> commit_chain::at(std::uint64_t steps) const {
  if (steps == 0)
    return version{};
  for (const auto& link : links_)
    if (link.base < steps && steps <= link.last && steps != running)
      return version{steps, link.by};
  return std::nullopt;
}

version commit_chain::newest() const {
  if (links_.empty())
    return {};
  const auto& link = links_.back();
  return at(link.last == running ? link.base : link.last).value();
}

step_decision decide_open_step(const placement& of, generation g, std::uint64_t base,
                               const std::vector<rank_report>& reports, const std::vector<kept>& keepers) {
  auto first = [&](std::uint32_t stage) { return of.first_layer.at(stage); };
  auto end = [&](std::uint32_t stage) { return of.first_layer.at(stage + 1); };

  const auto [known, reached] = newest_of(g, base, reports, keepers);

  // The exchange of a step needs a contribution of every rank, made at that version: at `goal` - 1 all ranks have been.
  const auto goal = std::max(reached, known.step == no_step ? base : known.step + 1);
  if (goal == base)
    return {{}, base, "no step was exchanged since version " + std::to_string(base)};
  const bool result_known = known.step != no_step && known.step + 1 == goal;
  const version committed{goal, g};
  auto reachable = [&](std::uint32_t stage) {
    for (const auto& [rank, said] : reports) {
      if (of.stage_of(rank) != stage || !holds_stage(said.held, first(stage), end(stage), said.at))
        continue;
      if (said.at == committed || (result_known && said.at.steps + 1 == goal && said.complete == goal - 1))
        return true;
    }
    // Or others hold its layers: keepers, and ranks to which they were moved for a generation that did not come to be.
    for (auto layer = first(stage); layer < end(stage); ++layer) {
      const auto holds = [&](const inventory& held) { return holds_stage(held, layer, layer + 1, committed); };
      if (std::ranges::none_of(keepers, holds, &kept::held) &&
          std::ranges::none_of(reports, [&](const rank_report& x) { return holds(x.said.held); }))
        return false;
    }
    return true;
  };
  for (std::uint32_t stage = 0; stage < of.depth; ++stage)
    if (!reachable(stage))
      return {{},
              goal - 1,
              "step " + std::to_string(goal - 1) + " is dropped: nobody alive can bring stage " +
                  std::to_string(stage) + " to version " + std::to_string(goal)};
  return {result_known ? known : commit_result{}, goal,
          "step " + std::to_string(goal - 1) + " is committed: every stage is at version " + std::to_string(goal) +
              " or can apply it"};
}

version newest_complete(const commit_chain& chain, std::uint32_t layers, const std::vector<holder>& holders,
                        std::uint32_t copies) {
  std::map<version, std::vector<std::uint32_t>> held; // by layer: how many have it
  for (const auto& x : holders)
    for (const auto& [layer, at] : x.held)
      if (layer < layers && chain.valid(at))
        ++held.try_emplace(at, layers).first->second[layer];
  for (auto it = held.rbegin(); it != held.rend(); ++it)
    if (*std::ranges::min_element(it->second) >= copies)
      return it->first;
  return {};
}

std::vector<std::uint32_t> copies_at(const version& x, std::uint32_t layers, const std::vector<holder>& holders) {
  std::vector<std::uint32_t> result(layers);
  for (const auto& holder : holders)
    for (const auto& [layer, at] : holder.held)
      if (layer < layers && at == x)
        ++result[layer];
  return result;
}

} // namespace parcae

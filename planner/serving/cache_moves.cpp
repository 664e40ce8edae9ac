#include "planner/serving/cache_moves.hpp"

#include "planner/situation/stage_assignment.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

namespace parcae::serving {

namespace {

// Calls f(first layer, last layer, old slot, new slot) for each run of layers.
template <class F>
void each_run(const pipeline_places& old, const pipeline_places& now, F f) {
  std::uint32_t first = 0;
  for (std::size_t i = 0, j = 0; i < old.stages.size() && j < now.stages.size();) {
    const auto &from = old.stages[i], &to = now.stages[j];
    const auto last = std::min(from.last_layer, to.last_layer);
    if (last > first)
      f(first, last, from.slot, to.slot);
    first = last;
    i += from.last_layer == last ? 1 : 0;
    j += to.last_layer == last ? 1 : 0;
  }
}

std::uint64_t staying_layers(const pipeline_places& old, const pipeline_places& now) {
  std::uint64_t result = 0;
  each_run(old, now, [&](std::uint32_t first, std::uint32_t last, std::uint64_t from, std::uint64_t to) {
    result += from == to ? last - first : 0;
  });
  return result;
}

// Those that have something to keep where it is. For the assignment each new pipeline gets an old one, or one of as
// many that there never were; all pairs without anything to keep are alike, so that it has little to search.
std::vector<std::optional<std::uint32_t>> keeping_heirs(const std::vector<cached_pipeline>& old,
                                                        const std::vector<pipeline_places>& now) {
  const auto places = static_cast<std::uint32_t>(now.size());
  std::vector<candidate_class> classes;
  for (std::uint32_t i = 0; i < old.size(); ++i) {
    auto& x = classes.emplace_back();
    x.cost.resize(places);
    const auto positions = static_cast<std::int64_t>(old[i].positions);
    for (std::uint32_t j = 0; j < places; ++j)
      if (const auto layers = staying_layers(old[i].places, now[j]))
        x.cost[j] = {-positions * static_cast<std::int64_t>(layers), -positions, 0};
    x.members = {i};
  }
  auto& none = classes.emplace_back();
  none.cost.resize(places);
  none.members.assign(places, 0); // before others, which are taken only for what they keep
  stage_assignment assignment(places, classes);
  assignment.fill(1);
  std::vector<std::optional<std::uint32_t>> result(old.size());
  for (std::uint32_t i = 0; i < old.size(); ++i)
    for (std::uint32_t j = 0; j < places; ++j)
      if (classes[i].placed[j] > 0 && classes[i].cost[j].bytes < 0)
        result[i] = j;
  return result;
}

std::vector<std::optional<std::uint32_t>> heirs_of(const std::vector<cached_pipeline>& old,
                                                   const std::vector<pipeline_places>& now) {
  auto result = keeping_heirs(old, now);
  std::vector<bool> taken(now.size());
  std::vector<std::uint32_t> others;
  for (std::uint32_t i = 0; i < old.size(); ++i)
    if (result[i])
      taken[*result[i]] = true;
    else if (old[i].positions > 0)
      others.push_back(i);
  std::ranges::stable_sort(others, std::greater(), [&](auto i) { return old[i].positions; });
  std::uint32_t place = 0;
  for (const auto i : others) {
    while (place < now.size() && taken[place])
      ++place;
    if (place == now.size())
      break;
    result[i] = place++;
  }
  return result;
}

} // namespace

double cache_plan::transfer_ms(double bytes_of_position_and_layer, double link_bytes_per_ms) const {
  std::map<std::uint64_t, double> sent, received;
  double most = 0;
  for (const auto& x : moves) {
    const auto bytes = static_cast<double>(x.positions) * (x.last_layer - x.first_layer) * bytes_of_position_and_layer;
    most = std::max({most, sent[x.source] += bytes, received[x.destination] += bytes});
  }
  return most / link_bytes_per_ms;
}

double cache_plan::computing_ms(double row_ms) const {
  std::map<std::uint32_t, std::uint64_t> moved_to; // by new pipeline
  std::optional<std::uint32_t> counted;
  std::uint64_t most = 0;
  for (const auto& x : moves)
    if (counted != x.pipeline) {
      counted = x.pipeline;
      most = std::max(most, moved_to[*heirs[x.pipeline]] += x.positions);
    }
  return static_cast<double>(most) * row_ms;
}

namespace {

cache_plan plan_for(std::vector<std::optional<std::uint32_t>> heirs, const std::vector<cached_pipeline>& old,
                    const std::vector<pipeline_places>& now) {
  cache_plan result;
  result.heirs = std::move(heirs);
  for (std::uint32_t i = 0; i < old.size(); ++i)
    if (const auto heir = result.heirs[i])
      each_run(old[i].places, now[*heir],
               [&](std::uint32_t first, std::uint32_t last, std::uint64_t from, std::uint64_t to) {
                 (from == to ? result.kept : result.moved) += old[i].positions * (last - first);
                 if (from == to)
                   return;
                 auto* before = result.moves.empty() ? nullptr : &result.moves.back();
                 if (before && before->pipeline == i && before->source == from && before->destination == to &&
                     before->last_layer == first)
                   before->last_layer = last;
                 else
                   result.moves.push_back({i, first, last, from, to, old[i].positions});
               });
  return result;
}

} // namespace

cache_plan plan_caches(const std::vector<cached_pipeline>& old, const std::vector<pipeline_places>& now) {
  return plan_for(heirs_of(old, now), old, now);
}

cache_plan plan_all_caches(const std::vector<cached_pipeline>& old, const std::vector<pipeline_places>& now) {
  auto heirs = heirs_of(old, now);
  std::vector<std::uint64_t> load(now.size());
  for (std::uint32_t i = 0; i < old.size(); ++i)
    if (heirs[i])
      load[*heirs[i]] += old[i].positions;
  for (std::uint32_t i = 0; i < old.size(); ++i) {
    if (heirs[i] || old[i].positions == 0)
      continue;
    std::optional<std::pair<std::uint64_t, std::uint64_t>> best; // layers that do not stay, positions
    for (std::uint32_t j = 0; j < now.size(); ++j)
      if (const std::pair its(UINT64_MAX - staying_layers(old[i].places, now[j]), load[j]); !best || its < *best) {
        best = its;
        heirs[i] = j;
      }
    if (heirs[i])
      load[*heirs[i]] += old[i].positions;
  }
  return plan_for(std::move(heirs), old, now);
}

pipeline_places even_stages(std::uint32_t layers, const std::vector<std::uint64_t>& slots) {
  pipeline_places result;
  const auto count = static_cast<std::uint32_t>(slots.size());
  std::uint32_t last = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    last += layers / count + (i < layers % count ? 1 : 0);
    result.stages.push_back({slots[i], last});
  }
  return result;
}

} // namespace parcae::serving

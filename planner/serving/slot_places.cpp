#include "planner/serving/slot_places.hpp"

#include <algorithm>
#include <iterator>

namespace parcae::serving {

namespace {

using stage_slots = std::vector<std::uint64_t>;

pipeline_places places_of(std::uint32_t layers, const std::vector<stage_slots>& stages) {
  std::vector<std::uint64_t> names;
  for (const auto& x : stages)
    names.push_back(x.front());
  return even_stages(layers, names);
}

} // namespace

void slot_places::resize(std::size_t instances, std::uint32_t each) {
  while (slots_.size() < instances * each)
    slots_.push_back(next_++);
  while (slots_.size() > instances * each) {
    const auto lost = static_cast<std::ptrdiff_t>(random_() % (slots_.size() / each) * each);
    slots_.erase(slots_.begin() + lost, slots_.begin() + lost + each);
  }
}

bool slot_places::is_there(const stage_slots& slots) const {
  return std::ranges::all_of(slots, [&](auto x) { return std::ranges::find(slots_, x) != slots_.end(); });
}

bool slot_places::is_hit() const {
  return !std::ranges::all_of(held_, [&](const auto& stages) {
    return std::ranges::all_of(stages, [&](const auto& x) { return is_there(x); });
  });
}

cache_plan slot_places::change(const service_shape& shape, const std::vector<std::uint64_t>& cached) {
  std::vector<cached_pipeline> old;
  for (std::size_t i = 0; i < held_.size(); ++i)
    old.push_back({places_of(layers_, held_[i]), cached[i]});
  decltype(held_) next(shape.width, std::vector<stage_slots>(shape.depth));
  auto free = slots_;
  const auto take = [&](const stage_slots& x) {
    std::erase_if(free, [&](auto y) { return std::ranges::count(x, y); });
  };
  if (shape.depth == shape_.depth && shape.degree == shape_.degree)
    for (std::size_t i = 0; i < std::min(held_.size(), next.size()); ++i)
      for (std::size_t s = 0; s < shape.depth; ++s)
        if (is_there(held_[i][s]))
          take(next[i][s] = held_[i][s]);
  // Elsewhere a stage goes where most of its layers were, pipelines in order.
  for (std::size_t i = 0; i < next.size(); ++i)
    for (std::size_t s = 0; s < shape.depth; ++s) {
      auto& stage = next[i][s];
      if (!stage.empty())
        continue;
      if (shape.degree == shape_.degree && !held_.empty()) {
        const auto& before = held_[i % held_.size()];
        const auto& where = before[s * before.size() / shape.depth];
        if (std::ranges::all_of(where, [&](auto x) { return std::ranges::find(free, x) != free.end(); }))
          stage = where;
      }
      if (stage.empty())
        stage.assign(free.begin(), free.begin() + shape.degree);
      take(stage);
    }
  std::vector<pipeline_places> now;
  for (const auto& x : next)
    now.push_back(places_of(layers_, x));
  auto result = plan_caches(old, now);
  held_ = std::move(next);
  shape_ = shape;
  return result;
}

} // namespace parcae::serving

#include "planner/situation/stage_assignment.hpp"

namespace parcae {

stage_assignment::stage_assignment(std::uint32_t stages, std::vector<candidate_class>& classes) :
    classes_(classes), present_(stages), potential_(stages) {
  for (auto& c : classes_)
    c.placed.assign(stages, 0);
}

void stage_assignment::fill(std::uint32_t width) {
  for (std::uint32_t i = 0; i < width; ++i)
    for (std::uint32_t stage = 0; stage < present_.size(); ++stage)
      place_one_more(stage);
}

void stage_assignment::place_one_more(std::uint32_t start) {
  const auto stages = static_cast<std::uint32_t>(present_.size());
  std::vector<reached> at(stages);
  at[start].distance = place_cost{};
  std::optional<place_cost> shortest; // to a candidate that is free, of class `last_class`, for `last_stage`
  std::uint32_t last_stage = 0;
  std::size_t last_class = 0;
  for (;;) {
    auto stage = stages;
    for (std::uint32_t s = 0; s < stages; ++s)
      if (!at[s].done && at[s].distance && (stage == stages || *at[s].distance < *at[stage].distance))
        stage = s;
    if (stage == stages || (shortest && !(*at[stage].distance < *shortest)))
      break;
    at[stage].done = true;
    const auto from_here = *at[stage].distance - potential_[stage];
    for (std::size_t c = 0; c < classes_.size(); ++c)
      if (classes_[c].is_free())
        if (const auto distance = from_here + classes_[c].youngest_cost(stage); !shortest || distance < *shortest) {
          shortest = distance;
          last_stage = stage;
          last_class = c;
        }
    for (std::uint32_t s = 0; s < stages; ++s) {
      if (at[s].done)
        continue;
      for (auto c : present_[s]) {
        const auto distance = from_here + classes_[c].cost[stage] - classes_[c].cost[s] + potential_[s];
        if (!at[s].distance || distance < *at[s].distance)
          at[s] = {distance, stage, c, false};
      }
    }
  }
  for (std::uint32_t s = 0; s < stages; ++s)
    if (at[s].done)
      potential_[s] = potential_[s] + *shortest - *at[s].distance;
  ++classes_[last_class].taken;
  add(last_class, last_stage);
  for (auto s = last_stage; s != start; s = at[s].to) {
    remove(at[s].by, s);
    add(at[s].by, at[s].to);
  }
}

void stage_assignment::add(std::size_t c, std::uint32_t stage) {
  if (classes_[c].placed[stage]++ == 0)
    present_[stage].push_back(c);
}

void stage_assignment::remove(std::size_t c, std::uint32_t stage) {
  if (--classes_[c].placed[stage] == 0)
    std::erase(present_[stage], c);
}

} // namespace parcae

#pragma once

// How each row of the conductor's table comes to be taken.

#include "tests/actors/conductor/stage_set.hpp"

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

namespace parcae {

struct scene {
  trigger_kind on;
  std::string condition;
  phase from;
  std::function<void(stage_set&)> play; ///< after it was brought to `from`, if `bring`
  bool bring;
  std::uint64_t steps;
  std::uint64_t checkpoint_every;
  bool serves = false; ///< the job does
};

struct scene_list {
  std::vector<scene> all;

  /// Adds scenes that begin so.
  auto with(bool bring, std::uint64_t steps = 1000, std::uint64_t checkpoint_every = 0) {
    return [=, this](std::initializer_list<phase> from, trigger_kind on, const std::string& condition,
                     const std::function<void(stage_set&)>& play) {
      for (auto x : from)
        all.push_back({on, condition, x, play, bring, steps, checkpoint_every});
    };
  }

  /// Of a job that serves.
  void of_service(std::initializer_list<phase> from, trigger_kind on, const std::string& condition,
                  const std::function<void(stage_set&)>& play) {
    for (auto x : from)
      all.push_back({on, condition, x, play, true, 1000, 0, true});
  }

  void operator()(std::initializer_list<phase> from, trigger_kind on, const std::string& condition,
                  const std::function<void(stage_set&)>& play) {
    with(true)(from, on, condition, play);
  }
};

/// Of the rows that lead from phase to phase.
void add_phase_scenes(scene_list& add);
/// Of those for answers, and what else changes no phase by itself.
void add_answer_scenes(scene_list& add);

} // namespace parcae

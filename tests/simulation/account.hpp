#pragma once

// Whether what is told of the time in which nothing new was trained is what was seen: stalls, waiting for state in the
// first step, steps done again.

#include "protocols/client/client.hpp"
#include "tests/simulation/timeline.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace parcae::simulation {

/// A step that was exchanged and not gone back behind.
struct new_step {
  time_point at;
  generation by;
  std::uint64_t number = 0;
  /// Since the one before nothing was done to the ranks of its generation, nor to a manager.
  bool in_peace = false;
  bool before_in_peace = false; ///< nor to those of the generation of the one before
};

/// Is told of what is exchanged, in its order.
class trained_time {
public:
  /// `is_disturbed`: whether something was done to ranks of that generation.
  void exchanged(generation by, std::uint64_t step, time_point now,
                 const std::function<bool(generation)>& is_disturbed);
  /// It began, or stood still: what it heard late it dates late.
  void manager_was_away() { manager_in_peace_ = false; }

  /// What is told of one change. A step, with an evaluation, takes at most so long; `slack`: messages on their way,
  /// threads that wake late, a journal that is slow. Empty: it is so.
  std::string problem_with(const change_status& told, nanoseconds longest_step, nanoseconds slack) const;

private:
  std::vector<new_step> news_;   ///< by number
  bool manager_in_peace_ = true; ///< since the newest of news_
};

} // namespace parcae::simulation

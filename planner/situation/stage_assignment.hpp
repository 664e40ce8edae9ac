#pragma once

// Who computes which stage: the assignment of candidates to places that costs least. Pure.

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

namespace parcae {

/// What a place costs, compared in this order.
struct place_cost {
  std::int64_t bytes = 0; ///< to move
  std::int64_t moved = 0; ///< 1: the slot had another place before
  std::int64_t age = 0;   ///< position in order of age

  friend auto operator<=>(const place_cost&, const place_cost&) = default;

  friend place_cost operator+(const place_cost& a, const place_cost& b) {
    return {a.bytes + b.bytes, a.moved + b.moved, a.age + b.age};
  }

  friend place_cost operator-(const place_cost& a, const place_cost& b) {
    return {a.bytes - b.bytes, a.moved - b.moved, a.age - b.age};
  }
};

/// Candidates that are alike: they hold the same, and had the same stage before, in a pipeline that there still is.
struct candidate_class {
  std::uint32_t home = UINT32_MAX;    ///< stage
  std::vector<place_cost> cost;       ///< by stage, without age
  std::vector<std::uint32_t> members; ///< ages, ascending
  std::vector<std::uint32_t> placed;  ///< by stage: how many; all together the oldest
  std::uint32_t taken = 0;            ///< sum of placed

  bool is_free() const { return taken < members.size(); }
  place_cost youngest_cost(std::uint32_t stage) const { return cost[stage] + place_cost{0, 0, members[taken]}; }
};

/// The cheapest way to give each stage `width` candidates: successive shortest augmenting paths with potentials, as
/// Kuhn–Munkres, but what is alike is taken together. The places of a stage cost the same (a slot that had one keeps
/// it), so a path goes from stage to stage, over the classes that are placed there. Age does not depend on the stage,
/// so the oldest of a class are taken, and age counts only at a path's end. O(places · stages · (stages + classes))
/// instead of O(places² · candidates), and far less where most slots stay.
class stage_assignment {
public:
  /// The result is in `classes`, which must outlive this, as `placed` and `taken`.
  stage_assignment(std::uint32_t stages, std::vector<candidate_class>& classes);

  /// Requires at least `width` · `stages` candidates.
  void fill(std::uint32_t width);

private:
  /// How a stage is reached: one of class `by` leaves it for stage `to`.
  struct reached {
    std::optional<place_cost> distance;
    std::uint32_t to = 0;
    std::size_t by = 0;
    bool done = false;
  };

  void place_one_more(std::uint32_t start);
  void add(std::size_t c, std::uint32_t stage);
  void remove(std::size_t c, std::uint32_t stage);

  std::vector<candidate_class>& classes_;
  std::vector<std::vector<std::size_t>> present_; ///< by stage: classes placed there
  std::vector<place_cost> potential_;             ///< by stage
};

} // namespace parcae

#pragma once

// What has been seen of spot instances, place by place: how the best place changes, and how long counts last. Learnt as
// it goes by, from nothing. Pure.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <vector>

namespace parcae::market {

class spot_chain {
public:
  static constexpr std::size_t max_states = 6;

  /// At most `most` instances of each place count.
  spot_chain(std::size_t places, std::uint32_t most, double interval_s);

  /// To be had in an interval, by place; `best`: of the best place, if that is not the one that has most.
  void observe(std::span<const std::uint32_t> available, std::optional<std::uint32_t> best = {});

  /// States of the best place.
  std::size_t states() const { return sizes_.size(); }
  std::size_t state() const { return state_; }
  double instances(std::size_t state) const; ///< mean
  /// Probabilities of the states after so many intervals, row by row.
  std::vector<double> chances(std::size_t intervals = 1) const;
  /// Some that they may truly be, after what was seen: by Dirichlet's distribution.
  std::vector<double> chances(std::mt19937_64& random, std::size_t intervals = 1) const;

  /// How long a place that has at least `count` now will have as many, in seconds.
  double life_s(std::size_t place, std::uint32_t count) const;

private:
  std::size_t state_of(std::uint32_t count) const;
  std::vector<double> weights() const;

  struct place_lives {
    std::vector<double> intervals; ///< in which at least as many were there as the index says
    std::vector<double> ends;      ///< after which they were not
    std::uint32_t available = 0;
  };

  std::uint32_t most_;
  double interval_s_;
  std::vector<place_lives> places_;
  struct seen {
    double times = 0, sum = 0;
  };
  std::vector<seen> sizes_;   ///< by state
  std::vector<double> moves_; ///< by state and the next one
  std::size_t state_ = 0;
  bool begun_ = false;
};

} // namespace parcae::market

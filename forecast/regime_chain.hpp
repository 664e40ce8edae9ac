#pragma once

// Availability changes come in bursts: what happens next depends on what happened last and how long ago, and a fleet
// that has what it asked for does not grow. The regime chain is a Markov chain on (direction of the last event, its age
// in intervals, whether there are as many instances as ever seen); its probabilities are learnt as the history goes by
// and slowly forgotten, each shrunk towards that of the coarser regime it belongs to.
//
// A fleet is expected to grow back, not beyond its peak: that it becomes larger than ever is somebody's decision (its
// start above all), which the past of losses and replacements says nothing of, and no event of the chain.

#include "forecast/method.hpp"

#include <array>
#include <vector>

namespace parcae {

class regime_chain : public forecast_method {
public:
  regime_chain();

  std::string name() const override { return "regime"; }
  void observe(const fleet_interval& x) override;
  availability_lattice forecast(std::size_t look_ahead, double detail) const override;

  /// The last value, which on the published trace is closer than the median at every horizon.
  std::vector<std::uint32_t> point(std::size_t look_ahead, double) const override {
    return std::vector<std::uint32_t>(look_ahead, available_);
  }

private:
  enum outcome : std::uint8_t { nothing, growth, loss };
  using counts = std::array<double, 3>; ///< by outcome; or their probabilities

  static constexpr std::uint32_t oldest = 20; ///< ages from here on are one
  static constexpr std::size_t age_groups = 9;

  struct regime {
    outcome last = nothing; ///< `nothing`: no event seen yet
    std::uint32_t age = 0;  ///< intervals since then
  };

  using chances = std::array<std::array<std::array<counts, oldest + 1>, 3>, 2>; ///< [full][last][age]
  class next_stage;                                                             // in the source

  static std::size_t group_of(std::uint32_t age);
  bool full(std::uint32_t available) const { return available >= peak_; }
  counts probabilities(const regime& x, bool full) const;
  chances all_probabilities() const;
  std::vector<double> sizes(outcome x) const; ///< probability of each size, [0] unused
  void forget();

  regime now_;
  std::uint32_t available_ = 0;
  std::uint32_t peak_ = 0; ///< most instances seen
  counts all_{};
  std::array<counts, 3> by_last_{};
  std::array<std::array<counts, age_groups>, 3> by_group_{};
  std::array<std::array<std::array<counts, age_groups>, 3>, 2> by_full_{}; ///< [full][last][group]
  std::array<std::vector<double>, 3> size_counts_;                         ///< by outcome; growth up to the peak
};

} // namespace parcae

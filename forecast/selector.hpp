#pragma once

// `auto`. Plans follow its first candidate alone (`futures`); what is below is for error tables.
//
// Mixes methods by how well the mix would have done so far: the weights with the least sum of continuous ranked
// probability scores (CRPS), which is a quadratic form of the errors of the candidates, with a ridge towards equal
// weights while little was seen (Thorey, Mallet, Baudin: Online learning with the CRPS, 2017). A candidate that adds
// nothing to the others gets nothing, and two that err differently get both, which a ranking of the candidates by
// themselves would not see.

#include "forecast/method.hpp"

#include <array>
#include <deque>
#include <iterator>
#include <memory>
#include <vector>

namespace parcae {

/// CRPS of a distribution over counts against what came: Σ (F(n) − [n ≥ y])². In instances; smaller is better.
double crps(const distribution& p, std::uint32_t y);

class selector : public forecast_method {
public:
  /// Plans follow the first candidate.
  explicit selector(std::vector<std::unique_ptr<forecast_method>> candidates);

  std::string name() const override { return "auto"; }
  void observe(const fleet_interval& x) override;
  availability_lattice forecast(std::size_t look_ahead, double detail) const override;

  /// Of the first candidate: a plan on the mix would act as if it came to know which of them is right, or would lose
  /// the regimes that can be told apart.
  availability_lattice futures(std::size_t look_ahead, double detail) const override;

  /// The mix's median where that was closer so far than the last value by two standard errors, else the last value: the
  /// median of a fleet that changes in bursts rarely beats it.
  std::vector<std::uint32_t> point(std::size_t look_ahead, double detail) const override;

  /// Of the candidates, in their order; sum 1.
  const std::vector<double>& weights() const { return weights_; }

private:
  /// Counts what came, `y`, for forecasts by candidate.
  void learn(const std::vector<std::vector<distribution>>& forecasts, std::size_t horizon, std::uint32_t y);

  static constexpr std::size_t horizons[] = {1, 2, 4, 8, 12};
  static constexpr std::size_t longest = 12;
  /// Intervals after which half of what was seen is forgotten: the candidates learn too, so that what they erred at the
  /// beginning says little of how they err later.
  static constexpr double half_life = 240;

  std::vector<std::unique_ptr<forecast_method>> candidates_;
  struct point_record {
    std::uint32_t last;
    std::vector<std::uint32_t> median; ///< by index of the horizon
  };

  std::deque<point_record> open_points_; ///< as open_
  std::array<double, std::size(horizons)>
      median_excess_{}; ///< absolute errors of the median minus those of the last value
  std::array<double, std::size(horizons)> excess_squares_{};
  std::uint32_t last_ = 0;
  /// By origin (oldest first, at most `longest`), candidate, and index of the horizon.
  std::deque<std::vector<std::vector<distribution>>> open_;
  /// [i · candidates + j]: sum of Σₙ eᵢ(n) · eⱼ(n) over all forecasts, eᵢ(n) = Fᵢ(n) − [n ≥ y]. The CRPS of the mix is
  /// the quadratic form of it.
  std::vector<double> products_;
  double learnt_ = 0; ///< number of forecasts in it, those forgotten left out
  std::vector<double> weights_;
};

} // namespace parcae

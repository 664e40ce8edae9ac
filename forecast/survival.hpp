#pragma once

// Losses by the age of the instances: Nelson and Aalen's estimate of the hazard by age, joins by their frequency so
// far.

#include "forecast/method.hpp"

#include <array>
#include <map>
#include <vector>

namespace parcae {

class survival_method : public forecast_method {
public:
  std::string name() const override { return "survival"; }
  void observe(const fleet_interval& x) override;
  availability_lattice forecast(std::size_t look_ahead, double detail) const override;

private:
  static constexpr std::size_t groups = 14; ///< of age: 0, 1, 2–3, 4–7, … intervals
  static std::size_t group_of(std::uint32_t age);
  double hazard(std::uint32_t age) const;

  std::uint32_t interval_ = 0; ///< number of intervals observed
  std::uint32_t available_ = 0;
  std::map<std::uint32_t, std::uint32_t> cohorts_; ///< by the interval they joined in: instances left
  std::array<double, groups> at_risk_{};           ///< instance-intervals
  std::array<double, groups> lost_{};
  std::vector<double> joins_; ///< intervals by number that joined; the first one does not count
};

} // namespace parcae

#pragma once

// Methods that forecast one path, spread by the errors of their own past forecasts: the error paths of past origins are
// added to the forecast path, which keeps the dependence between horizons.

#include "forecast/method.hpp"

#include <deque>
#include <functional>
#include <vector>

namespace parcae {

/// Forecasts the next values of a series (oldest first) as real numbers; may return fewer than asked for, the last is
/// repeated.
using path_law = std::function<std::vector<double>(const std::vector<double>& series, std::size_t look_ahead)>;

class path_method : public forecast_method {
public:
  /// With `spread` false the forecast is the one path.
  path_method(std::string name, path_law law, bool spread = true);

  std::string name() const override { return name_; }
  void observe(const fleet_interval& x) override;
  availability_lattice forecast(std::size_t look_ahead, double detail) const override;

private:
  static constexpr std::size_t horizon = 24;    ///< errors are kept this far ahead
  static constexpr std::size_t max_paths = 256; ///< error paths kept, the newest

  std::string name_;
  path_law law_;
  bool spread_;
  std::vector<double> series_;
  std::deque<std::vector<double>> forecasts_; ///< made at the last `horizon` origins, oldest first
  std::deque<std::vector<double>> errors_;    ///< complete error paths, oldest first
};

/// ARIMA(p, d, q) with drift on the last `window` values, by Hannan and Rissanen's two regressions.
std::vector<double> arima_path(const std::vector<double>& series, std::size_t look_ahead, std::size_t p, std::size_t d,
                               std::size_t q, std::size_t window);

/// Holt's exponential smoothing with a damped trend; the three constants are those with the least squared error of
/// one-step forecasts so far, from a coarse grid.
class damped_smoothing {
public:
  damped_smoothing();
  std::vector<double> operator()(const std::vector<double>& series, std::size_t look_ahead);

private:
  struct state {
    double alpha, beta, damping;
    double level = 0, trend = 0, squared_error = 0;
  };
  std::vector<state> states_;
  std::size_t seen_ = 0;
};

/// Past situations most like the present (by the last changes, the newest counting most) and what came after them.
class nearest_situations : public forecast_method {
public:
  std::string name() const override { return "nearest"; }
  void observe(const fleet_interval& x) override;
  availability_lattice forecast(std::size_t look_ahead, double detail) const override;

private:
  std::vector<double> available_;
};

} // namespace parcae

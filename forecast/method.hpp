#pragma once

// The forecast methods. Each is fed a fleet's history interval by interval and answers with a lattice of futures.
// Deterministic; single-threaded; no I/O, no clock.

#include "forecast/history.hpp"
#include "forecast/lattice.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

class forecast_method {
public:
  virtual ~forecast_method() = default;

  virtual std::string name() const = 0;

  /// The next interval of the history.
  virtual void observe(const fleet_interval& x) = 0;

  /// The `look_ahead` intervals after the last observed one. Paths less likely than `detail` may be left out; the rest
  /// is scaled up to 1. All that tells nodes of a stage apart can be observed when they are reached.
  virtual availability_lattice forecast(std::size_t look_ahead, double detail) const = 0;

  /// One number for each interval: the median, unless the method knows better.
  virtual std::vector<std::uint32_t> point(std::size_t look_ahead, double detail) const;
};

/// Detail that is enough for planning and for comparing methods as the history goes by, and for error tables.
inline constexpr double planning_detail = 2e-3;
inline constexpr double scoring_detail = 2e-4;

/// One of method_names(). Throws std::invalid_argument, with the list, for another name.
std::unique_ptr<forecast_method> make_method(std::string_view name);

/// "last", "last-spread", "mean", "drift", "arima", "arima-long", "smoothing", "nearest", "regime", "survival", and
/// "auto", which is another name of what plans follow: "regime".
std::vector<std::string> method_names();

/// A lattice of equally likely paths, each of the same length: the availability after each interval. Paths that meet
/// are one node from there on, so that a plan cannot tell from which path it came, as it could if every path were a
/// branch of its own.
availability_lattice lattice_of(std::uint32_t available, const std::vector<std::vector<std::uint32_t>>& paths);

} // namespace parcae

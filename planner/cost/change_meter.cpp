#include "planner/cost/change_meter.hpp"

#include "protocols/base/median.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace parcae {

namespace {

constexpr double scatter_ms = 2;  // by which phases of a quiet machine differ
constexpr double outlier = 2;     // times the scatter; what lies farther off counts less
constexpr double per_rank_ms = 1; // what is thinkable of a rank, in either direction
constexpr int rounds = 30;

struct point {
  double x;
  double y;
};

// A value that is expected before anything was seen, with its standard deviation.
struct belief {
  double value;
  double deviation;
};

struct linear_fit {
  double at_zero;
  double slope;
};

// Bayesian regression with normal beliefs and Cauchy's weights. Slopes that a few noisy points seem to have stay small:
// taken at face value, they made predictions several times too high in the first minutes of a job.
linear_fit fit(const belief& at_zero, const belief& slope, const std::vector<point>& points) {
  linear_fit result{at_zero.value, slope.value};
  std::vector<double> weights(points.size(), 1);
  for (int round = 0; round < rounds; ++round) {
    // Normal equations of (at_zero, slope).
    double a = 1 / (at_zero.deviation * at_zero.deviation), b = 0, c = 1 / (slope.deviation * slope.deviation);
    double u = a * at_zero.value, v = c * slope.value;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const double w = weights[i] / (scatter_ms * scatter_ms);
      const auto& [x, y] = points[i];
      a += w;
      b += w * x;
      c += w * x * x;
      u += w * y;
      v += w * x * y;
    }
    const double determinant = a * c - b * b;
    result = {(c * u - b * v) / determinant, (a * v - b * u) / determinant};
    std::vector<double> off;
    for (const auto& p : points)
      off.push_back(std::abs(p.y - result.at_zero - result.slope * p.x));
    if (off.empty())
      break;
    const double scatter = std::max(scatter_ms, 1.4826 * median(off));
    for (std::size_t i = 0; i < points.size(); ++i)
      weights[i] = 1 / (1 + std::pow(off[i] / (outlier * scatter), 2));
  }
  return {std::max(0.0, result.at_zero), std::max(0.0, result.slope)};
}

} // namespace

void change_meter::learn(const measured_change& x) {
  seen_.push_back(x);
  if (seen_.size() > most)
    seen_.pop_front();
  const change_figures before; // nothing seen: as likely to be none as twice as much
  figures_ = {};
  const auto line_of = [&](const belief& at_zero, const belief& slope, double measured_change::*phase, auto position) {
    std::vector<point> points;
    for (const auto& change : seen_)
      if (change.*phase >= 0)
        points.push_back({position(change), change.*phase});
    return fit(at_zero, slope, points);
  };
  const auto phase = [&](double change_figures::*to, double measured_change::*from) {
    const belief whole{before.*to, before.*to};
    figures_.*to = line_of(whole, {0, 1}, from, [](const auto&) { return 0.0; }).at_zero;
  };
  const auto settling =
      line_of({before.settle_ms, before.settle_ms + before.loss_ms}, {before.loss_ms, before.loss_ms},
              &measured_change::settle_ms, [](const auto& change) { return static_cast<double>(change.lost); });
  figures_.settle_ms = settling.at_zero;
  figures_.loss_ms = settling.slope;
  phase(&change_figures::plan_ms, &measured_change::plan_ms);
  phase(&change_figures::prepare_ms, &measured_change::prepare_ms);
  const double byte_ms = 1 / before.link_bytes_per_ms;
  const auto transfer = line_of({before.transfer_ms, before.transfer_ms}, {byte_ms, byte_ms},
                                &measured_change::transfer_ms, [](const auto& change) { return change.busiest_bytes; });
  figures_.transfer_ms = transfer.at_zero;
  figures_.link_bytes_per_ms = 1 / std::max(transfer.slope, byte_ms / 1000);
  const auto activation =
      line_of({before.activate_ms, before.activate_ms}, {before.rank_ms, per_rank_ms}, &measured_change::activate_ms,
              [](const auto& change) { return static_cast<double>(change.ranks); });
  figures_.activate_ms = activation.at_zero;
  figures_.rank_ms = activation.slope;
}

} // namespace parcae

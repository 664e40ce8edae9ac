#include "planner/change_meter.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace parcae {

namespace {

struct point {
  double x;
  double y;
};

// The mean without the lowest and the highest quarter: a change that met a busy machine says little about the next, but
// phases are skewed, and the sum of their medians would be less than the median of their sum.
double middle_mean(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto cut = static_cast<std::ptrdiff_t>(values.size() / 4);
  return std::accumulate(values.begin() + cut, values.end() - cut, 0.0) /
         static_cast<double>(values.size() - 2 * static_cast<std::size_t>(cut));
}

// Changes nothing for none.
void set_to_middle(double& to, std::vector<double> values) {
  if (!values.empty())
    to = middle_mean(std::move(values));
}

// A line through the points; the slope stays as it is where it does not show, or lies in the noise.
void fit(double& slope, double& at_zero, const std::vector<point>& points) {
  std::vector<double> slopes;
  for (const auto& a : points)
    for (const auto& b : points)
      if (a.x < b.x)
        slopes.push_back((b.y - a.y) / (b.x - a.x));
  if (!slopes.empty()) {
    const auto middle = slopes.begin() + static_cast<std::ptrdiff_t>(slopes.size() / 2);
    std::nth_element(slopes.begin(), middle, slopes.end());
    if (*middle > 0)
      slope = *middle;
  }
  std::vector<double> rest;
  for (const auto& p : points)
    rest.push_back(std::max(0.0, p.y - slope * p.x));
  set_to_middle(at_zero, std::move(rest));
}

} // namespace

void change_meter::learn(const measured_change& x) {
  seen_.push_back(x);
  if (seen_.size() > most)
    seen_.pop_front();
  figures_ = {};
  auto learn_phase = [&](double change_figures::*to, double measured_change::*from) {
    std::vector<double> values;
    for (const auto& change : seen_)
      if (change.*from >= 0)
        values.push_back(change.*from);
    set_to_middle(figures_.*to, std::move(values));
  };
  learn_phase(&change_figures::settle_ms, &measured_change::settle_ms);
  learn_phase(&change_figures::plan_ms, &measured_change::plan_ms);
  learn_phase(&change_figures::prepare_ms, &measured_change::prepare_ms);
  std::vector<point> transfers, activations;
  for (const auto& change : seen_) {
    if (change.transfer_ms >= 0)
      transfers.push_back({change.busiest_bytes, change.transfer_ms});
    if (change.activate_ms >= 0)
      activations.push_back({static_cast<double>(change.ranks), change.activate_ms});
  }
  double ms_per_byte = 1 / figures_.link_bytes_per_ms;
  fit(ms_per_byte, figures_.transfer_ms, transfers);
  figures_.link_bytes_per_ms = 1 / ms_per_byte;
  fit(figures_.rank_ms, figures_.activate_ms, activations);
}

} // namespace parcae

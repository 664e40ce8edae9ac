#include "planner/change_meter.hpp"

#include <algorithm>
#include <vector>

namespace parcae {

namespace {

// 0 or more values; changes nothing for none.
void set_to_median(double& to, std::vector<double> values) {
  if (values.empty())
    return;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  to = *middle;
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
    set_to_median(figures_.*to, std::move(values));
  };
  learn_phase(&change_figures::settle_ms, &measured_change::settle_ms);
  learn_phase(&change_figures::plan_ms, &measured_change::plan_ms);
  learn_phase(&change_figures::prepare_ms, &measured_change::prepare_ms);
  learn_phase(&change_figures::activate_ms, &measured_change::activate_ms);
  // A line through the transfers: its slope is what a byte takes, what is left is the phase itself.
  std::vector<double> slopes;
  for (const auto& a : seen_)
    for (const auto& b : seen_)
      if (a.transfer_ms >= 0 && b.transfer_ms >= 0 && a.busiest_bytes < b.busiest_bytes)
        slopes.push_back((b.transfer_ms - a.transfer_ms) / (b.busiest_bytes - a.busiest_bytes));
  double ms_per_byte = 1 / figures_.link_bytes_per_ms;
  set_to_median(ms_per_byte, std::move(slopes));
  if (ms_per_byte > 0) // else the bytes are lost in the noise
    figures_.link_bytes_per_ms = 1 / ms_per_byte;
  std::vector<double> rest;
  for (const auto& change : seen_)
    if (change.transfer_ms >= 0)
      rest.push_back(std::max(0.0, change.transfer_ms - change.busiest_bytes / figures_.link_bytes_per_ms));
  set_to_median(figures_.transfer_ms, std::move(rest));
}

} // namespace parcae

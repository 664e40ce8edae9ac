#include "planner/cost/step_meter.hpp"

#include "protocols/base/median.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace parcae {

namespace {

constexpr double job_deviation = 0.12;
constexpr double configuration_deviation = 0.10;
constexpr double seen_before = 3; // residuals that the deviation of configurations is worth
constexpr double two_sided_95 = 1.96;
constexpr double least_error = 0.01;
constexpr std::size_t least_reports = 3;
constexpr std::uint64_t remembered = 50; // reports that a mean goes back

// Relative half-width of the median's interval of 95 %, as if values were normal but for a few.
double error_of_median(const std::deque<double>& x, double middle) {
  std::vector<double> distances;
  for (const auto value : x)
    distances.push_back(std::abs(value - middle));
  const double deviation = 1.4826 * median(distances);
  const double of_median = 1.2533 * deviation / std::sqrt(static_cast<double>(x.size()));
  return std::max(least_error, two_sided_95 * of_median / middle);
}

} // namespace

model_error::model_error(std::span<const check> seen) {
  double sum = 0, count = 0;
  for (const auto& x : seen)
    if (x.predicted_ms > 0 && x.measured_ms > 0) {
      sum += std::log(x.measured_ms / x.predicted_ms);
      ++count;
    }
  const auto fit = [&](double variance) { // posterior of b
    const double precision = 1 / (job_deviation * job_deviation) + count / variance;
    log_factor_ = sum / variance / precision;
    return 1 / precision;
  };
  double variance = configuration_deviation * configuration_deviation;
  fit(variance);
  double squares = seen_before * variance;
  for (const auto& x : seen)
    if (x.predicted_ms > 0 && x.measured_ms > 0)
      squares += std::pow(std::log(x.measured_ms / x.predicted_ms) - log_factor_, 2);
  variance = squares / (seen_before + count);
  deviation_ = std::sqrt(variance + fit(variance));
}

step_estimate model_error::corrected(double predicted_ms) const {
  const double ms = predicted_ms * std::exp(log_factor_);
  const double factor = std::exp(two_sided_95 * deviation_);
  return {ms, ms / factor, ms * factor};
}

void step_meter::mean::add(double x, double least) {
  if (!std::isfinite(x) || x < least)
    return;
  count = std::min(count + 1, remembered);
  value += (x - value) / static_cast<double>(count);
}

void step_meter::mean::assume(double x) {
  if (count == 0 && std::isfinite(x) && x >= 0)
    value = x;
}

void step_meter::layer_means::add(const layer_time& x) {
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    const auto ms = pass_kinds[k];
    kinds[k].all.add(x.all.*ms);
    if (x.awake.*ms != 0)
      kinds[k].awake.add(x.awake.*ms);
    if (x.waking.*ms != 0)
      kinds[k].waking.add(x.waking.*ms, std::numeric_limits<double>::lowest());
  }
}

void step_meter::layer_means::assume(const layer_time& x) {
  for (std::size_t k = 0; k < kinds.size(); ++k)
    kinds[k].all.assume(x.all.*pass_kinds[k]);
}

void step_meter::begin(const placement& grid, std::uint32_t side_by_side) {
  side_by_side_ = side_by_side;
  current_ = {grid.width, grid.depth};
  depth_ = grid.depth;
  heard_.clear();
  auto& here = visits_[current_];
  if (here.first_layer != grid.first_layer || here.side_by_side != side_by_side) // takes other times
    here = {};
  here.first_layer = grid.first_layer;
  here.side_by_side = side_by_side;
  ++here.visits;
}

void step_meter::hear(std::uint32_t rank, const progress& x) {
  const auto [last, first] = heard_.try_emplace(rank, x.at.steps);
  const auto steps = x.at.steps - std::min(x.at.steps, last->second);
  last->second = x.at.steps;
  if (first)
    for (const auto& t : x.times)
      layers_[side_by_side_][t.layer].assume(t);
  if (first || steps == 0 || !(x.step_ms > 0) || !std::isfinite(x.step_ms))
    return;
  auto& here = visits_[current_];
  if (rank == 0)
    here.steps += steps;
  here.step_ms.push_back(x.step_ms);
  if (here.step_ms.size() > most)
    here.step_ms.pop_front();
  here.waited.add(x.waited_ms / x.step_ms);
  here.other_ms[rank % depth_].add(x.other_ms);
  for (const auto& t : x.times) {
    here.layers[t.layer].add(t);
    layers_[side_by_side_][t.layer].add(t);
  }
}

double step_meter::crowding_of(std::uint32_t side_by_side) const {
  const auto found = layers_.find(side_by_side);
  if (found == layers_.end())
    return 1;
  double alone = 0, beside = 0;
  for (const auto& [layer, x] : layers_.begin()->second)
    if (const auto y = found->second.find(layer); y != found->second.end())
      for (std::size_t k = 0; k < x.kinds.size(); ++k)
        if (pass_kinds[k] != &pass_times::optimizer_ms && x.kinds[k].all.count > 0 &&
            y->second.kinds[k].all.count > 0) {
          alone += x.kinds[k].all.value;
          beside += y->second.kinds[k].all.value;
        }
  return alone > 0 ? std::max(1.0, beside / alone) : 1;
}

std::vector<double> step_meter::crowding() const {
  std::vector<double> result;
  for (const auto& [k, layers] : layers_) {
    const double known = result.empty() ? 1 : result.back(), now = std::max(known, crowding_of(k));
    const auto before = static_cast<std::uint32_t>(result.size());
    for (auto i = before + 1; i <= k; ++i) // evenly between what was seen
      result.push_back(before == 0 ? now : known + (now - known) * (i - before) / (k - before));
  }
  return result;
}

std::vector<layer_cost> step_meter::costs(std::span<const layer_cost> estimates) const {
  std::vector<layer_cost> result(estimates.begin(), estimates.end());
  const auto take = [&](std::uint32_t side_by_side, const all_layers& layers) {
    const double crowding = crowding_of(side_by_side);
    for (const auto& [layer, times] : layers)
      if (layer < result.size())
        for (std::size_t k = 0; k < times.kinds.size(); ++k) {
          const auto& [all, awake, waking] = times.kinds[k];
          result[layer].*pass_kinds[k] = (awake.count > 0 ? awake.value : all.value) / crowding;
          result[layer].waking.*pass_kinds[k] = std::max(0.0, waking.value) / crowding;
        }
  };
  for (const auto& [side_by_side, layers] : layers_)
    take(side_by_side, layers);
  if (const auto now = layers_.find(side_by_side_); now != layers_.end())
    take(now->first, now->second);
  return result;
}

std::vector<layer_cost> step_meter::costs_in(const shape& what, std::span<const layer_cost> estimates) const {
  std::vector<layer_cost> result(estimates.begin(), estimates.end());
  if (const auto found = visits_.find(what); found != visits_.end())
    for (const auto& [layer, times] : found->second.layers)
      if (layer < result.size()) {
        for (std::size_t k = 0; k < times.kinds.size(); ++k)
          result[layer].*pass_kinds[k] = times.kinds[k].all.value;
        result[layer].waking = {};
      }
  return result;
}

double step_meter::other_ms_in(const shape& what) const {
  double most = 0;
  if (const auto found = visits_.find(what); found != visits_.end())
    for (const auto& [stage, ms] : found->second.other_ms)
      most = std::max(most, ms.value);
  return most;
}

std::vector<measured_step> step_meter::measured(const job_specification& job, std::span<const layer_cost> sizes,
                                                const platform_cost& platform) const {
  std::vector<measured_step> result;
  for (const auto& [what, x] : visits_) {
    if (x.step_ms.size() < least_reports * what.slots() && x.step_ms.size() < most)
      continue;
    measured_step step{what, median({x.step_ms.begin(), x.step_ms.end()}), 0, x.steps, x.visits, false};
    step.error = error_of_median(x.step_ms, step.ms);
    if (x.waited.value > crowded && platform.machine_cores == 0) {
      auto measured_there = platform;
      measured_there.crowding.clear(); // is in the times already
      measured_there.reduce_ms_per_byte = measured_there.message_ms = measured_there.message_ms_per_byte = 0;
      measured_there.step_ms = other_ms_in(what); // so is all that is no layer's
      step.ms = step_ms(job, costs_in(what, sizes), x.first_layer, what.width, measured_there);
      step.by_cpu = true;
    }
    result.push_back(step);
  }
  return result;
}

} // namespace parcae

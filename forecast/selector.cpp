#include "forecast/selector.hpp"

#include "forecast/path_methods.hpp"
#include "forecast/regime_chain.hpp"
#include "forecast/survival.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <stdexcept>

namespace parcae {

std::vector<std::uint32_t> forecast_method::point(std::size_t look_ahead, double detail) const {
  std::vector<std::uint32_t> result;
  for (const auto& p : availability_of(forecast(look_ahead, detail)))
    result.push_back(quantile(p, 0.5));
  return result;
}

double crps(const distribution& p, std::uint32_t y) {
  double below = 0, sum = 0;
  const auto n = std::max<std::size_t>(p.size(), y);
  for (std::size_t i = 0; i < n; ++i) {
    below += i < p.size() ? p[i] : 0;
    const double error = below - (i >= y ? 1 : 0);
    sum += error * error;
  }
  return sum;
}

selector::selector(std::vector<std::unique_ptr<forecast_method>> candidates) :
    candidates_(std::move(candidates)), products_(candidates_.size() * candidates_.size(), 0),
    weights_(candidates_.size(), 1.0 / static_cast<double>(candidates_.size())) {}

namespace {

// Moves weights, which sum to 1, to where the quadratic form is least: always between the pair that gains most by it.
void minimise(const std::vector<double>& form, std::vector<double>& weights) {
  constexpr int most_steps = 100;
  const auto n = weights.size();
  for (int step = 0; step < most_steps; ++step) {
    std::size_t up = 0, down = n;
    std::vector<double> slope(n, 0);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j)
        slope[i] += form[i * n + j] * weights[j];
      if (slope[i] < slope[up])
        up = i;
      if (weights[i] > 0 && (down == n || slope[i] > slope[down]))
        down = i;
    }
    const double curvature = form[up * n + up] + form[down * n + down] - 2 * form[up * n + down];
    if (!(slope[down] - slope[up] > 1e-9 * curvature))
      return;
    const double moved = std::min(weights[down], (slope[down] - slope[up]) / curvature);
    weights[up] += moved;
    weights[down] -= moved;
  }
}

} // namespace

void selector::learn(const std::vector<std::vector<distribution>>& forecasts, std::size_t horizon, std::uint32_t y) {
  const auto count = candidates_.size();
  std::vector<double> below(count, 0), error(count);
  std::size_t n = y;
  for (const auto& x : forecasts)
    n = std::max(n, x[horizon].size());
  for (std::size_t k = 0; k < n; ++k) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto& p = forecasts[i][horizon];
      below[i] += k < p.size() ? p[k] : 0;
      error[i] = below[i] - (k >= y ? 1 : 0);
    }
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t j = 0; j < count; ++j)
        products_[i * count + j] += error[i] * error[j];
  }
  ++learnt_;
}

void selector::observe(const fleet_interval& x) {
  static const double kept = std::exp2(-1 / half_life);
  for (auto& sum : products_)
    sum *= kept;
  learnt_ *= kept;
  for (std::size_t origin = 0; origin < open_.size(); ++origin) {
    const auto h = open_.size() - origin;
    for (std::size_t i = 0; i < std::size(horizons); ++i)
      if (horizons[i] == h) {
        learn(open_[origin], i, x.available);
        const auto& points = open_points_[origin];
        const double excess = std::abs(static_cast<double>(points.median[i]) - x.available) -
                              std::abs(static_cast<double>(points.last) - x.available);
        median_excess_[i] += excess;
        excess_squares_[i] += excess * excess;
      }
  }
  if (open_.size() == longest) {
    open_.pop_front();
    open_points_.pop_front();
  }
  open_.emplace_back(candidates_.size());
  for (std::size_t c = 0; c < candidates_.size(); ++c) {
    candidates_[c]->observe(x);
    const auto all = availability_of(candidates_[c]->forecast(longest, planning_detail));
    for (auto h : horizons)
      open_.back()[c].push_back(all[h - 1]);
  }
  if (learnt_ > 0) {
    // Errors so many intervals ahead overlap, so that as many of them tell about as much as one would: that is what the
    // ridge is worth.
    const auto count = candidates_.size();
    double mean = 0;
    for (std::size_t i = 0; i < count; ++i)
      mean += products_[i * count + i] / static_cast<double>(count);
    constexpr auto overlap = std::accumulate(std::begin(horizons), std::end(horizons), std::size_t{0});
    auto form = products_;
    for (std::size_t i = 0; i < count; ++i)
      form[i * count + i] += mean * overlap / learnt_;
    minimise(form, weights_);
  }
  last_ = x.available;
  auto& points = open_points_.emplace_back(point_record{last_, {}});
  for (std::size_t i = 0; i < std::size(horizons); ++i) {
    distribution mix;
    for (std::size_t c = 0; c < candidates_.size(); ++c) {
      const auto& p = open_.back()[c][i];
      mix.resize(std::max(mix.size(), p.size()), 0);
      for (std::size_t n = 0; n < p.size(); ++n)
        mix[n] += weights_[c] * p[n];
    }
    points.median.push_back(quantile(mix, 0.5));
  }
}

std::vector<std::uint32_t> selector::point(std::size_t look_ahead, double detail) const {
  auto result = forecast_method::point(look_ahead, detail);
  for (std::size_t h = 1; h <= look_ahead; ++h) {
    std::size_t i = 0; // the longest horizon scored that is not beyond h
    while (i + 1 < std::size(horizons) && horizons[i + 1] <= h)
      ++i;
    if (median_excess_[i] > -2 * std::sqrt(excess_squares_[i]) || excess_squares_[i] == 0)
      result[h - 1] = last_;
  }
  return result;
}

availability_lattice selector::forecast(std::size_t look_ahead, double detail) const {
  std::vector<availability_lattice> parts;
  for (const auto& x : candidates_)
    parts.push_back(x->forecast(look_ahead, detail));
  return merged(parts, weights_);
}

availability_lattice selector::futures(std::size_t look_ahead, double detail) const {
  return candidates_.front()->futures(look_ahead, detail);
}

namespace {

std::vector<double> last_path(const std::vector<double>& series, std::size_t) {
  return series.empty() ? std::vector<double>{} : std::vector<double>{series.back()};
}

std::vector<double> mean_path(const std::vector<double>& series, std::size_t) {
  constexpr std::size_t window = 6;
  const auto n = std::min(window, series.size());
  if (n == 0)
    return {};
  return {std::accumulate(series.end() - static_cast<std::ptrdiff_t>(n), series.end(), 0.0) / static_cast<double>(n)};
}

std::vector<double> drift_path(const std::vector<double>& series, std::size_t look_ahead) {
  constexpr std::size_t window = 12;
  const auto n = std::min(window, series.size() - std::min<std::size_t>(1, series.size()));
  std::vector<double> path;
  for (std::size_t h = 1; n > 0 && h <= look_ahead; ++h)
    path.push_back(series.back() +
                   static_cast<double>(h) * (series.back() - series[series.size() - 1 - n]) / static_cast<double>(n));
  return path;
}

// The published baseline: (1, 1, 0) with drift on 12 points.
std::vector<double> published_arima(const std::vector<double>& series, std::size_t look_ahead) {
  return arima_path(series, look_ahead, 1, 1, 0, 12);
}

} // namespace

std::vector<std::string> method_names() {
  return {"last",      "last-spread", "mean",   "drift",    "arima", "arima-long",
          "smoothing", "nearest",     "regime", "survival", "auto"};
}

std::unique_ptr<forecast_method> make_method(std::string_view name) {
  if (name == "last")
    return std::make_unique<path_method>("last", last_path, false);
  if (name == "last-spread")
    return std::make_unique<path_method>("last-spread", last_path);
  if (name == "mean")
    return std::make_unique<path_method>("mean", mean_path);
  if (name == "drift")
    return std::make_unique<path_method>("drift", drift_path);
  if (name == "arima")
    return std::make_unique<path_method>("arima", published_arima);
  if (name == "arima-long")
    return std::make_unique<path_method>("arima-long", [](const std::vector<double>& series, std::size_t look_ahead) {
      return arima_path(series, look_ahead, 2, 1, 1, 240);
    });
  if (name == "smoothing")
    return std::make_unique<path_method>("smoothing", damped_smoothing());
  if (name == "nearest")
    return std::make_unique<nearest_situations>();
  if (name == "regime")
    return std::make_unique<regime_chain>();
  if (name == "survival")
    return std::make_unique<survival_method>();
  if (name == "auto") {
    std::vector<std::unique_ptr<forecast_method>> candidates;
    for (const char* x : {"regime", "last-spread"}) // plans follow the first
      candidates.push_back(make_method(x));
    return std::make_unique<selector>(std::move(candidates));
  }
  std::string names;
  for (const auto& x : method_names())
    names += (names.empty() ? "" : ", ") + x;
  throw std::invalid_argument("forecast \"" + std::string(name) + "\" is unknown; there are " + names);
}

} // namespace parcae

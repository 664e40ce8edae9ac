#include "forecast/path_methods.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace parcae {

namespace {

std::uint32_t to_count(double x) {
  return static_cast<std::uint32_t>(std::clamp(std::round(x), 0.0, 1e9));
}

double value_at(const std::vector<double>& path, std::size_t h, double otherwise) {
  return path.empty() ? otherwise : path[std::min(h, path.size() - 1)];
}

} // namespace

availability_lattice lattice_of(std::uint32_t available, const std::vector<std::vector<std::uint32_t>>& paths) {
  availability_lattice result;
  result.start = {1};
  result.stages.push_back({{available, {}}});
  std::vector<std::uint32_t> at(paths.size(), 0);
  std::vector<double> visits{static_cast<double>(paths.size())};
  const auto look_ahead = paths.empty() ? 0 : paths[0].size();
  for (std::size_t h = 0; h < look_ahead; ++h) {
    std::map<std::uint32_t, std::uint32_t> node_of;                  // availability -> node
    std::map<std::pair<std::uint32_t, std::uint32_t>, double> steps; // (node, next node) -> paths
    std::vector<lattice_node> nodes;
    std::vector<double> next_visits;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const auto [found, fresh] = node_of.try_emplace(paths[i][h], static_cast<std::uint32_t>(nodes.size()));
      if (fresh) {
        nodes.push_back({paths[i][h], {}});
        next_visits.push_back(0);
      }
      ++next_visits[found->second];
      ++steps[{at[i], found->second}];
      at[i] = found->second;
    }
    for (const auto& [step, count] : steps) {
      auto& node = result.stages[h][step.first];
      const auto now = node.available, then = nodes[step.second].available;
      node.branches.push_back(
          {then > now ? then - now : 0, then < now ? now - then : 0, count / visits[step.first], step.second});
    }
    result.stages.push_back(std::move(nodes));
    visits = std::move(next_visits);
  }
  return result;
}

path_method::path_method(std::string name, path_law law, bool spread) :
    name_(std::move(name)), law_(std::move(law)), spread_(spread) {}

void path_method::observe(const fleet_interval& x) {
  series_.push_back(x.available);
  if (!spread_)
    return;
  if (forecasts_.size() == horizon) {
    const auto origin = series_.size() - 1 - horizon; // of the oldest forecast
    std::vector<double> errors;
    for (std::size_t h = 0; h < horizon; ++h)
      errors.push_back(series_[origin + 1 + h] - value_at(forecasts_.front(), h, series_[origin]));
    errors_.push_back(std::move(errors));
    forecasts_.pop_front();
    if (errors_.size() > max_paths)
      errors_.pop_front();
  }
  forecasts_.push_back(law_(series_, horizon));
}

availability_lattice path_method::forecast(std::size_t look_ahead, double detail) const {
  const double last = series_.empty() ? 0 : series_.back();
  const auto path = spread_ && !forecasts_.empty() ? forecasts_.back() : law_(series_, look_ahead);
  // An even selection of the error paths, newest included.
  const auto wanted = static_cast<std::size_t>(std::max(1.0, std::min(0.1 / detail, 1e4)));
  const auto stride = std::max<std::size_t>(1, (errors_.size() + wanted - 1) / wanted);
  std::vector<std::vector<std::uint32_t>> paths;
  for (std::size_t i = 0; i < errors_.size(); i += stride) {
    const auto& errors = errors_[errors_.size() - 1 - i];
    paths.emplace_back();
    for (std::size_t h = 0; h < look_ahead; ++h)
      paths.back().push_back(to_count(value_at(path, h, last) + value_at(errors, h, 0)));
  }
  if (paths.empty()) {
    paths.emplace_back();
    for (std::size_t h = 0; h < look_ahead; ++h)
      paths.back().push_back(to_count(value_at(path, h, last)));
  }
  return lattice_of(to_count(last), paths);
}

namespace {

Eigen::VectorXd regress(const Eigen::MatrixXd& a, const Eigen::VectorXd& b) {
  // A touch of ridge: constant series leave the columns dependent.
  const auto columns = a.cols();
  return (a.transpose() * a + 1e-8 * Eigen::MatrixXd::Identity(columns, columns)).ldlt().solve(a.transpose() * b);
}

// The residuals of a long autoregression stand for them; 0 where there are none.
std::vector<double> innovations_of(const std::vector<double>& y, std::size_t lags) {
  const auto n = y.size();
  Eigen::MatrixXd a(n - lags, lags + 1);
  Eigen::VectorXd b(n - lags);
  for (std::size_t t = lags; t < n; ++t) {
    a(t - lags, 0) = 1;
    for (std::size_t i = 0; i < lags; ++i)
      a(t - lags, i + 1) = y[t - 1 - i];
    b(t - lags) = y[t];
  }
  const Eigen::VectorXd r = b - a * regress(a, b);
  std::vector<double> result(n, 0);
  for (std::size_t t = lags; t < n; ++t)
    result[t] = r(t - lags);
  return result;
}

} // namespace

std::vector<double> arima_path(const std::vector<double>& series, std::size_t look_ahead, std::size_t p, std::size_t d,
                               std::size_t q, std::size_t window) {
  std::vector<double> y(series.end() - static_cast<std::ptrdiff_t>(std::min(window, series.size())), series.end());
  std::vector<double> ends; // last value at each order of differencing
  for (std::size_t i = 0; i < d; ++i) {
    if (y.size() < 2)
      return {};
    ends.push_back(y.back());
    std::adjacent_difference(y.begin(), y.end(), y.begin());
    y.erase(y.begin());
  }
  const auto n = y.size();
  std::vector<double> innovations(n, 0); // then they and the series are regressors
  if (q > 0) {
    const auto lags = std::min(p + q + 2, n / 3);
    if (n <= 2 * lags + 1)
      return {};
    innovations = innovations_of(y, lags);
  }
  const auto first = std::max(p, q);
  if (n < first + p + q + 2)
    return {};
  Eigen::MatrixXd a(n - first, 1 + p + q);
  Eigen::VectorXd b(n - first);
  auto regressors = [&](std::size_t t, std::size_t i) {
    return i == 0 ? 1.0 : i <= p ? y[t - i] : innovations[t - (i - p)];
  };
  for (auto t = first; t < n; ++t) {
    for (std::size_t i = 0; i <= p + q; ++i)
      a(t - first, i) = regressors(t, i);
    b(t - first) = y[t];
  }
  const auto beta = regress(a, b);
  // An unstable fit must not run away: nothing beyond twice what was seen.
  const double bound = 2 * *std::max_element(series.begin(), series.end()) + 1;
  std::vector<double> path;
  for (std::size_t h = 0; h < look_ahead; ++h) {
    double x = 0;
    for (std::size_t i = 0; i <= p + q; ++i)
      x += beta(static_cast<Eigen::Index>(i)) * regressors(y.size(), i);
    x = std::isfinite(x) ? std::clamp(x, -bound, bound) : 0;
    y.push_back(x);
    innovations.push_back(0);
    for (auto i = d; i-- > 0;) {
      ends[i] += x;
      x = ends[i];
    }
    path.push_back(std::clamp(x, 0.0, bound));
  }
  return path;
}

damped_smoothing::damped_smoothing() {
  for (double alpha : {0.2, 0.5, 0.8, 1.0})
    for (double beta : {0.05, 0.2, 0.5})
      for (double damping : {0.5, 0.8, 0.95})
        states_.push_back({alpha, beta, damping});
}

std::vector<double> damped_smoothing::operator()(const std::vector<double>& series, std::size_t look_ahead) {
  for (; seen_ < series.size(); ++seen_)
    for (auto& s : states_) {
      const double x = series[seen_];
      if (seen_ == 0) {
        s.level = x;
        continue;
      }
      const double expected = s.level + s.damping * s.trend;
      s.squared_error += (x - expected) * (x - expected);
      const double level = s.alpha * x + (1 - s.alpha) * expected;
      s.trend = s.beta * (level - s.level) + (1 - s.beta) * s.damping * s.trend;
      s.level = level;
    }
  const auto& best = *std::min_element(states_.begin(), states_.end(),
                                       [](const auto& a, const auto& b) { return a.squared_error < b.squared_error; });
  std::vector<double> path;
  double factor = 0, power = 1;
  for (std::size_t h = 0; h < look_ahead; ++h) {
    factor += power *= best.damping;
    path.push_back(best.level + factor * best.trend);
  }
  return path;
}

void nearest_situations::observe(const fleet_interval& x) {
  available_.push_back(x.available);
}

availability_lattice nearest_situations::forecast(std::size_t look_ahead, double detail) const {
  constexpr std::size_t context = 6;
  constexpr std::size_t max_origins = 2'000;
  const auto n = available_.size();
  const double now = n == 0 ? 0 : available_.back();
  auto change = [&](std::size_t t, std::size_t back) { return available_[t - back] - available_[t - back - 1]; };
  std::vector<std::pair<double, std::size_t>> distance;
  const auto oldest = std::max(context + 1, n > max_origins ? n - max_origins : 0);
  for (auto t = oldest; t + look_ahead < n; ++t) {
    double sum = std::abs(available_[t] - now) / std::max(1.0, now);
    for (std::size_t back = 0; back < context; ++back)
      sum += std::min(std::abs(change(t, back) - change(n - 1, back)), 4.0) / static_cast<double>(back + 1);
    distance.emplace_back(sum, n - t); // among equals the newest
  }
  const auto wanted = detail < 1e-3 ? 48u : 16u;
  const auto count = std::min<std::size_t>(wanted, distance.size());
  std::partial_sort(distance.begin(), distance.begin() + static_cast<std::ptrdiff_t>(count), distance.end());
  std::vector<std::vector<std::uint32_t>> paths;
  for (std::size_t i = 0; i < count; ++i) {
    const auto t = n - distance[i].second;
    paths.emplace_back();
    for (std::size_t h = 1; h <= look_ahead; ++h)
      paths.back().push_back(to_count(now + available_[t + h] - available_[t]));
  }
  if (paths.empty())
    paths.emplace_back(look_ahead, to_count(now));
  return lattice_of(to_count(now), paths);
}

} // namespace parcae

#include "forecast/evaluation.hpp"

#include "forecast/method.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace parcae {

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

namespace {

double mean_of(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size()); // NaN of none
}

// Errors of neighbouring origins are alike, so blocks are drawn, not single values; around a circle, so that all values
// are drawn equally often (circular block bootstrap, Politis and Romano 1992).
void bootstrap(const std::vector<double>& x, double& low, double& high) {
  constexpr std::size_t block = 30, rounds = 1'000;
  low = high = std::numeric_limits<double>::quiet_NaN();
  if (x.size() <= block)
    return;
  std::mt19937_64 random(1);
  std::vector<double> means;
  for (std::size_t i = 0; i < rounds; ++i) {
    double sum = 0;
    std::size_t n = 0;
    while (n < x.size()) {
      const auto begin = random() % x.size();
      for (std::size_t k = 0; k < block && n < x.size(); ++k, ++n)
        sum += x[(begin + k) % x.size()];
    }
    means.push_back(sum / static_cast<double>(n));
  }
  std::sort(means.begin(), means.end());
  low = means[rounds / 40];
  high = means[rounds - 1 - rounds / 40];
}

} // namespace

std::vector<forecast_errors> evaluate(const fleet_history& history, std::span<const std::string> methods,
                                      std::span<const std::size_t> horizons, std::size_t warm_up) {
  std::vector<forecast_errors> result;
  std::vector<std::vector<double>> reference(horizons.size());
  const auto longest = horizons.empty() ? 0 : *std::max_element(horizons.begin(), horizons.end());
  for (const auto& name : methods) {
    const auto method = make_method(name);
    std::vector<std::vector<double>> scores(horizons.size());
    std::vector<forecast_errors> rows(horizons.size());
    for (std::size_t t = 0; t < history.size(); ++t) {
      method->observe(history[t]);
      if (t + 1 < warm_up || t + 1 >= history.size())
        continue;
      const auto ahead = std::min(longest, history.size() - 1 - t);
      const auto all = availability_of(method->forecast(ahead, scoring_detail));
      const auto points = method->point(ahead, scoring_detail);
      for (std::size_t i = 0; i < horizons.size(); ++i) {
        const auto h = horizons[i];
        if (h == 0 || h > ahead)
          continue;
        const auto y = history[t + h].available;
        rows[i].mae += std::abs(static_cast<double>(points[h - 1]) - y);
        rows[i].covered += quantile(all[h - 1], 0.1) <= y && y <= quantile(all[h - 1], 0.9) ? 1 : 0;
        scores[i].push_back(crps(all[h - 1], y));
      }
    }
    for (std::size_t i = 0; i < horizons.size(); ++i) {
      auto& row = rows[i];
      row.method = name;
      row.horizon = horizons[i];
      row.forecasts = scores[i].size();
      row.mae /= static_cast<double>(row.forecasts);
      row.covered /= static_cast<double>(row.forecasts);
      row.crps = mean_of(scores[i]);
      if (result.size() < horizons.size())
        reference[i] = scores[i];
      std::vector<double> difference(scores[i].size());
      for (std::size_t k = 0; k < difference.size(); ++k)
        difference[k] = scores[i][k] - reference[i][k];
      row.difference = mean_of(difference);
      bootstrap(difference, row.difference_low, row.difference_high);
    }
    result.insert(result.end(), rows.begin(), rows.end());
  }
  return result;
}

} // namespace parcae

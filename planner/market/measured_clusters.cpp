#include "planner/market/measured_clusters.hpp"

#include "planner/cost/profile.hpp"
#include "planner/market/table.hpp"

#include <numeric>

namespace parcae::market {

std::map<measured_cluster, measured_mean> parse_clusters(std::string_view text) {
  enum : std::size_t { k80, p100, v100, market, seconds, usd };
  const table all(text, {"k80", "p100", "v100", "market", "seconds", "usd"});
  std::map<measured_cluster, measured_mean> result;
  for (const auto& row : all.rows()) {
    if (row.text(market) != "spot" && row.text(market) != "on-demand")
      row.fail("market must be spot or on-demand");
    const auto number = [&](std::size_t column) { return static_cast<unsigned>(row.whole(column, 10'000)); };
    auto& x = result[{number(k80), number(p100), number(v100), row.text(market) == "spot"}];
    x.seconds += row.number(seconds, 0, 1e9);
    x.usd += row.number(usd, 0, 1e9);
    ++x.runs;
  }
  for (auto& [cluster, x] : result) {
    x.seconds /= x.runs;
    x.usd /= x.runs;
  }
  return result;
}

std::vector<double> parse_speeds(std::string_view text, std::string_view gpu, unsigned servers,
                                 std::string_view model) {
  enum : std::size_t { type, number, name, workers, rate };
  const table all(text, {"gpu", "servers", "model", "workers", "steps_per_s"});
  std::vector<double> result;
  for (const auto& row : all.rows())
    if (row.text(type) == gpu && row.whole(number, 1000) == servers && row.text(name) == model) {
      if (row.whole(workers, 10'000) != result.size() + 1)
        row.fail("workers must be " + std::to_string(result.size() + 1) + ", one more than the line before");
      result.push_back(row.number(rate, 0, 1e9));
    }
  return result;
}

std::optional<std::size_t> knee(std::span<const double> rates, double fraction) {
  for (std::size_t n = 1; n < rates.size(); ++n) {
    bool helps = false; // some that many more do, each of them so much
    for (std::size_t more = 1; n + more <= rates.size() && !helps; ++more)
      helps = rates[n - 1 + more] >= (1 + fraction * static_cast<double>(more)) * rates[n - 1];
    if (!helps)
      return n;
  }
  return {};
}

linear_fit fitted(std::span<const double> x, std::span<const double> y) {
  const auto n = static_cast<double>(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / n;
  const double mean_y = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double xx = 0, xy = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  linear_fit result;
  result.b = xx > 0 ? xy / xx : 0;
  result.a = mean_y - result.b * mean_x;
  result.r2 = xx > 0 && yy > 0 ? xy * xy / (xx * yy) : 0;
  return result;
}

linear_fit checkpoint_seconds(std::string_view text) {
  const table all(text, {"mb", "seconds"});
  std::vector<double> mb, seconds;
  for (const auto& row : all.rows()) {
    mb.push_back(row.number(0, 0, 1e9));
    seconds.push_back(row.number(1, 0, 1e9));
  }
  if (mb.size() < 2)
    throw parse_error("has fewer than two checkpoints, too few for a line");
  return fitted(mb, seconds);
}

} // namespace parcae::market

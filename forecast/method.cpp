#include "forecast/method.hpp"

#include "forecast/path_methods.hpp"
#include "forecast/regime_chain.hpp"
#include "forecast/survival.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace parcae {

std::vector<std::uint32_t> forecast_method::point(std::size_t look_ahead, double detail) const {
  std::vector<std::uint32_t> result;
  for (const auto& p : availability_of(forecast(look_ahead, detail)))
    result.push_back(quantile(p, 0.5));
  return result;
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
  if (name == "regime" || name == "auto")
    return std::make_unique<regime_chain>();
  if (name == "survival")
    return std::make_unique<survival_method>();
  std::string names;
  for (const auto& x : method_names())
    names += (names.empty() ? "" : ", ") + x;
  throw std::invalid_argument("forecast \"" + std::string(name) + "\" is unknown; there are " + names);
}

} // namespace parcae

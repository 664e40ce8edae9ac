#include "forecast/evaluation.hpp"
#include "forecast/method.hpp"
#include "planner/simulation/trace_generator.hpp"
#include "protocols/base/text.hpp"
#include "runtime/simulate/simulate.hpp"
#include "runtime/simulate/trace_input.hpp"

#include <boost/json.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

namespace parcae {

namespace {

namespace json = boost::json;

struct forecast_arguments {
  std::string trace;
  std::vector<std::string> methods;
  std::vector<std::size_t> horizons{1, 4, 8, 12};
  std::size_t warm_up = 30;
  bool as_json = false;
};

// NaN: nothing is known.
std::string formatted(const char* format, double x) {
  char text[40] = "-";
  if (!std::isnan(x))
    std::snprintf(text, sizeof text, format, x);
  return text;
}

json::value value_of(double x) {
  return std::isnan(x) ? json::value() : json::value(x);
}

void forecast(const forecast_arguments& args) {
  const auto history = load_trace(args.trace).intervals;
  // The first one is what the others are compared with.
  auto methods = args.methods;
  if (methods.empty())
    for (const auto& x : method_names())
      if (x != "auto")
        methods.push_back(x);
  methods.erase(std::remove(methods.begin(), methods.end(), "last-spread"), methods.end());
  methods.insert(methods.begin(), "last-spread");
  const auto rows = evaluate(history, methods, args.horizons, args.warm_up);
  if (std::ranges::all_of(rows, [](const auto& x) { return x.forecasts == 0; }))
    throw std::runtime_error(args.trace + ": the trace has " + counted(history.size(), "interval") +
                             ", too few for forecasts so far ahead after --warm-up " + std::to_string(args.warm_up));
  if (!args.as_json) {
    std::printf("%-12s %8s %10s %8s %8s %9s   %s\n", "method", "horizon", "forecasts", "MAE", "CRPS", "in 80 %",
                "CRPS against last value spread by its errors, 95 %");
    for (const auto& x : rows)
      std::printf("%-12s %8zu %10zu %8s %8s %9s   %s  [%s, %s]\n", x.method.c_str(), x.horizon, x.forecasts,
                  formatted("%.3f", x.mae).c_str(), formatted("%.3f", x.crps).c_str(),
                  formatted("%.1f%%", 100 * x.covered).c_str(), formatted("%+.3f", x.difference).c_str(),
                  formatted("%+.3f", x.difference_low).c_str(), formatted("%+.3f", x.difference_high).c_str());
    return;
  }
  json::array list;
  for (const auto& x : rows)
    list.push_back(
        json::object{{"method", x.method},
                     {"horizon", x.horizon},
                     {"forecasts", x.forecasts},
                     {"mae", value_of(x.mae)},
                     {"crps", value_of(x.crps)},
                     {"covered_80", value_of(x.covered)},
                     {"crps_difference", value_of(x.difference)},
                     {"crps_difference_95", json::array{value_of(x.difference_low), value_of(x.difference_high)}}});
  std::printf("%s\n", json::serialize(json::object{{"trace", args.trace}, {"errors", std::move(list)}}).c_str());
}

} // namespace

void add_forecast(CLI::App& app) {
  auto args = std::make_shared<forecast_arguments>();
  auto* command = app.add_subcommand("forecast", "error tables of the availability forecasts on a trace\nExample: "
                                                 "parcae forecast --trace p3.csv --method last,regime,auto");
  command->add_option("--trace", args->trace, "file, or KIND:SEED of a generated one: " + names_of(trace_kinds()))
      ->required();
  command->add_option("--method", args->methods, names_of(method_names()) + " (auto is regime; default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember(method_names()));
  command->add_option("--horizon", args->horizons, "intervals ahead (default: 1,4,8,12)")
      ->delimiter(',')
      ->check(CLI::Range(1, 24));
  command->add_option("--warm-up", args->warm_up, "intervals before the first forecast that counts")
      ->capture_default_str()
      ->check(CLI::Range(0, 1'000'000));
  command->add_flag("--json", args->as_json, "one JSON object");
  command->callback([args] { forecast(*args); });
}

} // namespace parcae

// What `parcae simulate --serve` found, as a table and as JSON.

#include "runtime/simulate/serve_command.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <cstdio>
#include <numeric>

namespace parcae {

namespace {

namespace json = boost::json;

std::string formatted(const char* format, double x) {
  char text[64];
  std::snprintf(text, sizeof text, format, x);
  return text;
}

double mean_of(const std::vector<double>& x) {
  return x.empty() ? 0 : std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

json::object spread_json(const std::vector<double>& ms) {
  return {{"mean", mean_of(ms)},
          {"p50", serving::latency_quantile(ms, 0.5)},
          {"p90", serving::latency_quantile(ms, 0.9)},
          {"p99", serving::latency_quantile(ms, 0.99)},
          {"max", serving::latency_quantile(ms, 1)}};
}

double per_token(const serving::service_result& x, double whole) {
  return x.tokens > 0 ? whole / static_cast<double>(x.tokens) : 0;
}

double usd(const serving::service_result& x, double usd_per_hour) {
  return x.instance_ms / 3.6e6 * usd_per_hour;
}

double stalled_ms(const serving::service_result& x) {
  double result = 0;
  for (const auto& step : x.steps)
    result += step.stall_ms;
  return result;
}

json::array steps_json(const std::vector<serving::service_step>& steps) {
  json::array result;
  for (const auto& x : steps)
    result.push_back(json::object{{"at_s", x.ms / 1000},
                                  {"slots", x.slots},
                                  {"pipelines", x.shape.width},
                                  {"stages", x.shape.depth},
                                  {"slots_of_a_stage", x.shape.degree},
                                  {"stall_ms", x.stall_ms},
                                  {"why", x.why}});
  return result;
}

} // namespace

std::string to_table(const serve_setting& setting, const std::vector<serve_run>& runs) {
  const auto count = std::to_string(setting.requests);
  std::string text = count + " requests of " + setting.arrivals + " to " + setting.profile + " on " + setting.trace +
                     ", " + setting.accounting + " accounting; seconds\n";
  char line[256];
  const auto add = [&](const auto&... values) {
    std::snprintf(line, sizeof line, "%-10s %-11s %9s %9s %9s %9s %9s %8s %8s %11s\n", values...);
    text += line;
  };
  add("policy", "batches", "mean", "p50", "p99", "first p99", "tokens/s", "changes", "unserved",
      setting.usd_per_hour ? "$/M tokens" : "inst s/k");
  for (const auto& [policy, batches, x] : runs) {
    const auto all = x.latencies_ms();
    const auto seconds = [](double ms) { return formatted("%.2f", ms / 1000); };
    add(policy.c_str(), batches.c_str(), seconds(mean_of(all)).c_str(),
        seconds(serving::latency_quantile(all, 0.5)).c_str(), seconds(serving::latency_quantile(all, 0.99)).c_str(),
        seconds(serving::latency_quantile(x.first_ms(), 0.99)).c_str(),
        formatted("%.1f", static_cast<double>(x.tokens) / x.end_ms * 1000).c_str(),
        std::to_string(x.steps.empty() ? 0 : x.steps.size() - 1).c_str(), std::to_string(x.unserved).c_str(),
        formatted("%.2f", setting.usd_per_hour ? per_token(x, usd(x, *setting.usd_per_hour)) * 1e6
                                               : per_token(x, x.instance_ms / 1000) * 1000)
            .c_str());
  }
  return text;
}

json::object to_json(const serve_setting& setting, const std::vector<serve_run>& runs) {
  json::array list;
  for (const auto& [policy, batches, x] : runs) {
    json::object run{{"policy", policy},
                     {"batches", batches},
                     {"latency_ms", spread_json(x.latencies_ms())},
                     {"first_token_ms", spread_json(x.first_ms())},
                     {"unserved", x.unserved},
                     {"tokens", x.tokens},
                     {"tokens_per_s", static_cast<double>(x.tokens) / x.end_ms * 1000},
                     {"positions_computed", x.computed},
                     {"positions_computed_twice", x.computed - std::min(x.computed, x.needed)},
                     {"instance_hours", x.instance_ms / 3.6e6},
                     {"instance_s_per_token", per_token(x, x.instance_ms / 1000)},
                     {"stalled_ms", stalled_ms(x)},
                     {"steps", steps_json(x.steps)}};
    if (setting.usd_per_hour) {
      run["usd"] = usd(x, *setting.usd_per_hour);
      run["usd_per_million_tokens"] = per_token(x, usd(x, *setting.usd_per_hour)) * 1e6;
    }
    list.push_back(std::move(run));
  }
  return {{"profile", setting.profile},
          {"trace", setting.trace},
          {"arrivals", setting.arrivals},
          {"accounting", setting.accounting},
          {"asked_per_s", setting.asked_per_s},
          {"requests", setting.requests},
          {"runs", std::move(list)}};
}

} // namespace parcae

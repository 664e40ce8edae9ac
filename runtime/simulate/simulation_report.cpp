#include "runtime/simulate/simulation_report.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <cstdio>

namespace parcae {

namespace {

namespace json = boost::json;

double percentile(const std::vector<double>& sorted, double q) {
  if (sorted.empty())
    return 0;
  return sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(q * static_cast<double>(sorted.size())))];
}

template <class... Ts>
void append(std::string& text, const char* format, Ts... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  text += line;
}

json::object describe(const simulation_setting& setting, const policy_run& x) {
  json::object result{{"profile", setting.profile},
                      {"trace", setting.trace},
                      {"policy", x.policy},
                      {"forecast", x.forecast},
                      {"notice", setting.notice ? json::value(*setting.notice) : json::value("trace")},
                      {"look_ahead", setting.look_ahead},
                      {"accounting", setting.accounting},
                      {"intervals", setting.intervals},
                      {"samples", x.samples},
                      {"samples_per_s", x.samples_per_s},
                      {"share_of_ideal", x.share_of_ideal()},
                      {"migrations", x.migrations},
                      {"plan_wall_ms", json::object{{"total", x.plan_total_ms},
                                                    {"p50", percentile(x.plan_ms, 0.5)},
                                                    {"p99", percentile(x.plan_ms, 0.99)}}}};
  if (x.lost)
    result["lost_samples"] = json::object{{"bytes", x.lost->bytes},
                                          {"messages", x.lost->messages},
                                          {"replayed", x.lost->replayed},
                                          {"snapshots", x.lost->snapshots},
                                          {"remainder", x.lost->remainder}};
  if (x.published_samples_per_s)
    result["published_samples_per_s_on_scaled_p3"] = *x.published_samples_per_s;
  return result;
}

} // namespace

std::string to_table(const std::vector<policy_run>& runs) {
  std::string text;
  const bool real_time = std::any_of(runs.begin(), runs.end(), [](const auto& x) { return x.lost.has_value(); });
  append(text, "%-11s %15s %11s %9s %10s", "policy", "samples", "samples/s", "of ideal", "changes");
  if (real_time)
    append(text, " %9s %9s %9s %9s %9s", "bytes", "messages", "replayed", "snapshots", "remainder");
  append(text, " %12s %8s\n", "planning ms", "p99 ms");
  for (const auto& x : runs) {
    append(text, "%-11s %15.1f %11.2f %8.2f%% %10u", x.policy.c_str(), x.samples, x.samples_per_s,
           100 * x.share_of_ideal(), x.migrations);
    if (x.lost)
      for (const double part :
           {x.lost->bytes, x.lost->messages, x.lost->replayed, x.lost->snapshots, x.lost->remainder})
        append(text, " %8.2f%%", x.ideal > 0 ? 100 * part / x.ideal : 0);
    else if (real_time)
      append(text, " %9s %9s %9s %9s", "-", "-", "-", "-");
    append(text, " %12.1f %8.3f\n", x.plan_total_ms, percentile(x.plan_ms, 0.99));
  }
  if (std::any_of(runs.begin(), runs.end(), [](const auto& x) { return x.published_samples_per_s.has_value(); }))
    text += "varuna, bamboo, oobleck: samples/s from the first start to the last step; of the ideal of the three, as "
            "measured\n"
            "by their authors on other machines; changes are regroupings\n";
  return text;
}

json::object to_json(const simulation_setting& setting, const std::vector<policy_run>& runs) {
  if (runs.size() == 1)
    return describe(setting, runs[0]);
  json::array list;
  for (const auto& x : runs)
    list.push_back(describe(setting, x));
  return {{"runs", std::move(list)}};
}

} // namespace parcae

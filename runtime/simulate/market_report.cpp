// What `parcae simulate --market` found, as a table, as JSON and as a plot.

#include "runtime/simulate/gnuplot.hpp"
#include "runtime/simulate/market_command.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <locale>
#include <sstream>

namespace parcae {

namespace {

namespace json = boost::json;

std::string figure_text(const char* format, double x) {
  char text[40];
  std::snprintf(text, sizeof text, format, x);
  return text;
}

std::size_t over(const market_setting& setting, const market::market_run& run) {
  return static_cast<std::size_t>(std::ranges::count_if(
      run.windows, [&](const auto& x) { return setting.total_usd && x.usd > *setting.total_usd; }));
}

// Mean over the windows of a figure; of those that have it.
template <class F>
std::string mean(const market::market_run& run, const char* format, F figure) {
  double sum = 0, count = 0;
  for (const auto& x : run.windows)
    if (const std::optional<double> value = figure(x)) {
      sum += *value;
      count += 1;
    }
  return count > 0 ? figure_text(format, sum / count) : "-";
}

bool is_gang(const market::market_run& run) {
  return std::ranges::any_of(run.windows, [](const auto& x) { return x.launches > 0; });
}

json::value optional(const std::optional<double>& x) {
  return x ? json::value(*x) : json::value();
}

// Infinite: not done.
std::optional<double> finish_h(double seconds) {
  return std::isfinite(seconds) ? std::optional(seconds / 3600) : std::nullopt;
}

json::object money_json(const market::spread& x) {
  return {{"p10", x.p10}, {"p50", x.p50}, {"p90", x.p90}};
}

json::object hours_json(const market::spread& x) {
  return {{"p10", optional(finish_h(x.p10))}, {"p50", optional(finish_h(x.p50))}, {"p90", optional(finish_h(x.p90))}};
}

json::object to_json(const market::purchase_option& x) {
  return {{"place", x.what.place},
          {"spot", x.what.spot},
          {"on_demand", x.what.on_demand},
          {"usd_per_h", x.usd_per_h},
          {"worth_per_h", x.worth_per_h}};
}

json::array to_json(const std::vector<market::purchase_record>& decisions) {
  json::array result;
  for (const auto& [hours, x] : decisions) {
    json::array others;
    for (const auto& y : x.runners_up)
      others.push_back(to_json(y));
    result.push_back(json::object{{"at_h", hours},
                                  {"place", x.what.place},
                                  {"spot", x.what.spot},
                                  {"on_demand", x.what.on_demand},
                                  {"reserve", x.is_reserve},
                                  {"usd_per_sample", x.usd_per_sample},
                                  {"expected_usd", x.expected_usd},
                                  {"expected_finish_h", optional(finish_h(x.expected_finish_s))},
                                  {"expected_usd_spread", money_json(x.usd_spread)},
                                  {"expected_finish_spread_h", hours_json(x.finish_s_spread)},
                                  {"why", x.why},
                                  {"runners_up", std::move(others)}});
  }
  return result;
}

} // namespace

std::string to_table(const market_setting& setting, const std::vector<market::market_run>& runs) {
  std::string text;
  char line[256];
  const auto add = [&](const auto&... values) {
    std::snprintf(line, sizeof line, "%-24s %9s %9s %6s %9s %9s %9s %9s", values...);
    text += line;
  };
  text += figure_text("%.4g h of work of ", setting.work_h) + std::to_string(setting.instances) + " " + setting.kind +
          figure_text(" in %.4g h, ", setting.deadline_h) + std::to_string(runs.empty() ? 0 : runs[0].windows.size()) +
          " windows of " + setting.market + "; means in US-dollars and hours\n";
  add("policy", "$", "most $", "late", "finish", "spot h", "demand h", "launches");
  text += setting.total_usd ? "  over total\n" : "\n";
  for (const auto& x : runs) {
    const auto of_gang = [&](auto figure) {
      return is_gang(x) ? mean(x, "%.1f", [&](const auto& y) { return std::optional<double>(figure(y)); }) : "-";
    };
    add(x.policy.c_str(), figure_text("%.2f", x.mean_usd()).c_str(), figure_text("%.2f", x.max_usd()).c_str(),
        std::to_string(x.late()).c_str(), mean(x, "%.1f", [](const auto& y) { return y.finish_h; }).c_str(),
        of_gang([](const auto& y) { return y.spot_h; }).c_str(),
        of_gang([](const auto& y) { return y.on_demand_h; }).c_str(),
        of_gang([](const auto& y) { return static_cast<double>(y.launches); }).c_str());
    text += setting.total_usd ? "  " + std::to_string(over(setting, x)) + "\n" : "\n";
  }
  return text;
}

json::object to_json(const market_setting& setting, const std::vector<market::market_run>& runs) {
  json::array list;
  for (const auto& x : runs) {
    json::array windows;
    for (const auto& y : x.windows) {
      json::object window{{"begin_h", y.begin_h}, {"usd", y.usd}, {"in_time", y.in_time}};
      if (y.launches > 0) {
        window["finish_h"] = optional(y.finish_h);
        window["spot_h"] = y.spot_h;
        window["on_demand_h"] = y.on_demand_h;
        window["launches"] = y.launches;
      }
      if (!y.decisions.empty())
        window["decisions"] = to_json(y.decisions);
      windows.push_back(std::move(window));
    }
    json::object run{{"policy", x.policy},
                     {"mean_usd", x.mean_usd()},
                     {"max_usd", x.max_usd()},
                     {"late", x.late()},
                     {"windows", std::move(windows)}};
    if (setting.total_usd)
      run["over_total"] = over(setting, x);
    list.push_back(std::move(run));
  }
  return {{"market", setting.market},
          {"kind", setting.kind},
          {"deadline_h", setting.deadline_h},
          {"work_h", setting.work_h},
          {"gang_instances", setting.instances},
          {"total_usd", optional(setting.total_usd)},
          {"runs", std::move(list)}};
}

// Above what was to be had, below what each window cost.
void plot_market(const std::string& path, const market_setting& setting, const market::rented_market& market,
                 const std::vector<market::market_run>& runs) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text.precision(10);
  std::string available, costs;
  const auto add = [](std::string& curves, const std::string& x) { curves += (curves.empty() ? "" : ", ") + x; };
  for (std::size_t i = 0; i < market.places.size(); ++i) {
    const auto block = "$place" + std::to_string(i);
    text << block << " << END\n";
    const auto& spot = market.places[i].spot;
    for (std::size_t t = 0; t < spot.size(); ++t)
      if (t == 0 || t + 1 == spot.size() || spot[t] != spot[t - 1])
        text << static_cast<double>(t) * market.tick_s / 3600 << ' ' << spot[t] << '\n';
    text << "END\n";
    // The names come as arguments: gnuplot expands what is in a script.
    add(available, block + " using 1:2 with steps title word(ARG2, " + std::to_string(i + 1) + ")");
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto block = "$run" + std::to_string(i);
    text << block << " << END\n";
    for (const auto& x : runs[i].windows)
      text << x.begin_h << ' ' << x.usd << '\n' << x.begin_h + setting.deadline_h << ' ' << x.usd << "\n\n";
    text << "END\n";
    add(costs, block + " using 1:2 with lines lw 2 title word(ARG3, " + std::to_string(i + 1) + ")");
  }
  if (setting.total_usd)
    add(costs, std::to_string(*setting.total_usd) + " with lines dashtype 2 lc rgb 'black' title 'total'");
  text << "set terminal svg size 1000,640 noenhanced dynamic font 'sans,12' background 'white'\n"
          "set multiplot layout 2,1 title ARG1\nset grid\nset key outside right top Left reverse\nset lmargin 10\n"
          "set rmargin 30\nset yrange [0:*]\nset offsets 0, 0, graph 0.05, 0\nset ylabel 'spot instances'\nplot "
       << available << "\nset ylabel 'US-dollars'\nset xlabel 'hours'\nplot " << costs << "\nunset multiplot\n";
  std::string places, policies;
  for (const auto& x : market.places)
    places += x.name + " ";
  for (const auto& x : runs)
    policies += x.policy + " ";
  draw(path, text.str(),
       {setting.market + ": " + std::to_string(setting.instances) + " " + setting.kind + ", deadline " +
            figure_text("%.4g h", setting.deadline_h),
        places, policies});
}

} // namespace parcae

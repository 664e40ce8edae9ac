// What `parcae advise` found, as a table and as JSON.

#include "protocols/base/enum_text.hpp"
#include "runtime/simulate/advise_command.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace parcae {

namespace market {
BOOST_DESCRIBE_ENUM(holding_rule, budget, spot, on_demand, filled)
}

namespace {

namespace json = boost::json;

std::string text_of(const char* format, double x) {
  char text[64];
  std::snprintf(text, sizeof text, format, x);
  return text;
}

std::string hours_text(double x) {
  return std::isfinite(x) ? text_of("%.1f", x) : "never";
}

json::value finite(double x) {
  return std::isfinite(x) ? json::value(x) : json::value();
}

json::object to_json(const market::spread& x) {
  return {{"p10", finite(x.p10)}, {"p50", finite(x.p50)}, {"p90", finite(x.p90)}};
}

std::string name_of(market::holding_rule x) {
  std::string result(enum_name(x));
  std::ranges::replace(result, '_', '-');
  return result;
}

// Instance-hours by place.
std::string places_text(const advice_setting& setting, const market::advised_plan& x) {
  std::string result;
  const auto& places = setting.request.kinds[x.what.kind].market.places;
  for (std::size_t i = 0; i < x.places.size(); ++i)
    for (const bool spot : {true, false})
      if (const double hours = spot ? x.places[i].spot : x.places[i].on_demand; hours > 0.05)
        result += (result.empty() ? "" : ", ") + text_of("%.1f h", hours) + (spot ? " of spot in " : " on demand in ") +
                  places[i].name;
  return result;
}

} // namespace

std::string to_table(const advice_setting& setting, const market::advice& x, std::size_t plans) {
  const auto& request = setting.request;
  auto text = setting.job + text_of(": %.4g samples", request.samples) +
              text_of(" in %.4g h, ", request.deadline_s / 3600) + std::to_string(x.windows) + " windows of " +
              setting.market + "; US-dollars and hours, and between which 8 of 10 runs are expected\n";
  std::size_t width = 4;
  for (std::size_t i = 0; i < std::min(plans, x.plans.size()); ++i)
    width = std::max(width, x.plans[i].text.size());
  char line[400];
  const auto add = [&](const auto&... values) {
    std::snprintf(line, sizeof line, "%-*.100s %9s %19s %7s %15s %6s %6s  %s\n", static_cast<int>(width), values...);
    text += line;
  };
  add("plan", "$", "10 to 90 %", "finish", "10 to 90 %", "late", "over", "why");
  for (std::size_t i = 0; i < std::min(plans, x.plans.size()); ++i) {
    const auto& y = x.plans[i];
    add(y.text.c_str(), text_of("%.2f", y.usd).c_str(),
        (text_of("%.2f", y.usd_spread.p10) + text_of(" – %.2f", y.usd_spread.p90)).c_str(),
        hours_text(y.finish_h).c_str(),
        (hours_text(y.finish_spread.p10) + " – " + hours_text(y.finish_spread.p90)).c_str(),
        text_of("%.0f %%", 100 * y.late).c_str(), request.total_usd ? text_of("%.0f %%", 100 * y.over).c_str() : "-",
        y.why.c_str());
  }
  if (x.plans.size() > plans)
    text += "… " + std::to_string(x.plans.size() - plans) + " more: --plans, --json\n";
  if (!x.plans.empty())
    text += "the first: " + places_text(setting, x.plans.front()) + "\n";
  for (std::size_t i = 0; i < x.knees.size(); ++i) {
    const auto& kind = request.kinds[i];
    text += kind.name + (x.knees[i] ? ": beyond " + std::to_string(*x.knees[i]) + " one more adds less than a tenth\n"
                                    : ": up to " + std::to_string(kind.options.samples_per_s.size() - 1) +
                                          " each one more adds a tenth or more\n");
  }
  for (const auto& name : setting.assumed)
    text += "no history of " + name + ": taken as always to be had\n";
  return text;
}

json::object to_json(const advice_setting& setting, const market::advice& x) {
  json::array plans, knees;
  for (const auto& y : x.plans) {
    const auto& kind = setting.request.kinds[y.what.kind];
    json::array places;
    for (std::size_t i = 0; i < y.places.size(); ++i)
      places.push_back(json::object{
          {"place", kind.market.places[i].name}, {"spot_h", y.places[i].spot}, {"on_demand_h", y.places[i].on_demand}});
    json::object plan{{"plan", y.text},
                      {"policy", name_of(y.what.rule)},
                      {"kind", kind.name},
                      {"usd", y.usd},
                      {"usd_spread", to_json(y.usd_spread)},
                      {"finish_h", finite(y.finish_h)},
                      {"finish_spread_h", to_json(y.finish_spread)},
                      {"late", y.late},
                      {"over_budget", setting.request.total_usd ? json::value(y.over) : json::value()},
                      {"instance_hours", std::move(places)},
                      {"why", y.why}};
    if (y.what.rule != market::holding_rule::budget) {
      plan["place"] = kind.market.places[y.what.place].name;
      plan["instances"] = y.what.instances;
    }
    plans.push_back(std::move(plan));
  }
  for (std::size_t i = 0; i < x.knees.size(); ++i)
    knees.push_back(json::object{{"kind", setting.request.kinds[i].name},
                                 {"instances", x.knees[i] ? json::value(*x.knees[i]) : json::value()}});
  json::array assumed;
  for (const auto& name : setting.assumed)
    assumed.emplace_back(name);
  return {{"job", setting.job},
          {"market", setting.market},
          {"samples", setting.request.samples},
          {"deadline_h", setting.request.deadline_s / 3600},
          {"windows", x.windows},
          {"knees", std::move(knees)},
          {"without_history", std::move(assumed)},
          {"plans", std::move(plans)}};
}

std::string to_table(const fleet_advice& x) {
  auto text = text_of("work for %.4g machines", x.load.offered());
  if (x.best == 0)
    return text + text_of("; to rent all is cheapest: %.4f $ for a machine-hour of work\n", x.load.rent_usd);
  text += "\n      machines  $ for an hour of work    rented    wait\n";
  char line[120];
  for (const auto& y : x.choices) {
    std::snprintf(line, sizeof line, "%-4s  %8u  %21.4f  %7.2f%%  %5.0fs\n", y.machines == x.best ? "best" : "",
                  y.machines, y.cost.usd_per_h, 100 * y.cost.rented, y.cost.wait_s);
    text += line;
  }
  const auto best = std::ranges::find(x.choices, x.best, &fleet_choice::machines);
  return text + text_of("to keep them is %.1f %% cheaper than ", 100 * (1 - best->cost.usd_per_h / x.load.rent_usd)) +
         text_of("to rent all, at %.4f $\n", x.load.rent_usd);
}

json::object to_json(const fleet_advice& x) {
  json::array choices;
  for (const auto& y : x.choices)
    choices.push_back(json::object{{"machines", y.machines},
                                   {"usd_per_h", y.cost.usd_per_h},
                                   {"rented", y.cost.rented},
                                   {"wait_s", y.cost.wait_s}});
  return {{"offered_machines", x.load.offered()},
          {"rent_usd_per_h", x.load.rent_usd},
          {"most_wait_s", x.max_wait_s},
          {"best_machines", x.best},
          {"choices", std::move(choices)}};
}

} // namespace parcae

#include "planner/market/cheapest_now.hpp"

#include "planner/cost/profile.hpp"
#include "planner/market/table.hpp"

#include <algorithm>
#include <limits>

namespace parcae::market {

namespace {

constexpr std::size_t first_start = 35, last_start = 6; // days from the end

using by_day = std::map<std::string, std::vector<const day_price*>>;

class replay {
public:
  replay(const std::vector<day_price>& prices, const std::map<std::string, double>& steps_per_s, dime_rule rule,
         const dime_options& options) :
      steps_per_s_(steps_per_s),
      rule_(rule), options_(options) {
    for (const bool azure : {false, true})
      for (const auto& x : prices)
        if (x.is_azure == azure)
          days_[x.day].push_back(&x);
    for (const auto& [day, rows] : days_)
      if (std::ranges::find(rows, "p3.2xlarge", &day_price::kind) != rows.end())
        market_.push_back(day);
  }

  double mean_usd() const {
    if (market_.size() < first_start)
      throw parse_error("p3.2xlarge has prices on " + std::to_string(market_.size()) + " days, must have on " +
                        std::to_string(first_start));
    double sum = 0;
    for (auto i = market_.size() - first_start; i <= market_.size() - last_start; ++i)
      sum += usd(market_[i]);
    return sum / (first_start - last_start + 1);
  }

private:
  bool may_take(const day_price& x) const {
    switch (rule_) {
    case dime_rule::base:
      return x.kind == "p3.2xlarge";
    case dime_rule::type:
      return x.kind == "p3.2xlarge" || x.kind == "p2.xlarge";
    case dime_rule::packed:
      return !x.is_azure;
    default:
      return true;
    }
  }

  double rate(const day_price& x) const {
    const auto found = steps_per_s_.find(x.gpu);
    return found == steps_per_s_.end() ? 0 : found->second;
  }

  // Steps a second and dollar an hour.
  double worth(const day_price& x) const {
    return rate(x) / (x.is_azure && options_.azure_by_price ? x.usd_per_h : x.usd_per_h / x.gpus);
  }

  const std::vector<const day_price*>& rows_of(const std::string& day) const {
    static const std::vector<const day_price*> none;
    const auto found = days_.find(day);
    return found == days_.end() ? none : found->second;
  }

  const day_price* best_of(const std::string& day, const day_price* best) const {
    for (const auto* x : rows_of(day))
      if (may_take(*x) && (!best || worth(*x) > worth(*best)))
        best = x;
    return best;
  }

  double usd(const std::string& start) const {
    double left = options_.days * 86'400 * steps_per_s_.at("v100"), result = 0;
    const day_price* now = best_of(start, nullptr);
    for (auto day = days_.find(start); left > 0; ++day) {
      if (day == days_.end() || day->first > market_.back())
        return result + left / rate(*now) / 3600 * now->usd_per_h / now->gpus;
      const auto same = std::ranges::find_if(
          day->second, [&](const auto* x) { return x->zone == now->zone && x->kind == now->kind; });
      if (day->first != start && same != day->second.end())
        now = *same;
      if (rule_ == dime_rule::dynamic)
        now = best_of(day->first, now);
      const double fraction = std::min(1.0, left / (86'400 * rate(*now)));
      result += fraction * 24 * now->usd_per_h / now->gpus;
      left -= fraction * 86'400 * rate(*now);
      if (fraction < 1)
        break;
    }
    return result;
  }

  const std::map<std::string, double>& steps_per_s_;
  dime_rule rule_;
  dime_options options_;
  by_day days_;
  std::vector<std::string> market_; ///< days, the last one its end
};

} // namespace

std::vector<day_price> parse_day_prices(std::string_view text, bool is_azure) {
  enum : std::size_t { day, zone, type, gpu, gpus, price };
  const table all(text, {"day", "zone", "type", "gpu", "gpus", "usd_per_h"});
  std::vector<day_price> result;
  for (const auto& row : all.rows())
    result.push_back({row.text(day), is_azure, row.text(zone), row.text(type), row.text(gpu), row.number(gpus, 1, 64),
                      row.number(price, 1e-9, max_usd_per_h)});
  return result;
}

std::map<std::string, std::map<std::string, double>> parse_steps_per_s(std::string_view text) {
  enum : std::size_t { model, gpu, rate };
  const table all(text, {"model", "gpu", "steps_per_s"});
  std::map<std::string, std::map<std::string, double>> result;
  for (const auto& row : all.rows())
    result[row.text(model)][row.text(gpu)] = row.number(rate, 1e-12, 1e12);
  return result;
}

double dime_usd(const std::vector<day_price>& prices, const std::map<std::string, double>& steps_per_s, dime_rule rule,
                const dime_options& options) {
  if (!steps_per_s.contains("v100"))
    throw parse_error("the model has no rate on a v100, which its work is counted by");
  return replay(prices, steps_per_s, rule, options).mean_usd();
}

} // namespace parcae::market

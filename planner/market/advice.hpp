#pragma once

// What to expect of a job before it is submitted: the budget policy, and holdings that stay as they are, replayed in
// windows of the pools' histories, and ranked. A function of histories, rates and prices. Pure.

#include "planner/market/elastic_world.hpp"
#include "planner/market/market_runs.hpp"
#include "planner/market/purchase.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace parcae::market {

/// Instances of a kind, and the job on them.
struct advised_kind {
  std::string name;
  rented_market market;     ///< its ticks are the intervals between decisions
  purchase_options options; ///< rates, changes, start, money; not the deadline
};

struct advice_request {
  std::vector<advised_kind> kinds;
  double samples = 0; ///< to be done
  double deadline_s = 0;
  std::optional<double> total_usd; ///< how often more is spent is counted
  std::size_t windows = 24;        ///< that are tried; they begin evenly over the history, which goes round
  std::size_t sizes = 6;           ///< of holdings that stay, in a place
};

/// What is held all the time.
enum class holding_rule {
  budget,    ///< what is worth its price
  spot,      ///< `instances` of spot, as far as they are to be had
  on_demand, ///< `instances` on demand
  filled,    ///< `instances`, on demand where spot is not to be had
};

struct plan {
  std::size_t kind = 0; ///< among those of the request
  holding_rule rule = holding_rule::budget;
  std::size_t place = 0;       ///< not of the budget policy
  std::uint32_t instances = 0; ///< likewise
};

/// A window under a plan.
struct plan_run {
  double usd = 0;
  std::optional<double> finish_h; ///< none: not by twice the deadline; under the budget policy: not by the deadline
  std::vector<rented_hours> places;
};

struct advised_plan {
  plan what;
  std::string text;                 ///< "4 spot p3.2xlarge in us-west-2a"
  double usd = 0;                   ///< mean
  double finish_h = 0;              ///< mean; infinite: not done in some window
  spread usd_spread, finish_spread; ///< hours
  double late = 0, over = 0;        ///< shares of the windows: after the deadline, more than the total
  std::vector<rented_hours> places; ///< means
  std::string why;                  ///< a sentence
};

struct advice {
  std::vector<advised_plan> plans;               ///< best first
  std::vector<std::optional<std::size_t>> knees; ///< by kind: from how many on one more adds less than a tenth
  std::size_t windows = 0;                       ///< that were tried
};

/// Those in time and within the money in most windows first, the cheapest of them first. Throws std::invalid_argument,
/// one line for the user: a history that is shorter than the deadline.
advice advise(const advice_request& x);

/// A plan in each window.
std::vector<plan_run> runs_under(const advice_request& x, const plan& what);

/// Of a run to come, from runs in windows of a history that lasts `independent` times as long as one.
spread spread_of(std::vector<double> runs, double independent);

/// Columns kind, instances, samples_per_s: by kind, in the order of the file; of 0, 1, … instances, those that are not
/// measured as fast as the most below. Throws parse_error.
std::vector<std::pair<std::string, std::vector<double>>> parse_rates(std::string_view text);

} // namespace parcae::market

#pragma once

// What to rent now: the holding that is worth most at the price of progress, with a reserve that keeps the deadline
// sure where on demand is. A function of what is, what was seen and options; says why. Pure.

#include "planner/market/outlook.hpp"
#include "planner/market/progress_price.hpp"
#include "planner/market/spot_chain.hpp"

#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

namespace parcae::market {

struct holding {
  std::size_t place = 0;
  std::uint32_t spot = 0, on_demand = 0; ///< instances

  std::uint32_t instances() const { return spot + on_demand; }
  bool operator==(const holding&) const = default;
};

/// What a place offers now.
struct place_offer {
  std::string name;
  std::uint32_t spot = 0;     ///< to be had, those held included
  std::uint32_t max_spot = 0; ///< ever
  double spot_usd_per_h = 0;
  std::uint32_t on_demand = 0; ///< at most
  double on_demand_usd_per_h = 0;
  double speed = 1; ///< of its instances, over that of the fastest place's
};

/// What a job knows of itself.
struct purchase_options {
  std::vector<double> samples_per_s; ///< of 0, 1, … instances that train together, where they are fastest
  double interval_s = 300;           ///< between decisions
  double start_s = 0;                ///< from asking until it trains
  /// By the same clock as `now_s`; infinite: none. Then the total comes first, and what it is enough for is fast.
  double deadline_s = 0;
  /// Seconds in which nothing is trained when `from` slots become `to` others; to another place.
  std::function<double(std::uint32_t from, std::uint32_t to)> change_s;
  double move_s = 0;
  std::vector<std::vector<double>> move_usd; ///< from a place to another; empty: nothing
  bool meanwhile = true; ///< those that are there train until those asked for are; else what ran ends
  /// Price of a sample in place of the computed one, to compare with; then nothing is said of what is expected.
  std::function<double(const struct purchase_state&)> usd_per_sample;
  std::optional<double> total_usd, hourly_usd;
  std::size_t price_intervals = 240; ///< of a price of progress, at most
  std::size_t price_points = 600;    ///< of samples left, likewise
  std::size_t courses = 0;           ///< of chance, that spreads are told of; 0: none are
  bool total_first = false;          ///< what gives way if both cannot hold: the deadline
};

/// Where it stands.
struct purchase_state {
  double now_s = 0;
  double samples_left = 0;
  double spent_usd = 0;
  double share_used = 0.95; ///< of the time that was paid for: not lost to starts and changes
  std::vector<place_offer> places;
  holding working;                       ///< trains
  holding held;                          ///< with those that start; if in another place, all of it starts
  double starting_s = 0;                 ///< until the last of them is there
  double on_demand_starting_s = 0;       ///< the last of those on demand
  std::optional<std::size_t> last_place; ///< where the state is, if nothing is held
  bool is_reserve = false;               ///< the last decision's
};

struct purchase_option {
  holding what;
  double usd_per_h = 0;   ///< price
  double worth_per_h = 0; ///< in US-dollars, less the price and what the change costs
};

struct purchase {
  holding what;
  bool is_reserve = false;                 ///< on demand for good
  double late_s = 0;                       ///< behind the deadline, with the fastest that may be had now; 0: in time
  double usd_per_sample = 0;               ///< V
  double expected_usd = 0;                 ///< still to be paid
  double expected_finish_s = 0;            ///< on average; 0: not told
  spread usd_spread, finish_s_spread;      ///< of both; likewise
  std::vector<purchase_option> runners_up; ///< up to three
  std::string why;                         ///< a sentence
};

/// Decides interval by interval; keeps what it has learnt of availability.
class purchaser {
public:
  purchaser(purchase_options options, const std::vector<place_offer>& places);

  purchase decide(const purchase_state& x);

  /// Adds to it, as it was decided now, when it ends on average, and the spreads, if there are courses.
  void look_ahead(const purchase_state& x, purchase& to) const;

  /// Other figures of the job than it began with, for as many instances. Progress is priced anew where a rate is
  /// another one by a tenth, else within the hour.
  void know(purchase_options options, const std::vector<place_offer>& places);

  const purchase_options& options() const { return options_; }

private:
  void take_rates(const std::vector<place_offer>& places);
  bool has_deadline() const;
  bool is_total_first() const;
  void learn(const purchase_state& x);
  void price_progress(const purchase_state& x);
  std::vector<std::vector<interval_choice>> choices_of(const purchase_state& x) const;
  std::size_t interval_of(const purchase_state& x) const;
  double price_of(const purchase_state& x) const;
  /// What samples cost now over what they did when progress was priced: else by a rate measured a little lower all that
  /// is for sale costs more than a sample is worth, and nothing is held.
  double slower() const {
    const auto& now = options_.samples_per_s;
    const double then = std::accumulate(priced_rates_.begin(), priced_rates_.end(), 0.0);
    return then > 0 ? then / std::accumulate(now.begin(), now.end(), 0.0) : 1;
  }
  double price_without_deadline(const purchase_state& x) const;
  std::vector<purchase_option> options_without_deadline(const purchase_state& x, double& usd_per_sample) const;
  double planned_share(const purchase_state& x) const;
  double horizon_s(const purchase_state& x) const;
  double spare_s(const purchase_state& x, double until_there_s) const;
  double late_s(const purchase_state& x) const;
  holding reserve_of(const purchase_state& x) const;
  bool is_affordable(const holding& h, const purchase_state& x) const;
  bool is_safe(const holding& h, const purchase_state& x) const;
  std::vector<purchase_option> options_of(const purchase_state& x, double usd_per_sample) const;

  purchase_options options_;
  spot_chain chain_;
  double fastest_ = 0;             ///< samples/s, on demand alone
  double change_s_ = 0;            ///< the longest one
  double late_usd_per_sample_ = 0; ///< on demand alone
  std::optional<progress_price> price_;
  std::vector<std::vector<interval_choice>> choices_; ///< by state
  std::vector<double> chances_;                       ///< by state and the next one
  double priced_s_ = 0;                               ///< when
  std::vector<double> priced_rates_;                  ///< with which
  double priced_interval_s_ = 0;
  std::size_t intervals_ = 0;               ///< of that length, until the reserve
  double spot_usd_sum_ = 0, spot_seen_ = 0; ///< prices of the best place
};

} // namespace parcae::market

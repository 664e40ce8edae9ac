#pragma once

// How long a spot instance of a place will live, from what was seen of the place: survival by Nelson and Aalen, made
// worse where losses come in bursts. As SkyNomad's public code has it (sky_spot/strategies/unified_cost_model.py), its
// oddities included. Pure.

#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace parcae::market {

class spot_lives {
public:
  explicit spot_lives(double tick_h) : tick_h_(tick_h) {}

  // What happens; times in hours.
  void ended(double now_h, bool failed);
  void launched(double now_h);
  void launch_failed() { ++failures_; }
  void probed(double now_h, bool up);
  void taken_over(double now_h); ///< a launch is about to be tried

  /// Availability, without a spot instance of our own in this place.
  void seen(double now_h, bool up);

  /// Before each decision. `account_usd`: of all probes so far; `usd_per_h`: as last seen.
  void observe(double now_h, double account_usd, double usd_per_h);

  /// From now on, as observed.
  double expected_h() const;

  bool is_probed() const { return is_probed_; } ///< a probe's run goes on

private:
  struct life {
    double hours = 0;
    bool failed = false;
  };
  struct exposure {
    double risk = 0;
    double failures = 0;
  };
  struct hazard {
    std::vector<std::pair<double, double>> steps; ///< age, increment
    double tail = 0;

    double until(double age_h) const;
  };

  void start(double now_h, bool own);
  hazard learnt() const;
  void add(const exposure& x);

  double tick_h_;
  std::vector<life> lives_;
  std::optional<double> open_h_; ///< since when
  bool is_own_ = false;          ///< the open one
  std::optional<bool> up_;       ///< as seen
  bool is_probed_ = false;
  unsigned failures_ = 0;                     ///< since the last decision
  std::optional<double> own_age_, probe_age_; ///< at the last decision
  double age_h_ = 0;                          ///< of the open one; 0: none
  double probed_h_ = 0;
  double account_usd_ = 0;
  std::deque<exposure> exposures_;
  double burst_ = 1;
};

} // namespace parcae::market

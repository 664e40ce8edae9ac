#pragma once

// A world in which one instance, or one gang, works at a time: what its policies are tried and billed in, tick by tick.
// Rules, oddities included: SkyNomad's public simulator (github.com/andylizf/skynomad-artifact, sky_spot/env.py). Pure.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace parcae::market {

/// What a place offered, by tick. What lies beyond a window is only for policies that know the future.
struct offers {
  std::string place;                   ///< "us-east-2b"
  std::vector<std::uint8_t> available; ///< whether the spot instance (the whole gang) is to be had
  std::vector<double> spot_usd_per_h;  ///< of the gang; as many
  double on_demand_usd_per_h = 0;      ///< likewise
};

struct gang_market {
  double tick_s = 0;
  std::vector<offers> places;
  std::vector<std::vector<double>> usd_per_gb; ///< from a place to another
};

struct gang_job {
  double work_s = 0;        ///< of an instance that works
  double deadline_s = 0;    ///< from the beginning
  double start_s = 720;     ///< from a launch until it works
  double checkpoint_gb = 0; ///< moves with a change of place

  bool operator==(const gang_job&) const = default;
};

/// US-dollars per GB between AWS's regions, as the simulator has them.
std::vector<std::vector<double>> published_egress(const std::vector<offers>& places);

/// "us-east-2" of "us-east-2b", "us-central1" of "us-central1-a".
std::string region_of(const std::string& place);

struct instance {
  std::size_t place = 0;
  bool spot = false;

  bool operator==(const instance&) const = default;
};

struct gang_bill {
  double usd = 0;      ///< all of it, egress too
  double last_usd = 0; ///< of the tick in which the job ended; published figures are without it
  double egress_usd = 0;
  double on_demand_s = 0, spot_s = 0;
  unsigned launches = 0;
  std::optional<double> finish_s; ///< none: not until the deadline

  double as_published() const { return usd - last_usd; }
};

class gang_world;

class gang_policy {
public:
  virtual ~gang_policy() = default;

  /// Once a tick, before the latch has closed: may launch, stop, probe.
  virtual void act(gang_world& world) = 0;

  /// Whether the world goes on demand for good when it must.
  virtual bool is_latched() const { return true; }
};

/// What a policy sees and does. `market` and `job` outlive it.
class gang_world {
public:
  gang_world(const gang_market& market, const gang_job& job);

  /// From the beginning to the end of the job.
  gang_bill run(gang_policy& policy);

  const gang_market& market() const { return market_; }
  const gang_job& job() const { return job_; }
  std::size_t tick() const { return tick_; }
  double now_s() const { return static_cast<double>(tick_) * market_.tick_s; }
  double done_s() const { return done_s_; }
  double left_s() const { return job_.work_s - done_s_; }
  double starting_s() const { return starting_s_; } ///< until what runs works
  const std::optional<instance>& running() const { return running_; }
  std::optional<std::size_t> worked_last() const { return worked_last_; } ///< place
  double egress_usd(std::size_t from, std::size_t to) const;

  /// Whether on-demand must begin now, for the work and `starts` starts; in whole ticks.
  bool needs(unsigned starts, bool at_once) const;

  /// What runs ends. False: there is no spot instance.
  bool launch(const instance& x);
  void stop() { running_.reset(); }
  bool probe(std::size_t place);

  /// US-dollars of the probes of a place, as the simulator accounts for them.
  double probed_usd(std::size_t place) const { return probed_usd_[place]; }

private:
  bool is_available(std::size_t place) const;
  double usd_per_h(const instance& x, std::size_t tick) const;
  void pay();
  void work();
  void go_on_demand();

  const gang_market& market_;
  const gang_job& job_;
  std::size_t ticks_;
  std::size_t tick_ = 0;
  double done_s_ = 0;
  double starting_s_ = 0;
  bool is_launched_ = false;                 ///< in this tick
  std::optional<std::size_t> launched_from_; ///< where work was last done before
  std::optional<instance> running_;
  std::optional<std::size_t> worked_last_;
  std::vector<std::uint8_t> probed_; ///< in this tick, with success
  std::vector<double> probed_usd_;
  gang_bill bill_;
};

} // namespace parcae::market

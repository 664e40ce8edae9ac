#pragma once

// What can be rented, at which price, and what may be spent. Plain values; market files and feeds are read in
// runtime/market.

#include "protocols/base/described.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace parcae {

/// Instances that can be asked for alike.
struct instance_pool {
  std::string name;                         ///< "w2a-spot"
  std::string place;                        ///< instances of one place train together, those of two never do
  std::string kind;                         ///< type; slots of one kind compute the same bits
  bool spot = false;                        ///< else on demand: there when asked for, and not taken away
  std::uint32_t slots = 1;                  ///< of an instance
  std::optional<double> usd_per_h;          ///< of an instance, if the file says so
  std::uint32_t most = 0;                   ///< instances
  std::chrono::milliseconds start{180'000}; ///< from asking until it works
  std::string history;                      ///< file with what was to be had, beside the market file; may be empty

  bool operator==(const instance_pool&) const = default;
};

/// What leaves a place for another one.
struct egress_price {
  std::string from, to; ///< places
  double usd_per_gb = 0;

  bool operator==(const egress_price&) const = default;
};

/// A pool's price as it is now.
struct pool_quote {
  std::string pool;
  double usd_per_h = 0;                   ///< of an instance
  std::optional<std::uint32_t> available; ///< instances, where it is known

  bool operator==(const pool_quote&) const = default;
};

/// What is to be of one pool, as a hook is told.
struct pool_order {
  std::string name, kind, place;
  std::uint32_t want = 0;           ///< instances, with those under notice
  std::vector<std::string> have;    ///< that are there, those under notice as well: they end by themselves
  std::vector<std::string> release; ///< that were let go, and are gone

  bool operator==(const pool_order&) const = default;
};

/// What a hook says of a pool.
struct pool_word {
  std::string pool;
  std::optional<std::uint32_t> can; ///< instances that there are, or are coming; none: not known
  std::string why;                  ///< one line for people; may be empty

  bool operator==(const pool_word&) const = default;
};

/// What a job may take and cost; what is left out has no limit.
struct job_budget {
  std::optional<std::chrono::milliseconds> deadline; ///< from its submission
  std::optional<double> total_usd;
  std::optional<double> usd_per_h;
  bool total_first = false; ///< if both cannot hold, the deadline gives way

  bool is_set() const { return deadline || total_usd || usd_per_h; } ///< else it takes what comes

  bool operator==(const job_budget&) const = default;
};

/// What instances of a pool have cost.
struct pool_bill {
  double hours = 0; ///< of an instance
  double usd = 0;

  friend bool operator==(const pool_bill&, const pool_bill&) = default;
};
BOOST_DESCRIBE_STRUCT(pool_bill, (), (hours, usd))

/// How fast a job trained on instances of a kind.
struct measured_rates {
  std::string work;                  ///< SHA-256 of what it trains, in hexadecimal: another may train the same
  std::vector<double> samples_per_s; ///< of 0, 1, … instances

  friend bool operator==(const measured_rates&, const measured_rates&) = default;
};
BOOST_DESCRIBE_STRUCT(measured_rates, (), (work, samples_per_s))

/// What has been spent, as the journal has it, and what was learnt for that.
struct ledger_record {
  double until_s = 0; ///< what was before is in the sums; by the wall
  double usd = 0;     ///< of all pools, with what is fixed
  std::map<std::string, pool_bill> pools;
  std::map<std::string, std::string> running;  ///< pool by name of the instance
  std::map<std::string, double> usd_per_h;     ///< by pool, as last known
  std::map<std::uint64_t, double> jobs;        ///< what was spent while each was the one that is rented for
  std::string place;                           ///< where the job trains, or trained last
  std::map<std::string, measured_rates> rates; ///< by kind of instance, as last measured

  friend bool operator==(const ledger_record&, const ledger_record&) = default;
};
BOOST_DESCRIBE_STRUCT(ledger_record, (), (until_s, usd, pools, running, usd_per_h, jobs, place, rates))

} // namespace parcae

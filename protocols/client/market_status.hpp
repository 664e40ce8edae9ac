#pragma once

// What `status` shows of what a manager rents.

#include "protocols/base/described.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace parcae {

/// Instances that can be rented alike.
struct pool_status {
  std::string name, place;
  bool spot = false;
  double usd_per_h = 0;   ///< of an instance, now
  std::uint32_t want = 0; ///< instances
  std::uint32_t have = 0; ///< that are there and stay
  double hours = 0;       ///< of an instance, paid for so far
  double usd = 0;
  std::string why; ///< why there are no more, as the hook says; if it does not, what did not come

  friend bool operator==(const pool_status&, const pool_status&) = default;
};
BOOST_DESCRIBE_STRUCT(pool_status, (), (name, place, spot, usd_per_h, want, have, hours, usd, why))

/// Eight of ten runs are expected between the first and the last, half of them below the second. All 0: not known.
struct usd_spread {
  double p10 = 0, p50 = 0, p90 = 0;

  friend bool operator==(const usd_spread&, const usd_spread&) = default;
};
BOOST_DESCRIBE_STRUCT(usd_spread, (), (p10, p50, p90))

/// The same, since 1970; -1: not done.
struct us_spread {
  std::int64_t p10 = 0, p50 = 0, p90 = 0;

  friend bool operator==(const us_spread&, const us_spread&) = default;
};
BOOST_DESCRIBE_STRUCT(us_spread, (), (p10, p50, p90))

/// What a manager rents.
struct market_status {
  std::vector<pool_status> pools;      ///< none: it rents nothing
  double usd = 0;                      ///< spent so far, on all jobs
  std::uint64_t job = 0;               ///< that is rented for; 0: none
  double job_usd = 0;                  ///< spent while it was
  std::int64_t deadline_us = 0;        ///< since 1970; 0: none
  double usd_per_sample = 0;           ///< what one sample more is worth now
  double expected_usd = 0;             ///< still to be spent
  std::int64_t expected_us = 0;        ///< end, since 1970; 0: not known
  bool reserve = false;                ///< on demand for good
  bool spent = false;                  ///< the money is spent
  std::string why;                     ///< a sentence on what is held
  std::vector<std::string> runners_up; ///< what was worth less, best first
  std::string feed, hook;              ///< what is wrong with them; empty: nothing
  usd_spread expected_usd_spread;
  us_spread expected_us_spread;

  friend bool operator==(const market_status&, const market_status&) = default;
};
BOOST_DESCRIBE_STRUCT(market_status, (),
                      (pools, usd, job, job_usd, deadline_us, usd_per_sample, expected_usd, expected_us, reserve, spent,
                       why, runners_up, feed, hook, expected_usd_spread, expected_us_spread))

} // namespace parcae

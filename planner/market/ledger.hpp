#pragma once

// What rented instances have cost so far: price × time of each, from its start until it is lost or given back, and what
// is fixed. Those that end before they join are not in it. Time is the wall's, in seconds: a bill goes on while the
// manager is away. Pure.

#include "protocols/base/described.hpp"

#include <map>
#include <string>

namespace parcae::market {

struct pool_bill {
  double hours = 0; ///< of an instance
  double usd = 0;

  friend bool operator==(const pool_bill&, const pool_bill&) = default;
};
BOOST_DESCRIBE_STRUCT(pool_bill, (), (hours, usd))

/// As the journal has it.
struct ledger_record {
  double until_s = 0; ///< what was before is in the sums
  double usd = 0;     ///< of all pools, with what is fixed
  std::map<std::string, pool_bill> pools;
  std::map<std::string, std::string> running; ///< pool by name of the instance
  std::map<std::string, double> usd_per_h;    ///< by pool, as last known

  friend bool operator==(const ledger_record&, const ledger_record&) = default;
};

class ledger {
public:
  ledger(double fixed_usd_per_h, ledger_record from) : fixed_usd_per_h_(fixed_usd_per_h), record_(std::move(from)) {}

  /// From then on; what runs is billed until then first. A clock that goes back bills nothing twice.
  void advance(double now_s);

  /// Of what is billed from now on.
  void set_price(const std::string& pool, double usd_per_h) { record_.usd_per_h[pool] = usd_per_h; }

  /// One that runs already is not begun again. `since_s` may be past: what it has cost since is billed at once, at
  /// today's price.
  void begin(const std::string& instance, const std::string& pool, double since_s);

  /// Those that are billed and not among these have gone.
  void keep_only(const std::map<std::string, std::string>& pool_by_name);

  const ledger_record& record() const { return record_; }

private:
  void bill(const std::string& pool, double seconds);

  double fixed_usd_per_h_;
  ledger_record record_;
};

} // namespace parcae::market

#pragma once

// What rented instances have cost so far: price × time of each, from its start until it is lost or given back, and what
// is fixed. Those that end before they join are not in it. Time is the wall's, in seconds: a bill goes on while the
// manager is away. Pure.

#include "protocols/values/market.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace parcae::market {

class ledger {
public:
  /// Those that run by the record have `return_s` from the first advance() to be seen again: until then none of them
  /// has gone, as nodes find a new manager one by one.
  ledger(double fixed_usd_per_h, ledger_record from, double return_s = 125);

  /// What runs is billed until now; `job` (0: none) is what it was rented for. A clock that goes back bills nothing
  /// twice.
  void advance(double now_s, std::uint64_t job = 0);

  /// Of what is billed from now on.
  void set_price(const std::string& pool, double usd_per_h) { record_.usd_per_h[pool] = usd_per_h; }

  /// One that runs already is not begun again. `since_s` may be past: what it has cost since is billed at once, at
  /// today's price.
  void begin(const std::string& instance, const std::string& pool, double since_s);

  /// It was lost or given back then, some time after the last advance().
  void end(const std::string& instance, double at_s);

  /// One that began and ended without being billed, some time before the last advance().
  void add(const std::string& pool, double seconds) { bill(pool, seconds); }

  /// What is not paid by time: what leaves a place.
  void pay(double usd) { spend(usd); }

  /// Where the job trains now: a manager that comes after it goes on there.
  void set_place(const std::string& place) { record_.place = place; }

  /// Of the job that is rented for now, on instances of a kind.
  void set_rates(const std::string& kind, measured_rates x) { record_.rates[kind] = std::move(x); }

  /// Those that are billed and not among these have gone, but for those that may yet return.
  void keep_only(const std::map<std::string, std::string>& pool_by_name);

  /// Those of a manager before that may yet return.
  std::size_t waits_for() const { return returning_.size(); }

  const ledger_record& record() const { return record_; }

private:
  void bill(const std::string& pool, double seconds);
  void spend(double usd);

  double fixed_usd_per_h_, return_s_;
  ledger_record record_;
  std::uint64_t job_ = 0;
  std::set<std::string> returning_; ///< of a manager before, not seen yet
  std::optional<double> return_until_s_;
};

} // namespace parcae::market

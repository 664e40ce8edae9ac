#include "planner/market/ledger.hpp"

#include <algorithm>

namespace parcae::market {

void ledger::bill(const std::string& pool, double seconds) {
  const auto hours = seconds / 3600, usd = hours * record_.usd_per_h[pool];
  auto& bill = record_.pools[pool];
  bill.hours += hours;
  bill.usd += usd;
  record_.usd += usd;
}

void ledger::advance(double now_s) {
  if (record_.until_s == 0)
    record_.until_s = std::max(record_.until_s, now_s);
  const auto seconds = std::max(now_s - record_.until_s, 0.0);
  for (const auto& [instance, pool] : record_.running)
    bill(pool, seconds);
  record_.usd += fixed_usd_per_h_ * seconds / 3600;
  record_.until_s = std::max(record_.until_s, now_s);
}

void ledger::begin(const std::string& instance, const std::string& pool, double since_s) {
  if (record_.running.try_emplace(instance, pool).second)
    bill(pool, std::max(record_.until_s - since_s, 0.0));
}

void ledger::keep_only(const std::map<std::string, std::string>& pool_by_name) {
  std::erase_if(record_.running, [&](const auto& x) { return !pool_by_name.contains(x.first); });
}

} // namespace parcae::market

#include "planner/market/ledger.hpp"

#include <algorithm>

namespace parcae::market {

namespace {

constexpr std::size_t max_jobs = 100; // the newest

} // namespace

ledger::ledger(double fixed_usd_per_h, ledger_record from, double return_s) :
    fixed_usd_per_h_(fixed_usd_per_h), return_s_(return_s), record_(std::move(from)) {
  for (const auto& [instance, pool] : record_.running)
    returning_.insert(instance);
}

void ledger::spend(double usd) {
  record_.usd += usd;
  if (job_ == 0)
    return;
  record_.jobs[job_] += usd;
  for (auto i = record_.jobs.begin(); record_.jobs.size() > max_jobs;)
    i = i->first == job_ ? std::next(i) : record_.jobs.erase(i);
}

void ledger::bill(const std::string& pool, double seconds) {
  const auto hours = seconds / 3600, usd = hours * record_.usd_per_h[pool];
  auto& bill = record_.pools[pool];
  bill.hours += hours;
  bill.usd += usd;
  spend(usd);
}

void ledger::advance(double now_s, std::uint64_t job) {
  job_ = job;
  const bool is_from_the_future = !return_until_s_ && record_.until_s > now_s; // of another machine's clock
  if (record_.until_s == 0 || is_from_the_future)
    record_.until_s = now_s;
  const auto seconds = std::max(now_s - record_.until_s, 0.0);
  for (const auto& [instance, pool] : record_.running)
    bill(pool, seconds);
  spend(fixed_usd_per_h_ * seconds / 3600);
  record_.until_s = std::max(record_.until_s, now_s);
  if (!return_until_s_)
    return_until_s_ = record_.until_s + return_s_;
}

void ledger::begin(const std::string& instance, const std::string& pool, double since_s) {
  if (record_.running.try_emplace(instance, pool).second)
    bill(pool, std::max(record_.until_s - since_s, 0.0));
}

void ledger::end(const std::string& instance, double at_s) {
  const auto found = record_.running.find(instance);
  if (found == record_.running.end())
    return;
  bill(found->second, std::max(at_s - record_.until_s, 0.0));
  record_.running.erase(found);
  returning_.erase(instance);
}

void ledger::keep_only(const std::map<std::string, std::string>& pool_by_name) {
  for (const auto& [instance, pool] : pool_by_name)
    returning_.erase(instance);
  if (return_until_s_ && record_.until_s >= *return_until_s_)
    returning_.clear();
  std::erase_if(record_.running,
                [&](const auto& x) { return !pool_by_name.contains(x.first) && !returning_.contains(x.first); });
}

} // namespace parcae::market

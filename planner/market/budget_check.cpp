#include "planner/market/budget_check.hpp"

#include "protocols/base/text.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>

namespace parcae::market {

namespace {

constexpr double none = std::numeric_limits<double>::infinity();

std::string usd(double x) {
  char text[64];
  std::snprintf(text, sizeof text, "$%.2f", x);
  return text;
}

std::string text_of_s(double seconds) {
  return text_of_duration(std::chrono::milliseconds(static_cast<std::int64_t>(std::min(seconds, 3e8)) * 1000));
}

// The cheapest first: prices of an hour of 0, 1, … instances.
std::vector<double> prices_of(std::vector<instance_pool> pools, bool only_on_demand) {
  if (only_on_demand)
    std::erase_if(pools, [](const auto& x) { return x.spot; });
  std::ranges::stable_sort(pools, {}, [](const auto& x) { return *x.usd_per_h; });
  std::vector<double> result{0};
  for (const auto& pool : pools)
    for (std::uint32_t i = 0; i < pool.most; ++i)
      result.push_back(result.back() + *pool.usd_per_h);
  return result;
}

// What the money of an hour allows.
std::size_t max_of(const renting_job& job, const std::vector<double>& prices) {
  std::size_t result = prices.size() - 1;
  while (result > 0 && prices[result] > job.budget.usd_per_h.value_or(none) + 1e-9)
    --result;
  return result;
}

struct fastest {
  std::size_t instances = 0;
  double seconds = none;
};

// All that is left, with as many as are best; started from nothing.
fastest fastest_of(const renting_job& job, const std::vector<double>& prices, double start_s) {
  const auto& rates = job.figures.samples_per_s;
  fastest result;
  double rate = 0;
  for (std::size_t n = 1; n <= std::min(max_of(job, prices), rates.size() - 1); ++n)
    if (rates[n] > rate) {
      rate = rates[n];
      result = {n, start_s + job.samples_left / rate};
    }
  return result;
}

void add_deadline(budget_words& to, const renting_job& job, const std::vector<instance_pool>& pools) {
  if (!job.budget.deadline)
    return;
  const auto start_of = [](const instance_pool& x) { return std::chrono::duration<double>(x.start).count(); };
  const double start_s = start_of(*std::ranges::min_element(pools, {}, start_of));
  const double limit_s = std::chrono::duration<double>(*job.budget.deadline).count();
  const auto limit = text_of_duration(*job.budget.deadline);
  if (job.figures.samples_per_s.empty()) {
    if (limit_s <= start_s)
      to.problems.push_back("budget.deadline: " + limit + " are over before an instance has started, which takes " +
                            text_of_s(start_s));
    else
      to.unknown.push_back("budget.deadline: whether " + limit +
                           " are enough, as nobody has measured how fast such a job trains here");
    return;
  }
  const auto any = fastest_of(job, prices_of(pools, false), start_s);
  const auto sure = fastest_of(job, prices_of(pools, true), start_s);
  if (any.seconds > limit_s && any.instances > 0)
    to.problems.push_back("budget.deadline: " + limit + " cannot be met: " + counted(any.instances, "instance") +
                          ", the fastest that may be rented, need " + text_of_s(any.seconds));
  else if (sure.seconds > limit_s && any.instances > 0)
    to.unknown.push_back(
        "budget.deadline: whether spot instances last: with them " + limit + " can be met, on demand " +
        (sure.instances > 0 ? "alone takes " + text_of_s(sure.seconds) : "there is nothing to fall back on"));
}

void add_total(budget_words& to, const renting_job& job, const std::vector<instance_pool>& pools) {
  const auto& rates = job.figures.samples_per_s;
  const bool counts = job.budget.total_first || !job.budget.deadline;
  if (!job.budget.total_usd || !counts || rates.empty())
    return;
  const auto prices = prices_of(pools, false);
  double least = none;
  for (std::size_t n = 1; n <= std::min(max_of(job, prices), rates.size() - 1); ++n)
    if (rates[n] > 0)
      least = std::min(least, prices[n] / 3600 * job.samples_left / rates[n]);
  if (least < none && least > *job.budget.total_usd)
    to.problems.push_back("budget.total: it is " + usd(*job.budget.total_usd) + ", and the job costs " + usd(least) +
                          " at least by today's prices");
}

} // namespace

job_budget budget_of(const budget_specification& x) {
  job_budget result;
  if (x.deadline_ms > 0)
    result.deadline = std::chrono::milliseconds(x.deadline_ms);
  if (x.total_usd > 0)
    result.total_usd = x.total_usd;
  if (x.hourly_usd > 0)
    result.usd_per_h = x.hourly_usd;
  result.total_first = x.first == "total";
  return result;
}

std::string hourly_problem(const renting_job& job, const std::vector<instance_pool>& pools) {
  const auto prices = prices_of(pools, false);
  const auto least = std::max<std::uint32_t>(job.least, 1);
  if (!job.budget.usd_per_h || least >= prices.size() || prices[least] <= *job.budget.usd_per_h + 1e-9)
    return {};
  const auto& cheapest = *std::ranges::min_element(pools, {}, [](const auto& x) { return *x.usd_per_h; });
  if (least == 1 || prices[1] > *job.budget.usd_per_h)
    return "budget.hourly: " + usd(*job.budget.usd_per_h) + " allow no instance: the cheapest, of " + cheapest.name +
           ", is " + usd(prices[1]) + " an hour";
  return "budget.hourly: " + usd(*job.budget.usd_per_h) + " do not allow the " + std::to_string(least) +
         " instances that the job begins with: they are " + usd(prices[least]) + " an hour at least";
}

budget_words words_on(const renting_job& job, const std::vector<instance_pool>& pools) {
  budget_words result;
  if (auto problem = hourly_problem(job, pools); !problem.empty())
    result.problems.push_back(std::move(problem));
  add_deadline(result, job, pools);
  add_total(result, job, pools);
  return result;
}

} // namespace parcae::market

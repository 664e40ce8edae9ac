// What is said of a budget beforehand.

#include "planner/market/budget_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace parcae::market {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<instance_pool> two_pools{{"a-spot", "a", "k", true, 1, 1.0, 4, minutes(3), ""},
                                           {"a-sure", "a", "k", false, 1, 3.0, 4, minutes(6), ""}};

/// What one instance does in so many hours; as many times as fast with several.
renting_job work_of(double hours_of_one) {
  renting_job result;
  result.samples_left = hours_of_one * 3600;
  for (int n = 0; n <= 8; ++n)
    result.figures.samples_per_s.push_back(n);
  return result;
}

// given: hourly limits / expected: one that allows no instance, or not those that the job begins with, is named
TEST(budget_check, hourly) {
  auto job = work_of(8);
  job.budget.usd_per_h = 1.0;
  EXPECT_THAT(words_on(job, two_pools).problems, IsEmpty());
  job.budget.usd_per_h = 0.5;
  EXPECT_EQ(hourly_problem(job, two_pools),
            "budget.hourly: $0.50 allow no instance: the cheapest, of a-spot, is $1.00 an hour");
  job.budget.usd_per_h = 5;
  job.least = 6;
  EXPECT_EQ(hourly_problem(job, two_pools), "budget.hourly: $5.00 do not allow the 6 instances that the job begins "
                                            "with: they are $10.00 an hour at least");
  job.least = 100;
  EXPECT_EQ(hourly_problem(job, two_pools), "") << "the others are somebody's own";
}

// given: deadlines for what eight instances do in an hour, four on demand in two / expected: what cannot be met is
// named; what depends on spot, or is not known, is said to be unknown
TEST(budget_check, deadline) {
  auto job = work_of(8);
  const auto words_for = [&](std::chrono::milliseconds deadline) {
    job.budget.deadline = deadline;
    return words_on(job, two_pools);
  };
  EXPECT_THAT(words_for(hours(3)).problems, IsEmpty());
  EXPECT_THAT(words_for(hours(3)).unknown, IsEmpty());
  EXPECT_THAT(words_for(minutes(90)).problems, IsEmpty());
  EXPECT_THAT(words_for(minutes(90)).unknown, ElementsAre(HasSubstr("whether spot instances last")));
  EXPECT_THAT(words_for(minutes(60)).problems, ElementsAre("budget.deadline: 1h cannot be met: 8 instances, the "
                                                           "fastest that may be rented, need 1h03m"));
  job.budget.usd_per_h = 2;
  EXPECT_THAT(words_for(hours(3)).problems, ElementsAre(HasSubstr("2 instances, the fastest that may be rented")));
  job.figures = {};
  EXPECT_THAT(words_for(hours(3)).problems, IsEmpty());
  EXPECT_THAT(words_for(hours(3)).unknown, ElementsAre(HasSubstr("nobody has measured")));
  EXPECT_THAT(words_for(minutes(2)).problems, ElementsAre(HasSubstr("are over before an instance has started")));
}

// given: money for less than the work costs at least / expected: named, unless the deadline comes first
TEST(budget_check, total) {
  auto job = work_of(8);
  job.budget.total_usd = 7;
  EXPECT_THAT(words_on(job, two_pools).problems, ElementsAre(HasSubstr("costs $8.00 at least")));
  job.budget.deadline = hours(10);
  EXPECT_THAT(words_on(job, two_pools).problems, IsEmpty());
  job.budget.total_first = true;
  EXPECT_THAT(words_on(job, two_pools).problems, ElementsAre(HasSubstr("costs $8.00 at least")));
}

} // namespace
} // namespace parcae::market

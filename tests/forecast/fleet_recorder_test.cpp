// The record of a fleet as it happens.
//
//   given                                            expected
//   a trace, event by event, a minute per interval   the rows that the trace reader makes of it: the same forecast
//   nothing, or only the first joins                 a sane forecast: sums to 1, most likely all stay
//   the start of a fleet, whatever its pace          never more than have been there; most likely all stay
//   losses that were replaced so far                 that the next one is, too
//   a second join, a loss of somebody unknown        ignored
//   instances with 4 and then 2 slots                counted in twos from the beginning
//   losses with and without notice                   announced when at least half of them were
//   a pause of a year                                forecast all the same, soon

#include "forecast/fleet_recorder.hpp"
#include "planner/simulation/trace.hpp"
#include "planner/simulation/trace_generator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>

namespace parcae {
namespace {

void expect_sound(const availability_lattice& x, std::uint32_t now) {
  EXPECT_NEAR(std::accumulate(x.start.begin(), x.start.end(), 0.0), 1, 1e-9);
  for (std::size_t h = 0; h < x.stages.size(); ++h)
    for (const auto& node : x.stages[h]) {
      EXPECT_TRUE(h > 0 || node.available == now);
      double sum = 0;
      for (const auto& b : node.branches) {
        sum += b.probability;
        EXPECT_EQ(x.stages[h + 1].at(b.next).available, node.available + b.joined - b.lost);
      }
      if (h + 1 < x.stages.size()) {
        EXPECT_NEAR(sum, 1, 1e-9);
      }
    }
}

std::vector<distribution> after(const fleet_forecast& x) {
  return availability_of(x.future);
}

TEST(fleet_recorder, learns_what_the_trace_reader_reads) {
  // Cut behind an event, so that no quiet rows follow it.
  auto events = generate_trace(trace_kind("bursty"), 3);
  ASSERT_GT(events.size(), 200u);
  events.resize(200);
  const auto rows = intervals_of(events);
  auto method = make_method("auto");
  for (const auto& row : rows)
    method->observe(row);
  fleet_recorder record("auto", 60);
  for (const auto& x : events)
    record.note({static_cast<double>(x.ms / 1000), x.node, 1, x.added, false});
  const auto said = after(record.forecast(rows.back().seconds, 11));
  EXPECT_EQ(record.rows(), rows.size());
  EXPECT_EQ(said, availability_of(method->forecast(11, planning_detail)));
}

TEST(fleet_recorder, is_sane_without_history) {
  for (const char* method : {"auto", "regime", "survival", "last"}) {
    fleet_recorder record(method, 60);
    expect_sound(record.forecast(5, 11).future, 0);
    for (int i = 0; i < 6; ++i)
      record.note({10 + 0.1 * i, "i" + std::to_string(i), 1, true, false});
    const auto x = record.forecast(11, 11);
    expect_sound(x.future, 6);
    EXPECT_FALSE(x.announced);
    const auto all = after(x);
    ASSERT_EQ(all.size(), 11u);
    for (std::size_t h = 0; h < 3; ++h)
      EXPECT_EQ(quantile(all[h], 0.5), 6u) << method << " " << h;
    EXPECT_GE(quantile(all.back(), 0.5), 4u) << method;
  }
}

std::uint32_t max_of(const fleet_forecast& x) {
  std::uint32_t most = 0;
  for (const auto& stage : x.future.stages)
    for (const auto& node : stage)
      most = std::max(most, node.available);
  return most;
}

double mean_of(const distribution& p) {
  double mean = 0;
  for (std::size_t n = 0; n < p.size(); ++n)
    mean += p[n] * static_cast<double>(n);
  return mean;
}

// A fleet of eight that was started within a minute was expected to be one of 20.9 twelve minutes later.
TEST(fleet_recorder, does_not_expect_a_start_to_go_on) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const double pace_s = std::array{0.2, 3.0, 12.0, 50.0, 130.0}[seed % 5]; // mean between two joins
    const bool crashes = seed % 3 == 0;                                      // one does not get through its start
    const std::uint32_t fleet = 2 + random() % 30;
    fleet_recorder record("auto", 60);
    double now_s = 0;
    std::uint32_t there = 0, most = 0;
    const auto expect_no_more = [&](double quiet_s) {
      const auto x = record.forecast(now_s + quiet_s, 12);
      EXPECT_LE(max_of(x), most) << there << " there, " << quiet_s << " s later";
      return after(x);
    };
    for (std::uint32_t i = 0; i < fleet; ++i) {
      now_s += pace_s * (0.2 + 1.6 * static_cast<double>(random() % 1000) / 1000);
      record.note({now_s, "i" + std::to_string(i), 1, true, false});
      most = std::max(most, ++there);
      if (crashes && i == fleet / 2) {
        record.note({now_s += 2, "i" + std::to_string(i), 1, false, false});
        --there;
      }
      expect_no_more(0);
    }
    for (const double quiet_s : {1, 30, 90, 600, 3600}) {
      const auto said = expect_no_more(quiet_s);
      if (!crashes) {
        EXPECT_EQ(quantile(said.back(), 0.5), fleet) << quiet_s;
      }
    }
  }
}

// What comes back after losses is what was lost, since that is what the past shows.
TEST(fleet_recorder, expects_losses_to_be_replaced_as_they_were) {
  fleet_recorder record("auto", 60);
  double now_s = 0;
  for (int i = 0; i < 8; ++i)
    record.note({now_s += 5, "i" + std::to_string(i), 1, true, false});
  for (int i = 0; i < 12; ++i) {
    record.note({now_s += 600, "i" + std::to_string(i), 1, false, false});
    if (i == 11)
      break;
    record.note({now_s += 120, "i" + std::to_string(i + 8), 1, true, false});
  }
  const auto x = record.forecast(now_s, 12);
  EXPECT_EQ(max_of(x), 8u);
  const auto said = after(x);
  EXPECT_NEAR(mean_of(said[0]), 7, 0.1);
  EXPECT_GT(mean_of(said[4]), 7.6);
}

TEST(fleet_recorder, counts_each_life_once) {
  fleet_recorder record("auto", 60);
  record.note({0, "a", 1, true, false});
  record.note({1, "a", 1, true, false});
  record.note({2, "b", 1, false, false});
  expect_sound(record.forecast(2, 3).future, 1);
  record.note({100, "a", 1, false, true});
  record.note({130, "a", 1, false, false}); // the end after the notice
  const auto x = record.forecast(130, 3);
  expect_sound(x.future, 0);
  EXPECT_TRUE(x.announced);
}

TEST(fleet_recorder, news_of_one_moment_are_one_row) {
  fleet_recorder record("last", 60);
  record.note({0, "a", 1, true, false});
  record.note({0.5, "b", 1, true, false});
  record.note({0.9, "a", 1, false, false});
  record.note({10, "c", 1, true, false});
  record.forecast(10, 1);
  EXPECT_EQ(record.rows(), 2u);
  record.forecast(10 + 3 * 60 + 1, 1);
  EXPECT_EQ(record.rows(), 5u);
}

TEST(fleet_recorder, has_the_greatest_common_divisor_as_unit) {
  fleet_recorder record("auto", 60);
  record.note({0, "a", 4, true, false});
  auto x = record.forecast(1, 3);
  EXPECT_EQ(x.devices, 4u);
  expect_sound(x.future, 1);
  record.note({200, "b", 2, true, false});
  x = record.forecast(200, 3);
  EXPECT_EQ(x.devices, 2u);
  expect_sound(x.future, 3);
  record.note({300, "a", 4, false, false});
  expect_sound(record.forecast(300, 3).future, 1);
}

TEST(fleet_recorder, survives_long_pauses_and_clocks_that_go_back) {
  fleet_recorder record("regime", 60);
  record.note({1000, "a", 1, true, false});
  record.note({10, "b", 1, true, false});
  expect_sound(record.forecast(0, 3).future, 2);
  expect_sound(record.forecast(3e7, 3).future, 2);
  EXPECT_LE(record.rows(), fleet_recorder::max_quiet_rows + 1);
  record.note({3e7 + 1, "a", 1, false, false});
  expect_sound(record.forecast(3e7 + 2, 3).future, 1);
}

} // namespace
} // namespace parcae

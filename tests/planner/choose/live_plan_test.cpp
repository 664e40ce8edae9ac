// The decision of a running job, and what is learnt of its changes.
//
//   given                                              expected
//   random jobs, situations and forecasts              a configuration that fits and the job allows, a reason
//   nothing fits                                       waits, and says what the least would need
//   sums that processors send in many messages         fewer pipelines than on devices
//   a calm forecast                                    the fastest, whatever runs, if the change is cheap
//   the same situation, but losses are likely          another choice
//   a change dearer than what it brings                stays
//   layers that go ahead of a change                   no part of the stall, where the link keeps up
//   the forecaster knows more, or less, slots          plans with those that can be used
//   changes of known cost                              their figures, whatever single ones took

#include "planner/choose/live_plan.hpp"
#include "planner/cost/change_meter.hpp"
#include "tests/support/names.hpp"

#include <random>

namespace parcae {
namespace {

struct live_plan : testing::Test {
  job_specification job;
  std::vector<std::uint64_t> state_bytes;
  situation now;

  live_plan() {
    job.global_batch = 48;
    job.micro_batch = 1;
    job.virtual_replicas = 12;
    job.max_depth = 4;
    for (int i = 0; i < 8; ++i) {
      state_bytes.push_back(20'000'000);
      now.costs.push_back({1, 2, 0.1, 5'000'000, 10'000});
    }
    now.keepers = 1;
  }

  void runs(std::uint32_t width, std::uint32_t depth) {
    now.current = {width, depth};
    now.left.assign(depth, width);
    now.running = true;
  }

  fleet_forecast calm(std::uint32_t slots) const {
    return {single_path(slots, std::vector<std::uint32_t>(job.look_ahead - 1, slots)), 1, false};
  }

  /// Of the configuration, which is the one that the decision names.
  static std::uint32_t slots_of(const plan_answer& x) {
    const shape what{x.choice.width, x.choice.depth};
    EXPECT_EQ(x.why.chosen.configuration, to_string(what));
    return what.slots();
  }

  /// In every interval one of `slots` is lost with this probability, and comes back in the next.
  fleet_forecast flickering(std::uint32_t slots, double p) const {
    fleet_forecast x;
    x.future.start = {1};
    x.future.stages.push_back({{slots, {}}});
    for (std::uint32_t h = 1; h < job.look_ahead; ++h) {
      for (auto& node : x.future.stages.back())
        if (node.available == slots)
          node.branches = {{0, 0, 1 - p, 0}, {0, 1, p, 1}};
        else
          node.branches = {{1, 0, 1, 0}};
      x.future.stages.push_back({{slots, {}}, {slots - 1, {}}});
    }
    return x;
  }

  plan_answer decide(const fleet_forecast& forecast) const {
    return decide_by_liveput(job, state_bytes, now, forecast);
  }
};

TEST_F(live_plan, takes_the_fastest_when_all_is_calm) {
  now.slots = 6;
  const auto best = best_configuration(job, {now.costs}, 6);
  const auto first = decide(calm(6));
  EXPECT_EQ(first.choice.width, best.width);
  EXPECT_EQ(first.choice.depth, best.depth);
  EXPECT_EQ(first.choice.first_layer, best.first_layer);
  EXPECT_THAT(first.why.reason,
              HasSubstr(" samples expected in the next 12m, with 6 slots now and probably 6 in 11m; "));
  EXPECT_EQ(first.why.policy, "liveput");
  EXPECT_EQ(first.why.runners_up.size(), 3u);
  runs(best.width, best.depth);
  const auto again = decide(calm(6));
  EXPECT_EQ(again.why.chosen.configuration, to_string(now.current));
  EXPECT_EQ(again.why.expected_ms, 0);
  EXPECT_THAT(again.why.reason, HasSubstr("stays at"));
  runs(1, 2);
  EXPECT_EQ(decide(calm(6)).why.chosen.configuration, to_string(shape{best.width, best.depth}));
  const auto reactive = decide_by_throughput(job, state_bytes, now);
  EXPECT_EQ(reactive.choice, best);
  EXPECT_GT(reactive.why.expected_ms, 0);
}

// given: one under notice, whose place another takes, or two that join; a link that brings a step's gradients in a
// third of it, or in more than all of it; the job feeds, or does not / expected: layers that go ahead are no part of
// the stall, where the link keeps up; a join that brings more than the stall costs has one
TEST_F(live_plan, expects_layers_to_go_ahead) {
  const auto stall_ms = [&](bool feed, double link_bytes_per_ms) {
    job.feed = feed;
    now.figures.link_bytes_per_ms = link_bytes_per_ms;
    const auto x = decide(calm(now.slots));
    EXPECT_EQ(x.why.chosen.configuration, to_string(shape{now.slots / 2, 2}));
    return x.why.expected_ms;
  };
  job.min_depth = job.max_depth = 2;
  runs(2, 2);
  now.slots = 4;
  now.left = {1, 2};
  const double messages_ms = stall_ms(true, 400'000);
  EXPECT_NEAR(stall_ms(false, 400'000), messages_ms + 50, 1);
  EXPECT_LT(messages_ms, 50);
  EXPECT_EQ(stall_ms(true, 50'000), stall_ms(false, 50'000));
  now.slots = 6;
  now.left = {2, 2};
  EXPECT_GT(stall_ms(false, 400'000), 50);
  EXPECT_EQ(stall_ms(true, 400'000), stall_ms(false, 400'000));
}

// given: layers of 40 MB of gradients, and messages that cost 1 ms each / expected: two pipelines save 576 ms of a
// step. Processors send each other 160 messages a layer, which is not worth it, devices three
TEST_F(live_plan, devices_send_sums_in_few_messages) {
  now.slots = 2;
  job.max_depth = 1;
  now.platform.message_ms = 1;
  for (auto& x : now.costs)
    x.gradient_bytes = 40 << 20;
  EXPECT_EQ(decide(calm(2)).why.chosen.configuration, "1×1");
  now.memory.of_device = true;
  EXPECT_EQ(decide(calm(2)).why.chosen.configuration, "2×1");
}

TEST_F(live_plan, waits_where_nothing_fits) {
  now.slots = 1;
  job.min_depth = 2;
  const auto x = decide(calm(1));
  EXPECT_EQ(x.choice.width, 0u);
  EXPECT_THAT(x.choice.reason, HasSubstr("1×2 needs 2"));
  now.slots = 0;
  EXPECT_EQ(decide(calm(0)).choice.width, 0u);
}

// given: instances of two slots, one of which cannot be used / expected: the other trains
TEST_F(live_plan, uses_what_is_left_of_an_instance) {
  auto forecast = calm(1);
  forecast.devices = 2;
  now.slots = 1;
  EXPECT_EQ(decide(forecast).why.chosen.configuration, "1×1");
}

TEST_F(live_plan, stays_where_a_change_costs_more_than_it_brings) {
  now.slots = 6;
  runs(1, 4);
  EXPECT_NE(decide(calm(6)).why.chosen.configuration, to_string(now.current));
  now.figures.link_bytes_per_ms = 1; // 20 MB take hours
  EXPECT_EQ(decide(calm(6)).why.chosen.configuration, to_string(now.current));
}

// Two slots more than 2x2 needs make it faster, but filling them takes most of an interval: it pays only if they stay.
// So the change comes when the forecast turns calm, without any event.
TEST_F(live_plan, prepares_for_losses_that_are_likely) {
  now.slots = 6;
  job.planning_interval_ms = 10'000;
  now.figures.link_bytes_per_ms = 10'000; // four layers take 8 s, 2 of them before anybody computes
  runs(2, 2);
  const auto quiet = decide(calm(6));
  EXPECT_EQ(quiet.why.chosen.configuration, "3×2");
  EXPECT_NEAR(quiet.why.expected_ms, 2'000, 50);
  EXPECT_THAT(quiet.why.reason, HasSubstr("less"));
  const auto x = decide(flickering(6, 0.9));
  EXPECT_EQ(x.why.chosen.configuration, to_string(now.current));
  EXPECT_EQ(x.why.expected_ms, 0);
  EXPECT_THAT(x.why.reason, HasSubstr("stays at 2×2"));
  EXPECT_THAT(x.why.reason, HasSubstr("3×2, the fastest now, would give"));
  EXPECT_THAT(x.why.reason, HasSubstr("with 6 slots now and probably 5 to 6 in "));
  ASSERT_EQ(x.why.forecast.size(), job.look_ahead - 1);
  EXPECT_EQ(x.why.forecast[0].low, 5u);
  EXPECT_NEAR(x.why.forecast[0].mean, 5.1, 1e-9);
}

TEST_F(live_plan, plans_with_what_can_be_used) {
  now.slots = 4;
  runs(2, 2);
  now.left = {2, 1}; // one is excluded, and a spare is there
  EXPECT_LE(slots_of(decide(calm(5))), 4u);
  EXPECT_LE(slots_of(decide(calm(3))), 4u);
  now.slots = 3;
  now.running = false;
  const auto x = decide(calm(3));
  EXPECT_LE(slots_of(x), 3u);
  EXPECT_GT(x.why.expected_ms, settle_ms(now.figures, 1) + now.figures.prepare_ms);
}

TEST_F(live_plan, always_answers_with_something_that_fits) {
  std::mt19937_64 random(9);
  for (int round = 0; round < 100; ++round) {
    fleet_recorder record("auto", 60);
    const auto devices = static_cast<std::uint32_t>(1 + random() % 2);
    std::vector<std::string> present;
    double seconds = 0;
    for (int event = 0; event < static_cast<int>(random() % 30); ++event) {
      seconds += static_cast<double>(random() % 200);
      if (present.empty() || random() % 3 > 0) {
        present.push_back(std::to_string(event));
        record.note({seconds, present.back(), devices, true, false});
      } else {
        record.note({seconds, present.back(), devices, false, random() % 2 == 0});
        present.pop_back();
      }
    }
    now.slots = static_cast<std::uint32_t>(present.size()) * devices - (present.empty() ? 0 : random() % 2);
    job.min_depth = 1 + random() % 2;
    job.min_width = 1 + random() % 2;
    now.current = {};
    now.left.clear();
    now.running = false;
    if (random() % 2) {
      runs(1 + random() % 3, job.min_depth + random() % 2);
      for (auto& x : now.left)
        x -= std::min<std::uint32_t>(x, random() % 2);
      now.running = random() % 2;
    }
    const auto x = decide(record.forecast(seconds + static_cast<double>(random() % 300), job.look_ahead - 1));
    EXPECT_FALSE(x.why.reason.empty());
    const auto& c = x.choice;
    const bool fits = best_configuration(job, {now.costs}, now.slots / devices * devices).width > 0;
    EXPECT_EQ(c.width > 0, fits) << x.why.reason;
    if (c.width == 0)
      continue;
    EXPECT_LE(c.width * c.depth, now.slots);
    EXPECT_GE(c.width, job.min_width);
    EXPECT_GE(c.depth, job.min_depth);
    EXPECT_LE(c.depth, job.max_depth);
    EXPECT_EQ(c.first_layer.size(), c.depth + 1);
  }
}

TEST(change_meter, finds_the_figures) {
  std::mt19937_64 random(4);
  auto noise = [&] { return static_cast<double>(random() % 1000) / 1000; };
  change_meter meter;
  EXPECT_EQ(meter.figures().settle_ms, change_figures{}.settle_ms);
  for (int i = 0; i < 40; ++i) {
    const double bytes = 1e6 * static_cast<double>(random() % 50);
    const bool odd = i % 7 == 3; // one in seven is much too long
    meter.learn({.settle_ms = 4 + 6 * (1 + i % 3) + noise() + (odd ? 500 : 0),
                 .plan_ms = 3 + noise(),
                 .prepare_ms = i % 2 ? -1 : 80 + noise(),
                 .transfer_ms = 7 + bytes / 1e5 + noise() + (odd ? 900 : 0),
                 .activate_ms = 4 + 0.5 * (1 + i % 6) + noise(),
                 .lost = static_cast<std::uint32_t>(1 + i % 3),
                 .ranks = static_cast<std::uint32_t>(1 + i % 6),
                 .busiest_bytes = bytes});
  }
  EXPECT_NEAR(meter.figures().settle_ms, 4.5, 1.5);
  EXPECT_NEAR(meter.figures().loss_ms, 6, 0.8);
  EXPECT_NEAR(meter.figures().plan_ms, 3.5, 0.6);
  EXPECT_NEAR(meter.figures().prepare_ms, 80.5, 0.6);
  EXPECT_NEAR(meter.figures().link_bytes_per_ms, 1e5, 2e3);
  EXPECT_NEAR(meter.figures().transfer_ms, 7.5, 3);
  EXPECT_NEAR(meter.figures().activate_ms, 4.5, 1);
  EXPECT_NEAR(meter.figures().rank_ms, 0.5, 0.3);
}

TEST(change_meter, keeps_the_rate_that_it_cannot_see) {
  change_meter meter;
  for (int i = 0; i < 10; ++i)
    meter.learn({.transfer_ms = 5, .activate_ms = 1, .busiest_bytes = 1000});
  EXPECT_NEAR(meter.figures().link_bytes_per_ms, change_figures{}.link_bytes_per_ms, 1e4);
  EXPECT_NEAR(meter.figures().transfer_ms, 5, 0.3);
  EXPECT_EQ(meter.figures().prepare_ms, change_figures{}.prepare_ms);
}

// Two changes that differ by chance in time and a little in bytes and ranks: what was once read as a slope, and made a
// larger change seem many times as long.
TEST(change_meter, does_not_believe_in_slopes_of_noise) {
  change_meter meter;
  meter.learn({.transfer_ms = 1.9, .activate_ms = 1.0, .ranks = 3, .busiest_bytes = 0});
  meter.learn({.transfer_ms = 5.1, .activate_ms = 7.6, .ranks = 4, .busiest_bytes = 5e5});
  EXPECT_LT(cost_of(meter.figures(), std::nullopt, 6, 8e5).stall_ms(), 20); // taken at face value 28
  EXPECT_GT(cost_of(meter.figures(), std::nullopt, 6, 8e5).stall_ms(), 5);
}

} // namespace
} // namespace parcae

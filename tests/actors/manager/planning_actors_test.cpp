// FORECASTER and LIVEPUT_PLANNER in virtual time.

#include "actors/conductor/model_facts.hpp"
#include "actors/manager/forecaster.hpp"
#include "actors/manager/job_manager.hpp"
#include "actors/manager/liveput_planner.hpp"
#include "tests/support/actor_fixture.hpp"

namespace parcae {
namespace {

struct planning_actors_test : actor_test {
  job_specification job;

  fleet_news news(const std::string& who, bool joined) {
    return {{seconds_of(scheduler.clock().now()), who, 1, joined, false}, "cpu"};
  }

  std::shared_ptr<const fleet_forecast> forecast_of(const forecaster_actor& x) {
    auto answer = ask<forecast_answer>(x, forecast_query{});
    return answer ? answer->what : nullptr;
  }

  /// A job_manager that only passes forecasts on; null: it never answers.
  job_manager_actor manager_with(forecaster_actor forecaster) {
    return owned(system.spawn([=](job_manager_actor::pointer self) -> job_manager_actor::behavior_type {
      return {
          [](const slot_offer&) {},
          [](const job_event&) {},
          [](const job_outcome&) {},
          [](released_atom, const slot_id&) {},
          [](const fleet_news&) {},
          [=](const forecast_query& x) -> caf::result<forecast_answer> {
            if (forecaster)
              return self->delegate(forecaster, x);
            return self->make_response_promise<forecast_answer>();
          },
          [](const request_plan&) { return plan_chosen{}; },
          [](view_atom) { return job_picture{}; },
          [](const trace_request&) { return trace_reply{}; },
      };
    }));
  }

  planner_actor planner_with(const job_manager_actor& manager) {
    const auto facts = facts_of(job);
    return owned(system.spawn(liveput_planner, liveput_planner_config{job, facts.state_bytes, manager}));
  }

  request_plan question(std::uint32_t slots) {
    request_plan x;
    x.request = 7;
    x.now.slots = slots;
    x.now.costs = facts_of(job).costs;
    return x;
  }
};

// given: joins and losses as they happen; another forecaster that is started with them / expected: the same forecast,
// of as many intervals as the job looks ahead, the present one included
TEST_F(planning_actors_test, a_restarted_forecaster_knows_the_past) {
  auto first = owned(system.spawn(forecaster, job, std::deque<fleet_news>{}));
  std::deque<fleet_news> past;
  auto fleet_tells = [&](const std::string& who, bool joined) {
    past.push_back(news(who, joined));
    tell(first, past.back());
    advance(90s);
  };
  for (auto who : {"a", "b", "c"})
    fleet_tells(who, true);
  fleet_tells("b", false);
  auto second = owned(system.spawn(forecaster, job, past));
  auto x = forecast_of(first), y = forecast_of(second);
  ASSERT_TRUE(x && y);
  EXPECT_EQ(x->future.look_ahead(), job.look_ahead - 1);
  EXPECT_EQ(x->future.stages[0][0].available, 2u);
  EXPECT_EQ(availability_of(x->future), availability_of(y->future));
}

// given: a question with a forecast at hand / expected: liveput's answer, with the question's number
TEST_F(planning_actors_test, the_planner_uses_the_forecast) {
  auto forecasts = owned(system.spawn(forecaster, job, std::deque<fleet_news>{news("a", true), news("b", true)}));
  auto answer = ask<plan_chosen>(planner_with(manager_with(forecasts)), question(2));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->request, 7u);
  EXPECT_EQ(answer->what.why.policy, "liveput");
  EXPECT_EQ(answer->what.choice.width * answer->what.choice.depth, 2u);
  EXPECT_EQ(answer->what.why.forecast.size(), job.look_ahead - 1);
}

// given: the forecaster does not answer / expected: after 2 s the throughput policy's answer, saying so
TEST_F(planning_actors_test, training_does_not_wait_for_a_forecast) {
  auto planner = planner_with(manager_with({}));
  auto pending = self->request(planner, std::chrono::minutes(60), question(4));
  run();
  advance(2s);
  plan_chosen answer;
  pending.receive([&](const plan_chosen& x) { answer = x; }, [](const caf::error&) { FAIL(); });
  EXPECT_EQ(answer.what.why.policy, "throughput");
  EXPECT_EQ(answer.what.choice.width * answer.what.choice.depth, 4u);
  EXPECT_THAT(answer.what.why.reason, HasSubstr("no forecast"));
}

// given: policy "throughput" / expected: nobody is asked for a forecast
TEST_F(planning_actors_test, throughput_needs_no_forecast) {
  job.policy = "throughput";
  auto answer = ask<plan_chosen>(planner_with(manager_with({})), question(2));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->what.why.policy, "throughput");
  EXPECT_TRUE(answer->what.why.forecast.empty());
}

} // namespace
} // namespace parcae

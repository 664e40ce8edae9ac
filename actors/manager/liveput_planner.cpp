#include "actors/manager/liveput_planner.hpp"

#include <caf/response_promise.hpp>

#include <spdlog/spdlog.h>

namespace parcae {

namespace {

// Shorter than the conductor waits for a plan.
constexpr std::chrono::seconds forecast_limit{2};

plan_answer answer_to(const plan_query& x, live_decision decision) {
  return {{x.what.request, std::move(decision.choice), std::move(decision.note), std::move(decision.all)}};
}

} // namespace

planner_actor::behavior_type liveput_planner(planner_actor::pointer self, const liveput_planner_config& config) {
  auto by_throughput = [=](const plan_query& x) {
    return decide_by_throughput(config.job, config.state_bytes, x.what.now);
  };
  return {[=](const plan_query& x) -> caf::result<plan_answer> {
    if (config.job.policy == "throughput")
      return answer_to(x, by_throughput(x));
    auto promise = self->make_response_promise<plan_answer>();
    self->request(config.manager, forecast_limit, forecast_query{})
        .then(
            [=](const forecast_answer& forecast) mutable {
              promise.deliver(
                  answer_to(x, decide_by_liveput(config.job, config.state_bytes, x.what.now, *forecast.what)));
            },
            // Training must not wait for a forecaster that is being restarted.
            [=](const caf::error& e) mutable {
              spdlog::warn("no forecast ({}): planning by throughput", render(e));
              auto decision = by_throughput(x);
              decision.note.reason += "; there was no forecast";
              promise.deliver(answer_to(x, std::move(decision)));
            });
    return promise;
  }};
}

} // namespace parcae

#include "actors/manager/liveput_planner.hpp"

#include "actors/manager/service_planning.hpp"

#include <caf/response_promise.hpp>

#include <spdlog/spdlog.h>

namespace parcae {

namespace {

// Shorter than the conductor waits for a plan.
constexpr std::chrono::seconds forecast_limit{2};

caf::result<plan_chosen> plan_service(planner_actor::pointer self, const liveput_planner_config& config,
                                      const request_plan& x) {
  const auto decide = [=](double calm_ms) {
    return plan_chosen{x.request, decide_for_service(config.job, x.now, calm_ms)};
  };
  if (!x.now.service.is_enough()) // what will be does not matter
    return decide(usual_calm_ms);
  auto promise = self->make_response_promise<plan_chosen>();
  self->request(config.manager, forecast_limit, forecast_query{})
      .then([=](const forecast_answer& y) mutable { promise.deliver(decide(calm_ms_of(config.job, y.what->future))); },
            [=](const caf::error& e) mutable {
              spdlog::warn("no forecast ({}): planning as if the fleet stayed as it is", render(e));
              promise.deliver(decide(usual_calm_ms));
            });
  return promise;
}

} // namespace

planner_actor::behavior_type liveput_planner(planner_actor::pointer self, const liveput_planner_config& config) {
  auto by_throughput = [=](const request_plan& x) {
    return plan_chosen{x.request, decide_by_throughput(config.job, config.state_bytes, x.now)};
  };
  return {[=](const request_plan& x) -> caf::result<plan_chosen> {
    if (config.job.serves())
      return plan_service(self, config, x);
    if (config.job.policy == "throughput")
      return by_throughput(x);
    auto promise = self->make_response_promise<plan_chosen>();
    self->request(config.manager, forecast_limit, forecast_query{})
        .then(
            [=](const forecast_answer& forecast) mutable {
              promise.deliver(
                  plan_chosen{x.request, decide_by_liveput(config.job, config.state_bytes, x.now, *forecast.what)});
            },
            // Training must not wait for a forecaster that is being restarted.
            [=](const caf::error& e) mutable {
              spdlog::warn("no forecast ({}): planning by throughput", render(e));
              auto answer = by_throughput(x);
              answer.what.why.reason += "; there was no forecast";
              promise.deliver(std::move(answer));
            });
    return promise;
  }};
}

} // namespace parcae

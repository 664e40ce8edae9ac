#include "actors/manager/forecaster.hpp"

namespace parcae {

forecaster_actor::behavior_type forecaster(forecaster_actor::stateful_pointer<forecaster_state> self,
                                           const job_specification& job, const std::deque<fleet_news>& past) {
  auto& s = self->state;
  s.record.emplace("regime", static_cast<double>(job.planning_interval_ms) / 1000);
  for (const auto& x : past)
    s.record->note(x.what);
  // The present interval is the first of the look-ahead, and what happened in it is known.
  const auto intervals = job.look_ahead - 1;
  return {
      [=](const fleet_news& x) { self->state.record->note(x.what); },
      [=](const forecast_query&) {
        return forecast_answer{
            std::make_shared<fleet_forecast>(self->state.record->forecast(seconds_of(self->clock().now()), intervals))};
      },
  };
}

} // namespace parcae

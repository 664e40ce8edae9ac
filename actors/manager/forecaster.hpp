#pragma once

// FORECASTER: hosts the record of one job's fleet (forecast/fleet_recorder.hpp) and answers with forecasts of it.
// Created by the job_manager, which restarts it from the news it has kept. Learning and forecasting take milliseconds,
// after a long history seconds: it runs on a thread of its own.

#include "actors/manager/interfaces.hpp"

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <deque>
#include <optional>

namespace parcae {

struct forecaster_state {
  static constexpr const char* name = "forecaster";

  std::optional<fleet_recorder> record;
};

/// `past`: the news so far, oldest first.
forecaster_actor::behavior_type forecaster(forecaster_actor::stateful_pointer<forecaster_state> self,
                                           const job_specification& job, const std::deque<fleet_news>& past);

} // namespace parcae

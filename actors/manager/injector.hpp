#pragma once

// INJECTOR: synthetic preemptions, as a cloud would make them: a notice (or none), then the process is gone by SIGKILL.
// Created by the registry.

#include "actors/manager/interfaces.hpp"
#include "protocols/wire/errors.hpp"

#include <caf/typed_event_based_actor.hpp>

#include <tl/expected.hpp>

#include <vector>

namespace parcae {

/// Victims as positions in `order.living`, or why there are none. Of `any`, workers that are not leaving already are
/// drawn by the seed alone. Pure.
tl::expected<std::vector<std::size_t>, detailed_error> choose_victims(const preempt_order& order);

injector_actor::behavior_type injector(injector_actor::pointer self, manager_actor registry);

} // namespace parcae

#pragma once

// An INSTANCE that does nothing: for a HELLO that is refused.

#include "protocols/wire/actors.hpp"
#include "protocols/wire/type_ids.hpp"

#include <caf/actor_system.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace parcae {

inline instance_actor spawn_silent_instance(caf::actor_system& system) {
  return system.spawn([](instance_actor::pointer) -> instance_actor::behavior_type {
    return {[](die_atom, std::uint64_t) {},
            [](const place_question&) { return place_answer{}; },
            [](released_atom) {},
            [](notice_atom, std::uint64_t, const std::string&) {},
            [](risk_atom, const std::string&) {},
            [](dial_atom, std::uint64_t) {},
            [](timer_atom) {},
            [](report_atom, const std::string&, const std::vector<std::string>&) {},
            [](report_atom) {}};
  });
}

} // namespace parcae

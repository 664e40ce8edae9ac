#pragma once

// Which parts of a layer's state may come when its new rank computes already: the optimizer's moments, which only the
// apply reads. The order on a connection of state is: of all moves the early parts, in the plan's order, then the late
// ones.

#include "gpu/dataplane/communicator.hpp"
#include "protocols/choreography/choreography.hpp"
#include "protocols/model/model_description.hpp"

#include <cstddef>

namespace parcae {

/// Of a move. `copied`: it goes from device to device of one process.
inline bool has_late_part(const prepare& plan, bool copied) {
  // NCCL waits for what the first step loads, and copies wait in the stream that computes.
  return plan.specification.transport != "nccl" && !copied && moments_of(plan.specification.optimizer) > 0;
}

/// `part`: its place among all parts of the layer, which are its parameters, moments, buffers, course.
inline bool is_late(const prepare& plan, bool copied, std::size_t part) {
  return has_late_part(plan, copied) && part >= 1 && part <= moments_of(plan.specification.optimizer);
}

} // namespace parcae

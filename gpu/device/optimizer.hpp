#pragma once

#include "gpu/device/elements.hpp"
#include "protocols/values/job_specification.hpp"

#include <cstdint>

namespace parcae {

/// What a step's elements are computed with. `steps`: the version before the step (0: the first step); `clip`: what the
/// gradient is multiplied with. The same bits on every processor: powers are products, not a library's.
adamw_factors adamw_step(const optimizer_specification& x, std::uint64_t steps, double rate, double clip);
sgd_factors sgd_step(const optimizer_specification& x, std::uint64_t steps, double rate, double clip);

} // namespace parcae

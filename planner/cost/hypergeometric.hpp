#pragma once

#include <cstdint>
#include <vector>

namespace parcae {

/// P(k of n drawn are among the `marked` of `all`), k = 0 … min(n, marked).
std::vector<double> hypergeometric(std::uint32_t all, std::uint32_t marked, std::uint32_t drawn);

} // namespace parcae

#pragma once

// An independent answer to who gets which place: LEMON's network simplex. LEMON stays behind this header.

#include <array>
#include <cstdint>
#include <vector>

namespace parcae {

/// Compared component by component, the first counts most.
using cost_in_order = std::array<std::int64_t, 3>;

/// The sum of the costs where each row has a column of its own and no assignment costs less. There are at least as many
/// columns as rows, and nothing is below 0. Throws std::overflow_error if the components do not fit into one number.
cost_in_order least_cost(const std::vector<std::vector<cost_in_order>>& cost);

} // namespace parcae

#pragma once

// Which layers each keeper is to hold. Pure.

#include <cstdint>
#include <set>
#include <vector>

namespace parcae {

struct keeper_room {
  std::set<std::uint32_t> held;       ///< layers that need not be brought to it
  std::uint64_t bytes = 0;            ///< its memory; 0: unknown, enough
  std::set<std::uint32_t> computed{}; ///< layers that workers of its machine compute: they would go with it
};

/// By keeper, in the order given: its layers, sorted. Each layer goes to `copies` keepers (to all if there are fewer),
/// a first one always, others where there is room for keeper_versions of them. One of a layer's keepers is apart, on a
/// machine that does not compute it, if any such has room. Layers stay where they are held, and what is missing goes to
/// the keeper with the least; then layers move, until no two keepers differ by more than the largest layer where moving
/// one between them is possible. Ties: the keeper named first, the lower layer.
/// `layer_bytes`: of one version of each.
std::vector<std::vector<std::uint32_t>> share_among_keepers(const std::vector<keeper_room>& keepers,
                                                            const std::vector<std::uint64_t>& layer_bytes,
                                                            std::uint32_t copies);

} // namespace parcae

#pragma once

// Given (D, P) and what every slot holds: which slot computes what, and which shards move (HOW_IT_WORKS.md, "Changing
// generation"). Pure.

#include "planner/situation/inventory.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace parcae {

/// Splits layers into `depth` consecutive stages, none empty, so that the slowest stage is as fast as it can be; among
/// such splits the one with the smallest earlier stages. Returns depth + 1 boundaries. Requires 1 ≤ depth ≤ layers.
std::vector<std::uint32_t> partition_layers(std::span<const double> layer_ms, std::uint32_t depth);

/// A slot that may be given work, or only be asked for its shards.
struct candidate {
  participant where;
  inventory held;
  bool keeper = false;   ///< source only, and only of what no worker holds
  bool leaving = false;  ///< under notice or excluded: a source, never a destination
  std::uint64_t age = 0; ///< order of arrival; smaller is older
};

/// What kind of change it is, for reports and costs: same place, only replicas of the same stage or spares moved in
/// (intra-stage), some instance took over another stage's layers (inter-stage), or another depth (pipeline).
enum class migration : std::uint8_t { none = 0, intra_stage, inter_stage, pipeline };

struct change_plan {
  placement target; ///< participants: ranks first, then pure sources
  std::vector<shard_move> moves;
  std::vector<std::uint32_t> seeded; ///< layers nobody holds, made from the job's seed (version 0 only)
  std::uint64_t bytes = 0;           ///< to move
  migration kind = migration::none;  ///< against `before`
  std::string reason;
};

/// Places D × P on the candidates at version `at` and plans the moves. Assignment minimises bytes to move; ties prefer
/// slots with the same place in `before`, then older candidates. Sources are spread so that the busiest sender carries
/// least; candidates that leave come first as sources when loads are equal; a layer that only keepers hold comes from
/// them. `layer_bytes` is the state size of each layer. Requires at least D·P candidates that are neither keepers nor
/// leaving, and (for at ≠ (0,0)) every layer held by some candidate at version `at`.
change_plan plan_change(std::uint32_t width, std::span<const std::uint32_t> first_layer,
                        const std::vector<candidate>& candidates, const version& at,
                        std::span<const std::uint64_t> layer_bytes, const placement* before);

} // namespace parcae

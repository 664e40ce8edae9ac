#pragma once

// Which slots a simulated service's pipelines are in. Pure.

#include "planner/serving/batches.hpp"
#include "planner/serving/cache_moves.hpp"

#include <cstdint>
#include <random>
#include <vector>

namespace parcae::serving {

/// Slots by name; of a stage with a degree of tensor parallelism the first of its slots names it.
class slot_places {
public:
  slot_places(std::uint32_t layers, std::uint64_t seed) : layers_(layers), random_(seed) {}

  /// Instances of `each` slots come, or some are lost, drawn.
  void resize(std::size_t instances, std::uint32_t each);

  std::size_t slots() const { return slots_.size(); }

  /// Whether a slot of the pipelines is gone.
  bool is_hit() const;

  /// Puts pipelines into slots: as many stages as possible stay where they were. Who goes on with whose requests;
  /// `cached`: positions by old pipeline.
  cache_plan change(const service_shape& shape, const std::vector<std::uint64_t>& cached);

private:
  bool is_there(const std::vector<std::uint64_t>& slots) const;

  std::uint32_t layers_;
  std::mt19937_64 random_;
  std::uint64_t next_ = 0;           ///< name of a slot
  std::vector<std::uint64_t> slots_; ///< that are there, by instance
  service_shape shape_;
  std::vector<std::vector<std::vector<std::uint64_t>>> held_; ///< by pipeline and stage: its slots
};

} // namespace parcae::serving

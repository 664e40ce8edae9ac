#pragma once

// What plans of a job that serves are made by, from what its ranks and its gateway say. Bounded, and checked: a node
// may say anything. Pure.

#include "protocols/choreography/choreography.hpp"
#include "protocols/values/serving.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace parcae {

class service_meter {
public:
  static constexpr std::size_t most = 256;             ///< stages by size; the oldest go
  static constexpr std::uint64_t most_passes = 10'000; ///< of one stage and size that count; newer ones weigh more

  /// From a rank of the stage with layers [first, last).
  void learn(std::uint32_t first, std::uint32_t last, const std::vector<sized_passes>& x);

  /// From the gateway in use. What it does not know yet, having just come, stays as it was.
  void learn(const routed& x);

  /// Sizes that all ranks have proven.
  void use(const std::vector<std::uint32_t>& sizes) { known_.sizes = sizes; }

  /// What a position takes where many are computed at once, in the slowest of these stages; 0: not all are measured.
  double row_ms(const placement& grid) const;

  const service_measures& known() const { return known_; }

private:
  service_measures known_;
};

} // namespace parcae

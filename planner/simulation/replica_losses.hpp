#pragma once

// Which stages of a grid still have enough replicas when slots vanish at random. Pure; single-threaded.

#include <cstdint>
#include <span>
#include <vector>

namespace parcae {

/// Stages of `width` replicas, of which each can spare `spare` < width. Adding stages one by one, the number of losses
/// among the stages so far is all that matters, and the answers hold for grids of any depth.
class replica_losses {
public:
  replica_losses(std::uint32_t width, std::uint32_t spare) : width_(width), spare_(spare) {}

  /// P(none of the first `stages` of `depth` stages lacks a replica | `lost` slots of the grid vanish); lost ≤ slots.
  double none_lacks(std::uint32_t stages, std::uint32_t depth, std::uint32_t lost);

private:
  const std::vector<double>& by_losses(std::uint32_t stages, std::uint32_t lost);

  std::uint32_t width_;
  std::uint32_t spare_;
  /// [n][a]: P(none of n stages lacks a replica | `a` slots of those vanish). Grows as asked.
  std::vector<std::vector<double>> known_;
};

} // namespace parcae

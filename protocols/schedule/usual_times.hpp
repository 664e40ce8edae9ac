#pragma once

// How long passes of each size take, as was seen of late; and how large one may be that has rows to be computed again
// beside rows that decode. Pure.

#include <cstdint>
#include <map>
#include <optional>
#include <span>

namespace parcae {

class usual_times {
public:
  void took(std::uint32_t size, double ms);

  /// ms. Of a size that was not seen what lies between those next to it; of one above them all in proportion. None:
  /// none was seen.
  std::optional<double> of(std::uint32_t size) const;

private:
  std::map<std::uint32_t, double> usual_; ///< ms by size
};

/// The size, of `sizes` (rising, not empty), of a pass in which rows are computed again beside rows that decode, of
/// those up to the one that would have `beside` of them. That one, if it takes not even half more than a pass of those
/// that decode alone; else one that takes about half more, or lies a third of the way between, whichever is larger. It
/// goes by these two, as most passes are like them: of sizes between few are seen, and then a machine's bad moments
/// count. At least a row more has a place.
std::uint32_t size_beside(std::span<const std::uint32_t> sizes, const usual_times& times, std::uint32_t decoding,
                          std::uint32_t beside);

} // namespace parcae

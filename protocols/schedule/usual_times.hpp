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

/// The size, of `sizes` (rising, not empty), of passes in which rows that decode have company: with some rows of others
/// beside them, `beside`, they fit into a pass of `most`. It delays them by no more than half of what that one would,
/// beyond a pass of their own, or than half of such a pass. At least a row of others has a place.
std::uint32_t size_beside(std::span<const std::uint32_t> sizes, const usual_times& times, std::uint32_t decoding,
                          std::uint32_t beside);

} // namespace parcae

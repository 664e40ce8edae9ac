#pragma once

#include "protocols/base/described.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace parcae {

/// How one GPU of a node is, for people.
struct gpu_state {
  std::string place;              ///< as its node counts: "cuda:0"; "GPUs": this is of all of the node's
  std::int32_t busy_percent = -1; ///< of the last moments, how many had a kernel at work; -1: not known
  std::int32_t celsius = -1;      ///< likewise
  std::string throttled;          ///< what lowers its clocks, a few words; empty: nothing, or not known
  std::int64_t corrected = -1;    ///< errors of its memory (ECC) since the driver was loaded; -1: not known
  std::int64_t uncorrected = -1;  ///< likewise
  std::uint64_t xid = 0;          ///< number of the last error that the driver reported since the node began; 0: none
  std::string problem;            ///< why nothing, or not all, is known, one line; empty: all is that the GPU tells

  /// Of each text.
  static constexpr std::size_t longest_text = 200;

  friend bool operator==(const gpu_state&, const gpu_state&) = default;
};
BOOST_DESCRIBE_STRUCT(gpu_state, (), (place, busy_percent, celsius, throttled, corrected, uncorrected, xid, problem))

} // namespace parcae

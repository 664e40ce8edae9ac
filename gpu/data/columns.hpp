#pragma once

// What parcae_model.export_dataset writes (deploy/python): samples.json, which says what a sample consists of, and
// samples.bin, all samples one after the other. Pure.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

inline constexpr std::uint64_t columns_text_limit = 64 << 10; ///< bytes of samples.json

/// Some values of every sample.
struct column {
  std::string name;
  unsigned bytes = 0; ///< of a value, little-endian: 1, 2, 4, 8
  bool is_signed = false;
  std::vector<std::int64_t> shape;

  std::uint64_t values() const;
};

struct column_layout {
  std::uint64_t samples = 0;
  std::vector<column> inputs; ///< at least one; in the order of their bytes in a sample
  column targets;             ///< behind them

  std::uint64_t sample_bytes() const;
};

/// What samples.json says, checked. Throws std::runtime_error: what is wrong.
column_layout parse_columns(std::string_view text);

} // namespace parcae

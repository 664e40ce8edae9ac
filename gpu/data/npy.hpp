#pragma once

// NumPy's files of whole numbers (numpy.lib.format, versions 1 to 3): the header. Pure.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace parcae {

inline constexpr std::size_t npy_header_limit = 64 << 10; ///< bytes; numpy refuses longer ones unless told otherwise

struct npy_header {
  std::uint64_t values_at = 0; ///< byte of the first value
  unsigned bytes = 0;          ///< of a value, little-endian: 1, 2, 4, 8
  bool is_signed = false;
  std::vector<std::uint64_t> shape; ///< one extent, or rows and columns, the values row by row

  std::uint64_t values() const { return shape.size() == 2 ? shape[0] * shape[1] : shape[0]; }
};

/// `begin`: the first npy_header_limit bytes, or all. What it returns describes exactly `file_bytes`. Throws
/// std::runtime_error: what is wrong.
npy_header parse_npy(std::span<const std::byte> begin, std::uint64_t file_bytes);

} // namespace parcae

#pragma once

// Byte-pair encoding: a piece of text begins as tokens of one byte; of the pairs side by side that may be merged, the
// one of least rank is, the leftmost first, until there is none (Sennrich et al. 2016, as Hugging Face does it).

#include <array>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace parcae {

using token_id = std::uint32_t;
inline constexpr token_id no_token = UINT32_MAX;

/// One line: a file that is not understood, or a text that cannot be taken.
struct tokenizer_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class byte_pairs {
public:
  byte_pairs() { of_byte_.fill(no_token); }

  /// A token of one byte.
  void set_byte(unsigned char byte, token_id x) { of_byte_[byte] = x; }
  bool has_byte(unsigned char byte) const { return of_byte_[byte] != no_token; }
  /// `left` and `right` side by side become `made`; ranks rise from call to call, the last call for a pair counts.
  void add_merge(token_id left, token_id right, token_id made);
  /// A piece of exactly these bytes is this token, whatever the merges say.
  void add_whole(std::string bytes, token_id x) { whole_.insert_or_assign(std::move(bytes), x); }

  /// Appends the tokens of a piece. n bytes take O(n log n); bytes without a token are left out.
  void encode(std::string_view piece, std::vector<token_id>& to) const;

private:
  struct merge {
    std::uint32_t rank;
    token_id made;
  };
  struct text_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view x) const { return std::hash<std::string_view>()(x); }
  };

  const merge* merge_of(token_id left, token_id right) const;

  std::array<token_id, 256> of_byte_{};
  std::unordered_map<std::uint64_t, merge> merges_; ///< by both ids
  std::uint32_t next_rank_ = 0;
  std::unordered_map<std::string, token_id, text_hash, std::equal_to<>> whole_;
};

} // namespace parcae

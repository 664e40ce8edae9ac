#pragma once

// Tokens that stand in a text by their name, such as "<tool_call>": found before the text is cut into pieces.

#include "protocols/tokenizer/byte_pairs.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace parcae {

struct added_token {
  std::string content; ///< not empty
  token_id id = 0;
  bool special = false; ///< never comes of text
  bool normal = false;  ///< looked for in the text's normal form, where there is one
};

/// A trie of contents.
class added_tokens {
public:
  void add(const added_token& x);

  /// Calls f(text, id) for the parts of a text in order: of those that are added tokens the id, of others no_token;
  /// none is empty. The leftmost counts, of several there the longest; where that is special, its text is ordinary.
  template <class Function>
  void for_each_part(std::string_view text, Function f) const {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < text.size();) {
      const auto [size, id] = longest_at(text.substr(i));
      if (id != no_token) {
        if (begin < i)
          f(text.substr(begin, i - begin), no_token);
        f(text.substr(i, size), id);
        begin = i + size;
      }
      i += size == 0 ? 1 : size;
    }
    if (begin < text.size())
      f(text.substr(begin), no_token);
  }

private:
  struct node {
    bool ends = false;      ///< a content
    token_id id = no_token; ///< of it; none: it is special
  };

  /// How many bytes of the text's beginning are a content; 0: none.
  std::pair<std::size_t, token_id> longest_at(std::string_view text) const;

  std::vector<node> nodes_{1};
  std::unordered_map<std::uint64_t, std::uint32_t> next_; ///< by node and byte
};

} // namespace parcae

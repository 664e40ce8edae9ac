#pragma once

// Text to tokens and back.

#include "protocols/tokenizer/added_tokens.hpp"
#include "protocols/tokenizer/byte_pairs.hpp"
#include "protocols/tokenizer/split_pattern.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

inline constexpr std::size_t max_text_bytes = 1 << 20; ///< of one text

/// What a tokenizer consists of.
struct tokenizer_parts {
  std::vector<std::string> tokens;     ///< the bytes of each, by id; empty: special, or none of that id
  byte_pairs pairs;                    ///< bytes to tokens
  std::vector<split_pattern> patterns; ///< each cuts what the one before left; tokens end where a piece ends
  std::vector<added_token> added;      ///< found in the text before all else
  std::vector<token_id> opening;       ///< stand before a prompt
  bool to_normal_form = false;         ///< NFC
  bool space_in_front = false;         ///< of a text that begins with none
};

/// Immutable: any thread may use it. What it does, Hugging Face's tokenizers do, but for one thing: special tokens
/// never come of text, whoever wrote it.
class tokenizer {
public:
  explicit tokenizer(tokenizer_parts parts);

  /// Of text that a user wrote, damaged UTF-8 taken as U+FFFD. Throws tokenizer_error: it is longer than
  /// max_text_bytes, or takes a pattern too long.
  std::vector<token_id> encode(std::string_view text) const;

  /// What stands for a token in an answer, which `utf8_stream` makes text of. Empty: it is special, or there is none.
  std::string_view bytes_of(token_id x) const;

  /// The special token of that name, such as "<|im_end|>".
  std::optional<token_id> special(std::string_view name) const;

  /// Of a prompt that is no chat they stand in front.
  const std::vector<token_id>& opening() const { return parts_.opening; }

private:
  tokenizer_parts parts_;
  added_tokens in_text_;   ///< found in text as it is
  added_tokens in_normal_; ///< found in its normal form
};

/// 256 tokens, the bytes.
tokenizer byte_tokenizer();

/// The text of tokens, as a stream would give it.
std::string text_of(const tokenizer& with, const std::vector<token_id>& tokens);

} // namespace parcae

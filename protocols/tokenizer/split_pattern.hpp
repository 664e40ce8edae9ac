#pragma once

// A regular expression that cuts text into pieces: its matches, and what is between them.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct pcre2_real_code_8;

namespace parcae {

/// Patterns are Oniguruma's, as in tokenizer.json, and run by PCRE2: of both only what they take alike is understood.
/// Immutable: any thread.
class split_pattern {
public:
  /// Throws tokenizer_error, which says what is not understood.
  explicit split_pattern(std::string_view pattern);

  /// Each piece of valid UTF-8 by itself, in order. Throws tokenizer_error: it takes more steps than text of that
  /// length should.
  std::vector<std::string_view> split(const std::vector<std::string_view>& pieces) const;

private:
  std::shared_ptr<const pcre2_real_code_8> code_;
};

} // namespace parcae

#pragma once

// UTF-8 that may be damaged, or cut. What is damaged becomes U+FFFD as Unicode recommends (the longest beginning of a
// character is one of them), which is what Hugging Face's decoder and Python do. Pure.

#include <cstddef>
#include <string>
#include <string_view>

namespace parcae {

/// Bytes as valid UTF-8.
std::string valid_utf8(std::string_view bytes);

/// The same of bytes that come piece by piece: the pieces' texts and the end's are the whole's.
class utf8_stream {
public:
  /// The characters that are complete by now; the beginning of one is held back.
  std::string add(std::string_view bytes);
  /// What is held back will not be completed.
  std::string end();

private:
  std::string held_; ///< at most three bytes
};

/// The character at the front of valid UTF-8, which is not empty; takes it off.
char32_t take_valid(std::string_view& text);

void append_utf8(std::string& to, char32_t x);

} // namespace parcae

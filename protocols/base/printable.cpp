#include "protocols/base/printable.hpp"

#include "protocols/base/text.hpp"

namespace parcae {

namespace {

bool harmless(char32_t x) {
  if (x < 0x20 || (x >= 0x7F && x < 0xA0) || x == 0xFFFD || x == 0xFEFF)
    return false; // controls, of both sets; what is no character; byte order mark
  const bool direction =
      x == 0x61C || x == 0x200E || x == 0x200F || (x >= 0x202A && x <= 0x202E) || (x >= 0x2066 && x <= 0x2069);
  const bool line_break = x == 0x2028 || x == 0x2029;
  const bool invisible = (x >= 0x200B && x <= 0x200D) || (x >= 0x2060 && x <= 0x2064) || (x >= 0xE0000 && x < 0xE1000);
  return !direction && !line_break && !invisible;
}

void append_printable(std::string& to, std::string_view text, bool keep_line_breaks) {
  to.reserve(to.size() + text.size());
  while (!text.empty()) {
    const auto* const begin = text.data();
    const auto x = take_character(text);
    if (harmless(x) || (x == '\n' && keep_line_breaks))
      to.append(begin, text.data());
    else
      to += x == '\t' || x == '\n' || x == '\r' || x == 0x2028 || x == 0x2029 ? ' ' : '?';
  }
}

} // namespace

char32_t take_character(std::string_view& text) {
  const auto first = static_cast<unsigned char>(text.front());
  const std::size_t size = first < 0x80         ? 1
                           : first >> 5 == 0x6  ? 2
                           : first >> 4 == 0xE  ? 3
                           : first >> 3 == 0x1E ? 4
                                                : 0;
  if (size == 0 || size > text.size()) {
    text.remove_prefix(1);
    return 0xFFFD;
  }
  char32_t x = size == 1 ? first : first & (0x7F >> size);
  for (std::size_t i = 1; i < size; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if (next >> 6 != 0x2) {
      text.remove_prefix(i);
      return 0xFFFD;
    }
    x = x << 6 | (next & 0x3F);
  }
  text.remove_prefix(size);
  // Longer than needed, half of a surrogate pair, beyond Unicode: none that a decoder may accept.
  constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  return x < least[size] || (x >= 0xD800 && x < 0xE000) || x > 0x10FFFF ? 0xFFFD : x;
}

std::string printable(std::string_view text, std::size_t max_bytes) {
  constexpr std::string_view more = "…";
  std::string result;
  if (text.size() <= max_bytes) {
    append_printable(result, text, false);
  } else {
    append_printable(result, clipped(text, max_bytes < more.size() ? 0 : max_bytes - more.size()), false);
    result += more;
  }
  return result;
}

std::string printable_lines(std::string_view text) {
  std::string result;
  append_printable(result, text, true);
  return result;
}

} // namespace parcae

#include "protocols/tokenizer/utf8.hpp"

namespace parcae {

namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

enum class found { whole, damaged, cut };

struct front_bytes {
  std::size_t size;
  found kind;
};

/// What the bytes, which are not empty, begin with: a character, or the longest beginning of one.
front_bytes front_of(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const auto first = at(0);
  if (first < 0x80)
    return {1, found::whole};
  if (first < 0xC2 || first > 0xF4)
    return {1, found::damaged};
  const std::size_t size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  // The second byte also says whether it is longer than needed, half of a surrogate pair, or beyond Unicode.
  auto low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  auto high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < size; ++i) {
    if (i == bytes.size())
      return {i, found::cut};
    if (at(i) < low || at(i) > high)
      return {i, found::damaged};
    low = 0x80;
    high = 0xBF;
  }
  return {size, found::whole};
}

} // namespace

std::string valid_utf8(std::string_view bytes) {
  utf8_stream all;
  auto result = all.add(bytes);
  return result += all.end();
}

std::string utf8_stream::add(std::string_view bytes) {
  held_ += bytes;
  std::string result;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const auto x = front_of(rest);
    if (x.kind == found::cut)
      break;
    result += x.kind == found::whole ? rest.substr(0, x.size) : replacement;
    rest.remove_prefix(x.size);
  }
  held_.erase(0, held_.size() - rest.size());
  return result;
}

std::string utf8_stream::end() {
  std::string result(held_.empty() ? std::string_view() : replacement);
  held_.clear();
  return result;
}

char32_t take_valid(std::string_view& text) {
  const auto first = static_cast<unsigned char>(text.front());
  const std::size_t size = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  char32_t x = size == 1 ? first : first & (0x7F >> size);
  for (std::size_t i = 1; i < size; ++i)
    x = x << 6 | (static_cast<unsigned char>(text[i]) & 0x3F);
  text.remove_prefix(size);
  return x;
}

void append_utf8(std::string& to, char32_t x) {
  const auto tail = [&](int shift) { to += static_cast<char>(0x80 | (x >> shift & 0x3F)); };
  if (x < 0x80) {
    to += static_cast<char>(x);
  } else if (x < 0x800) {
    to += static_cast<char>(0xC0 | x >> 6);
    tail(0);
  } else if (x < 0x10000) {
    to += static_cast<char>(0xE0 | x >> 12);
    tail(6);
    tail(0);
  } else {
    to += static_cast<char>(0xF0 | x >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

} // namespace parcae

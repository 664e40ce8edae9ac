#include "runtime/view/screen_text.hpp"

#include "protocols/base/printable.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace parcae {

namespace {

constexpr std::array blocks{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

// Letters and signs that every terminal shows in one column: others could shift what is right of them, or command the
// terminal.
bool one_column(char32_t x) {
  return (x >= 0x20 && x < 0x7F) || (x >= 0xA1 && x < 0x300 && x != 0xAD) || (x >= 0x370 && x < 0x483) ||
         (x >= 0x48A && x < 0x530) || (x >= 0x2010 && x < 0x2028) || (x >= 0x2190 && x < 0x2200) ||
         (x >= 0x2500 && x < 0x25A0);
}

} // namespace

std::string clean(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const auto* const begin = text.data();
    const auto x = take_character(text);
    if (one_column(x))
      result.append(begin, text.data());
    else
      result += x == '\t' || x == '\n' ? ' ' : '?';
  }
  return result;
}

std::size_t width_of(std::string_view clean_text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(clean_text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::size_t bytes_of(std::string_view clean_text, std::size_t characters) {
  auto rest = clean_text;
  for (std::size_t i = 0; i < characters && !rest.empty(); ++i)
    take_character(rest);
  return clean_text.size() - rest.size();
}

std::string clip(std::string text, std::size_t columns) {
  if (width_of(text) <= columns)
    return text;
  if (columns == 0)
    return {};
  text.resize(bytes_of(text, columns - 1));
  return text + "…";
}

std::string clip_front(std::string text, std::size_t columns) {
  const auto width = width_of(text);
  if (width <= columns || columns == 0)
    return text;
  return "…" + text.substr(bytes_of(text, width - columns + 1));
}

std::string pad(std::string text, std::size_t columns) {
  text = clip(std::move(text), columns);
  text.append(columns - width_of(text), ' ');
  return text;
}

std::string repeat(std::string_view what, std::size_t times) {
  std::string result;
  while (times-- > 0)
    result += what;
  return result;
}

std::vector<std::string> wrap(std::string text, std::size_t columns, std::size_t max_lines) {
  std::vector<std::string> result;
  while (width_of(text) > columns && result.size() + 1 < max_lines) {
    auto end = bytes_of(text, columns);
    if (const auto space = text.rfind(' ', end); space != text.npos && space > end / 2)
      end = space;
    result.push_back(text.substr(0, end));
    text.erase(0, text.find_first_not_of(' ', end));
  }
  result.push_back(clip(std::move(text), columns));
  return result;
}

std::vector<std::string> sparkline(const std::vector<double>& values, std::size_t columns, std::size_t height) {
  std::vector<std::string> result(height);
  const auto n = std::min(values.size(), columns);
  if (n == 0)
    return result;
  std::vector<double> means;
  for (std::size_t i = 0; i < n; ++i) {
    const auto begin = i * values.size() / n, end = (i + 1) * values.size() / n;
    double sum = 0;
    for (auto k = begin; k < end; ++k)
      sum += values[k];
    means.push_back(sum / static_cast<double>(end - begin));
  }
  const auto [low, high] = std::ranges::minmax(means);
  for (const auto x : means) {
    const auto share = high > low ? (x - low) / (high - low) : 0;
    const auto level = 1 + static_cast<std::size_t>(std::lround(share * static_cast<double>(8 * height - 1)));
    for (std::size_t row = 0; row < height; ++row) {
      const auto below = 8 * (height - 1 - row);
      result[row] += blocks[std::min<std::size_t>(8, level > below ? level - below : 0)];
    }
  }
  return result;
}

std::string ascii_of(std::string_view text) {
  // Those that this view draws; of others a question mark tells that there is something.
  constexpr std::pair<char32_t, char> known[] = {{U'×', 'x'}, {U'…', '~'}, {U'░', '.'}, {U'▁', '_'},
                                                 {U'▂', '.'}, {U'▃', '-'}, {U'▄', '='}, {U'▅', '+'},
                                                 {U'▆', '*'}, {U'▇', '%'}, {U'█', '#'}};
  std::string result;
  while (!text.empty()) {
    const auto x = take_character(text);
    const auto i = std::ranges::find(known, x, &std::pair<char32_t, char>::first);
    result += x < 0x80 ? static_cast<char>(x) : i != std::end(known) ? i->second : '?';
  }
  return result;
}

} // namespace parcae

#include "protocols/tokenizer/normal_form.hpp"

#include "protocols/tokenizer/utf8.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

namespace parcae {

namespace {

int combining_class(utf8proc_int32_t x) {
  return utf8proc_get_property(x)->combining_class;
}

} // namespace

std::string normal_form(std::string_view text) {
  // What is before U+0300 combines with nothing before it.
  if (std::ranges::all_of(text, [](unsigned char byte) { return byte < 0xCC; }))
    return std::string(text);
  std::vector<utf8proc_int32_t> all;
  while (!text.empty()) {
    utf8proc_int32_t parts[8];
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(take_valid(text)), parts, std::size(parts),
                                               UTF8PROC_DECOMPOSE, &boundary);
    all.insert(all.end(), parts, parts + count);
  }
  // The library's own order of marks takes the square of how many there are in a row.
  const auto is_mark = [](auto x) { return combining_class(x) != 0; };
  for (auto i = all.begin(); (i = std::find_if(i, all.end(), is_mark)) != all.end();) {
    const auto end = std::find_if_not(i, all.end(), is_mark);
    std::ranges::stable_sort(i, end, {}, combining_class);
    i = end;
  }
  all.resize(static_cast<std::size_t>(
      utf8proc_normalize_utf32(all.data(), static_cast<utf8proc_ssize_t>(all.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE))));
  std::string result;
  for (const auto x : all)
    append_utf8(result, static_cast<char32_t>(x));
  return result;
}

} // namespace parcae

#pragma once

// Text measured in columns of a terminal: UTF-8, of which each character takes one. Pure.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

/// Text from elsewhere as it can be shown: question marks for what takes another number of columns, commands the
/// terminal or is no UTF-8. All below is for such text.
std::string clean(std::string_view text);

std::size_t width_of(std::string_view clean_text);

/// Bytes of the first `characters` characters.
std::size_t bytes_of(std::string_view clean_text, std::size_t characters);

/// Text of at most `columns` columns: "beginn…".
std::string clip(std::string text, std::size_t columns);

/// Keeps the end, "…he end": names of machines often differ only there.
std::string clip_front(std::string text, std::size_t columns);

/// Text of exactly `columns` columns: clipped, or with spaces behind.
std::string pad(std::string text, std::size_t columns);

std::string repeat(std::string_view what, std::size_t times);

/// Lines of at most `columns` columns, broken at spaces where there are some; the last one is clipped.
std::vector<std::string> wrap(std::string text, std::size_t columns, std::size_t max_lines);

/// One character per value, low to high from ▁ to █; if there are more values than columns, each stands for the mean of
/// its neighbours. `height` lines, the top one first: a character then has 8·height levels.
std::vector<std::string> sparkline(const std::vector<double>& values, std::size_t columns, std::size_t height = 1);

/// The same in ASCII, character by character, for terminals that know no other.
std::string ascii_of(std::string_view text);

} // namespace parcae

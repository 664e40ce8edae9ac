#pragma once

// Text from elsewhere on its way to people: terminals and logs.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace parcae {

/// Takes the first character off a UTF-8 text, which is not empty; 0xFFFD for bytes that are none.
char32_t take_character(std::string_view& text);

/// One line that cannot command a terminal, nor look like two: spaces for tabs and line breaks; question marks for
/// other control characters (escape sequences begin with one), for marks that change the direction of text, and for
/// what is no UTF-8. What is longer than `max_bytes` is cut, and ends in "…".
std::string printable(std::string_view text, std::size_t max_bytes = SIZE_MAX);

/// The same for text of several lines: line breaks stay.
std::string printable_lines(std::string_view text);

} // namespace parcae

#pragma once

#include <string>
#include <string_view>

namespace parcae {

/// Unicode's normal form C of valid UTF-8, by utf8proc's tables. Pure.
std::string normal_form(std::string_view text);

} // namespace parcae

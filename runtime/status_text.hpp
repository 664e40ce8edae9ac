#pragma once

// `parcae status` for people and for programs. Pure.

#include "protocols/client.hpp"

#include <string>

namespace parcae {

/// Several lines.
std::string text_of(const status_reply& x);

/// One line of JSON with all fields; names as in protocols/client.hpp. 64-bit incarnations are strings: many JSON
/// readers would round them.
std::string json_of(const status_reply& x);

} // namespace parcae

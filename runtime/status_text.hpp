#pragma once

// `parcae status` for people and for programs. Pure.

#include "protocols/client.hpp"

#include <boost/json/fwd.hpp>

#include <string>

namespace parcae {

/// Of migration, for people.
std::string kind_of(const change_status& x);

/// Several lines.
std::string text_of(const status_reply& x);

/// One line of JSON with all fields; names as in protocols/client.hpp. 64-bit incarnations are strings: many JSON
/// readers would round them.
std::string json_of(const status_reply& x);

/// As in `status --json`; profiles have them too.
boost::json::object object_of(const layer_cost& x);
boost::json::object object_of(const change_figures& x);

} // namespace parcae

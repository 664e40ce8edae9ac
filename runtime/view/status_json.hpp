#pragma once

// `parcae status --json`. Pure.

#include "protocols/client/client.hpp"

#include <boost/json/fwd.hpp>

#include <string>

namespace parcae {

/// One line of JSON with all fields; names and order as described in protocols/client/client.hpp. 64-bit incarnations
/// are strings: many JSON readers would round them. What is not finite is null.
std::string json_of(const status_reply& x);

/// As in `status --json`; profiles have them too.
boost::json::object object_of(const layer_cost& x);
boost::json::object object_of(const change_figures& x);

} // namespace parcae

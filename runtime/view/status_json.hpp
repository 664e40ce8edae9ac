#pragma once

// `parcae status --json`. Pure.

#include "protocols/client/client.hpp"

#include <boost/json/fwd.hpp>

#include <string>

namespace parcae {

/// One line of JSON with all fields; names and order as described in protocols/client/client.hpp. 64-bit incarnations
/// are strings: many JSON readers would round them. What is not finite is null.
std::string json_of(const status_reply& x);

/// Parts of it; profiles and the web have them too.
boost::json::object object_of(const layer_cost& x);
boost::json::object object_of(const change_figures& x);
boost::json::object object_of(const job_status& x);
boost::json::object object_of(const change_status& x);
boost::json::object object_of(const decision& x);
boost::json::object object_of(const event_status& x);
boost::json::object object_of(const failure_status& x);

} // namespace parcae

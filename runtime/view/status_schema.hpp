#pragma once

// What `parcae status --json` looks like, as JSON Schema (draft 2020-12). Pure.

#include <string>

namespace parcae {

/// Made from the same structs, so that it cannot be another one.
std::string status_schema();

} // namespace parcae

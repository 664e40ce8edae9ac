#pragma once

#include <string>

namespace parcae {

/// `parcae job-keys --json`: {"keys": [...]}, in the order of the reference.
std::string job_keys_json();

} // namespace parcae

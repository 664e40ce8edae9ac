#pragma once

// Faults in the rules of keepers, of which one row is made wrong. Nothing of the product can reach them.

#include "gpu/keeper/keeper_machine.hpp"

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace parcae::simulation {

/// Puts a fault into the rules of a keeper, which must not outlive this; may be empty.
using keeper_spoiler = std::function<void(keeper_machine&)>;

struct keeper_fault {
  std::string_view name;
  keeper_spoiler spoil;
  std::uint64_t seeds; ///< one of the first so many finds it: at most twice what it takes
  std::string_view by; ///< what is said of it then has this
};

const std::vector<keeper_fault>& all_keeper_faults();

} // namespace parcae::simulation

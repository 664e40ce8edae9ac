#pragma once

// What is said to a hook, and what is believed of its answer. Pure.
//
//   {"version":1,"request":17,"manager":"boss:4242","pools":[{"name":"w2a-spot","kind":"p3.2xlarge",
//    "place":"us-west-2a","want":6,"have":["a","b"],"release":["c"]}]}
//   {"pools":[{"name":"w2a-spot","can":4,"why":"capacity-not-available"}]}

#include "protocols/values/market.hpp"

#include <tl/expected.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

/// What is to be: level-triggered, the last one counts alone. A pool that is not named stays as it is.
struct provision_request {
  std::uint64_t request = 0; ///< its number, for logs of both sides
  std::vector<pool_order> pools;
};

inline constexpr std::size_t max_hook_answer = 64 * 1024; ///< bytes

std::string hook_request(const provision_request& x, const std::string& manager);

/// One for each pool of the request, in its order; of what the hook left out nothing is known, what was not asked for
/// is passed over. Or one line that says why nothing of it can be used.
tl::expected<std::vector<pool_word>, std::string> hook_answer(std::string_view text, const provision_request& asked);

} // namespace parcae

#pragma once

// Trying again what may have failed by chance.

#include "protocols/http/http.hpp"
#include "protocols/store/store.hpp"

namespace parcae {

/// For a request or an answer of `bytes` bytes.
http_limits limits_of(const store_pace& pace, std::uint64_t bytes);

/// The pause behind attempt number `attempt` (the first is 1), drawn from zero to its most ("full jitter", M. Brooker,
/// AWS Architecture Blog 2015), so that many who failed together do not come back together.
std::chrono::milliseconds pause_after(unsigned attempt, const store_pace& pace, std::uint64_t random);

/// Waits. False: it was stopped meanwhile.
bool pause(std::chrono::milliseconds time, const std::stop_token& stop);

/// A server that answers so may answer otherwise soon.
bool may_pass(unsigned status);

std::uint64_t random_number(); ///< not a secret

} // namespace parcae

#pragma once

// What status tells of a job that serves.

#include "protocols/base/described.hpp"
#include "protocols/values/serving.hpp"

#include <cstdint>
#include <string>

namespace parcae {

/// Of a job that serves.
struct service_status {
  std::string gateway;            ///< the instance that answers; empty: none
  std::string http;               ///< where
  std::uint32_t gateways = 0;     ///< with those that stand by
  std::string gateway_problem;    ///< why nobody is answered; empty: nothing is known of that
  std::uint64_t cache_blocks = 0; ///< of all ranks
  std::uint64_t free_blocks = 0;  ///< of these
  request_figures requests{};

  friend bool operator==(const service_status&, const service_status&) = default;
};
BOOST_DESCRIBE_STRUCT(service_status, (),
                      (gateway, http, gateways, gateway_problem, cache_blocks, free_blocks, requests))

} // namespace parcae

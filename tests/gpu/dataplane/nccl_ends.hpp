#pragma once

// Communicators over NCCL's double between the participants of a cluster.

#include "gpu/dataplane/data_port.hpp"
#include "gpu/dataplane/nccl_communicator.hpp"
#include "gpu/dataplane/staged_communicator.hpp"
#include "tests/support/nccl_double.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace parcae::testing {

inline std::vector<std::string> names_of(const prepare& plan) {
  std::vector<std::string> result;
  for (std::uint32_t i = 0; i < plan.target.participants.size(); ++i)
    result.push_back("participant " + std::to_string(i) + " (" + to_string(plan.target.participants[i].slot) + ")");
  return result;
}

/// Blocks until all connections stand, not until NCCL's communicator is made.
inline std::unique_ptr<nccl_communicator> connect_by_nccl(data_port& port, const prepare& plan, const slot_id& self,
                                                          std::shared_ptr<nccl_slot> slot,
                                                          std::shared_ptr<nccl_allowance> allowed,
                                                          std::chrono::milliseconds limit) {
  const std::atomic<bool> never = false;
  auto below = make_staged_communicator(port.connect(plan, self, limit, never), slot->on);
  auto notes = port.connect(plan, self, limit, never, purpose::order);
  auto result =
      make_nccl_communicator(std::move(below), std::move(notes), names_of(plan), std::move(slot), std::move(allowed));
  result->begin();
  return result;
}

} // namespace parcae::testing

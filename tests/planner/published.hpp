#pragma once

// Access to the published profiles and traces, which lie beside the checkout; tests that need them skip visibly
// without.

#include "planner/cost/profile.hpp"
#include "planner/simulation/trace.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace parcae::published {

inline std::filesystem::path folder() {
  return std::filesystem::path(PARCAE_SOURCE_DIR).parent_path() / "shared";
}

inline bool present() {
  return std::filesystem::exists(folder() / "profiles" / "gpt2-1.5b.json") &&
         std::filesystem::exists(folder() / "traces" / "p3.csv");
}

inline profile workload(const std::string& name) {
  return parse_profile(read_file((folder() / "profiles" / (name + ".json")).string()));
}

inline network_profile network() {
  return parse_network(read_file((folder() / "profiles" / "network-10gbps.json").string()));
}

inline fleet_history trace(const std::string& name) {
  return parse_trace(read_file((folder() / "traces" / (name + ".csv")).string()));
}

} // namespace parcae::published

#define PARCAE_NEEDS_PUBLISHED_FIGURES()                                                                               \
  if (!parcae::published::present())                                                                                   \
  GTEST_SKIP() << "needs the published profiles and traces in " << parcae::published::folder()

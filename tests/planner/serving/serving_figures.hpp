#pragma once

// Access to SpotServe's profiles, arrivals and windows, which lie beside the checkout.

#include "planner/cost/profile.hpp"
#include "planner/serving/serving_profile.hpp"
#include "tests/planner/published.hpp"

#include <cstdlib>
#include <filesystem>
#include <string>

namespace parcae::serving {

/// PARCAE_SERVING_FIGURES: where else they are.
inline std::filesystem::path figures() {
  const char* elsewhere = std::getenv("PARCAE_SERVING_FIGURES");
  return elsewhere ? std::filesystem::path(elsewhere) : published::folder() / "serving";
}

inline std::string figures_file(const std::string& name) {
  return read_file((figures() / name).string());
}

inline serving_profile published_model(const std::string& name) {
  return parse_serving_profile(figures_file(name + ".json"));
}

} // namespace parcae::serving

#define PARCAE_NEEDS_SERVING_FIGURES()                                                                                 \
  if (!std::filesystem::exists(parcae::serving::figures()))                                                            \
  GTEST_SKIP() << "needs SpotServe's figures in " << parcae::serving::figures()

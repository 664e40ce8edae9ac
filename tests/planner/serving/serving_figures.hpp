#pragma once

// SpotServe's profiles, arrivals and windows.

#include "planner/cost/profile.hpp"
#include "planner/serving/serving_profile.hpp"
#include "tests/planner/published.hpp"

#include <filesystem>
#include <string>

namespace parcae::serving {

inline std::filesystem::path figures() {
  return PARCAE_SOURCE_DIR "/tests/planner/serving/spotserve";
}

inline std::string figures_file(const std::string& name) {
  return read_file((figures() / name).string());
}

inline serving_profile published_model(const std::string& name) {
  return parse_serving_profile(figures_file(name + ".json"));
}

} // namespace parcae::serving

#include "gpu/training/progress_pace.hpp"

#include "protocols/choreography/choreography.hpp"

namespace parcae {

void progress_pace::begin() {
  reported_ = {};
  steps_ = 0;
  step_began_ = std::chrono::steady_clock::now();
}

std::optional<double> progress_pace::step_done(std::uint32_t ranks, bool at_once) {
  ++steps_;
  const auto now = std::chrono::steady_clock::now();
  if (!at_once && now - reported_ < progress_interval(ranks))
    return {};
  const std::chrono::duration<double, std::milli> elapsed = now - step_began_;
  const auto mean_ms = elapsed.count() / static_cast<double>(steps_);
  reported_ = step_began_ = now;
  steps_ = 0;
  return mean_ms;
}

} // namespace parcae

// Minutes on a busy machine, so apart from the quick tests: how the mix compares with its parts.

#include "forecast/evaluation.hpp"
#include "planner/trace_generator.hpp"
#include "tests/planner/published.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace parcae {
namespace {

// Within 3 % of the best single method on each trace; CRPS relative to that of the last value spread by its past
// errors, mean over the horizons.
TEST(selector, is_near_the_best_single_method_on_generated_traces) {
  const std::vector<std::string> names{"last-spread", "regime", "smoothing", "nearest", "survival", "auto"};
  const std::vector<std::size_t> horizons{1, 4, 8, 12};
  for (const char* kind : {"p3", "calm", "bursty", "collapsing"}) {
    for (std::uint64_t seed : {1, 11}) {
      const auto rows = evaluate(intervals_of(generate_trace(trace_kind(kind), seed)), names, horizons, 60);
      std::map<std::string, double> relative;
      for (std::size_t i = 0; i < rows.size(); ++i)
        relative[rows[i].method] +=
            rows[i].crps / rows[i % horizons.size()].crps / static_cast<double>(horizons.size());
      const double chosen = relative.extract("auto").mapped();
      double best = 1e9;
      for (const auto& [name, value] : relative)
        best = std::min(best, value);
      EXPECT_LE(chosen / best, 1.03) << kind << ", seed " << seed;
      RecordProperty("auto_to_best_" + std::string(kind) + "_" + std::to_string(seed), std::to_string(chosen / best));
    }
  }
}

// On p3: no point forecast worse than the last value, and a better distribution than the last value spread by its past
// errors.
TEST(selector, on_the_published_trace) {
  PARCAE_NEEDS_PUBLISHED_FIGURES();
  const auto history = published::trace("p3");
  const std::vector<std::string> names{"last-spread", "last", "auto"};
  const std::vector<std::size_t> horizons{1, 4, 8, 12};
  const auto rows = evaluate(history, names, horizons, 30);
  for (std::size_t i = 0; i < horizons.size(); ++i) {
    const auto &spread = rows[i], &last = rows[horizons.size() + i], &chosen = rows[2 * horizons.size() + i];
    EXPECT_LE(chosen.mae, last.mae) << "horizon " << horizons[i];
    EXPECT_LT(chosen.crps, spread.crps) << "horizon " << horizons[i];
    EXPECT_LE(chosen.difference_low, chosen.difference);
    EXPECT_GE(chosen.difference_high, chosen.difference);
    RecordProperty("difference_" + std::to_string(horizons[i]),
                   std::to_string(chosen.difference_low) + " to " + std::to_string(chosen.difference_high));
  }
}

} // namespace
} // namespace parcae

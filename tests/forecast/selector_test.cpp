// Minutes on a busy machine, so apart from the quick tests: how the mix compares with its parts.

#include "planner/trace_generator.hpp"
#include "tests/forecast/relative_crps.hpp"
#include "tests/planner/published.hpp"

#include <gtest/gtest.h>

namespace parcae {
namespace {

// In the mean of a kind the mix is as good as the best single method; on single traces it may be behind by what it
// takes to learn which that is (calm ones have few events to learn from). And it is well below the last value spread by
// its errors.
TEST(selector, is_near_the_best_single_method_on_generated_traces) {
  double mean = 0;
  for (const char* kind : {"p3", "calm", "bursty", "collapsing"}) {
    std::map<std::string, double> of_kind;
    for (std::uint64_t seed : {1, 11}) {
      const auto relative = relative_crps(intervals_of(generate_trace(trace_kind(kind), seed)));
      for (const auto& [method, value] : relative)
        of_kind[method] += value;
      const double to_best = selector_to_best(relative);
      EXPECT_LE(to_best, 1.05) << kind << ", seed " << seed;
      mean += relative.at("auto") / 8;
      RecordProperty("auto_to_best_" + std::string(kind) + "_" + std::to_string(seed), std::to_string(to_best));
    }
    EXPECT_LE(selector_to_best(of_kind), 1.01) << kind;
  }
  RecordProperty("mean", std::to_string(mean));
  EXPECT_LT(mean, 0.92);
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

// Minutes on a busy machine, so apart from the quick tests: how the regime chain compares with the other methods.

#include "planner/simulation/trace_generator.hpp"
#include "tests/forecast/relative_crps.hpp"
#include "tests/planner/published.hpp"

#include <gtest/gtest.h>

namespace parcae {
namespace {

// given: two traces of each kind / expected: in the sum of a kind no other method is better, and on no single trace but
// `calm` ones, which have few events to learn from (tests/bench/RESULTS.md has by how much others are better there);
// the mean is well below the last value spread by its errors
TEST(regime_chain, is_ahead_of_other_methods_on_generated_traces) {
  double mean = 0;
  for (const char* kind : {"p3", "calm", "bursty", "collapsing"}) {
    std::map<std::string, double> of_kind;
    for (std::uint64_t seed : {1, 11}) {
      const auto relative = relative_crps(intervals_of(generate_trace(trace_kind(kind), seed)));
      for (const auto& [method, value] : relative)
        of_kind[method] += value;
      const double to_best = regime_to_best(relative);
      if (std::string(kind) != "calm") {
        EXPECT_LE(to_best, 1) << kind << ", seed " << seed;
      }
      mean += relative.at("regime") / 8;
      RecordProperty("regime_to_best_" + std::string(kind) + "_" + std::to_string(seed), std::to_string(to_best));
    }
    EXPECT_LE(regime_to_best(of_kind), 1) << kind;
  }
  RecordProperty("mean", std::to_string(mean));
  EXPECT_LT(mean, 0.92);
}

// On p3: no point forecast worse than the last value, and a better distribution than the last value spread by its past
// errors.
TEST(regime_chain, on_the_published_trace) {
  PARCAE_NEEDS_PUBLISHED_FIGURES();
  const auto history = published::trace("p3");
  const std::vector<std::string> names{"last-spread", "last", "regime"};
  const std::vector<std::size_t> horizons{1, 4, 8, 12};
  const auto rows = evaluate(history, names, horizons, 30);
  for (std::size_t i = 0; i < horizons.size(); ++i) {
    const auto &spread = rows[i], &last = rows[horizons.size() + i], &chain = rows[2 * horizons.size() + i];
    EXPECT_LE(chain.mae, last.mae) << "horizon " << horizons[i];
    EXPECT_LT(chain.crps, spread.crps) << "horizon " << horizons[i];
    EXPECT_LE(chain.difference_low, chain.difference);
    EXPECT_GE(chain.difference_high, chain.difference);
    RecordProperty("difference_" + std::to_string(horizons[i]),
                   std::to_string(chain.difference_low) + " to " + std::to_string(chain.difference_high));
  }
}

} // namespace
} // namespace parcae

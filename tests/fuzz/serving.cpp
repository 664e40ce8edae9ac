// Profiles of served models, and arrivals of requests.

#include "planner/cost/profile.hpp"
#include "planner/serving/arrivals.hpp"
#include "planner/serving/pass_model.hpp"
#include "planner/serving/spotserve.hpp"
#include "tests/fuzz/fuzz.hpp"

#include <cmath>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  using namespace parcae::serving;
  const auto text = as_text(data, size);
  try {
    const auto x = parse_serving_profile(text);
    for (const auto& [degree, batches] : x.layer_by_degree)
      promise(x.max_batch() == 1u << (batches.size() - 1), "each degree has all batches");
    const auto found = spotserve_choose(x, 16, {2, 8, 1, 16});
    promise(!found || (found->width > 0 && found->total_ms > 0), "a choice has pipelines that take time");
    promise(passes_of(x).times(1, 1, 64).stage_ms[64] >= 0, "no stage takes less than nothing");
  } catch (const parse_error&) {
  }
  try {
    if (is_passes(text))
      promise(parse_passes(text).times(1, 1, 64).stage_ms[64] >= 0, "no stage takes less than nothing");
  } catch (const parse_error&) {
  }
  try {
    double before = 0;
    for (const auto& x : parse_arrivals(text, {})) {
      promise(x.ms >= before && x.lengths.prompt > 0 && x.lengths.tokens > 0, "requests come in order, none is empty");
      before = x.ms;
    }
  } catch (const parse_error&) {
  }
  try {
    if (const auto law = parse_arrival_law(text))
      for (const auto& x : draw_arrivals(*law, {{1, 1}}, 20, 1))
        promise(std::isfinite(x.ms) && x.ms >= 0, "times are finite");
  } catch (const parse_error&) {
  }
  return 0;
}

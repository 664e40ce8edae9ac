// Spans as a file of trace events.

#include "runtime/view/step_trace.hpp"
#include "tests/support/names.hpp"
#include "tests/support/trace_events.hpp"

namespace parcae {
namespace {

/// A step of two micro-batches on a rank of two stages; its clock is `late` behind the other's.
rank_trace step_of(std::uint32_t rank, std::uint64_t step, std::uint64_t late) {
  rank_trace x;
  x.rank = rank;
  x.step = step;
  auto at = 1'000'000 * step + 5'000 - late;
  const auto add = [&](step_part part, std::uint64_t ns, std::uint32_t micro_batch = step_span::no_micro_batch) {
    x.spans.push_back({part, micro_batch, at, ns});
    at += ns;
  };
  const bool first = rank % 2 == 0;
  if (!first)
    add(step_part::pipeline, 1'000, 0);
  for (const std::uint32_t i : {0, 1}) {
    add(step_part::forward, 1'000, i);
    if (!first) {
      add(step_part::backward, 500, i);
      add(step_part::recompute, 200, i);
      add(step_part::backward, 300, i);
    }
  }
  if (first) {
    add(step_part::pipeline, 2'500, 0);
    add(step_part::backward, 500, 0);
    add(step_part::backward, 500, 1);
  }
  add(step_part::exchange, 100'000 - (at - (1'000'000 * step + 5'000 - late)));
  add(step_part::optimizer, 3'001);
  return x;
}

trace_reply two_pipelines() {
  trace_reply x{.job = 3, .generation = 4, .steps = 2, .depth = 2, .slots = {"a/0", "b/0", "c/0", "d/0"}, .traces = {}};
  for (const std::uint64_t step : {7, 8})
    for (const std::uint32_t rank : {1, 0, 3, 2})
      x.traces.push_back(step_of(rank, step, 100 * rank));
  return x;
}

// given: two steps of two pipelines of two stages, whose clocks differ / expected: the rules of the format; a row for
// each slot, whose steps are at the same time; each span as long as it was; a flow for each micro-batch, step and
// direction
TEST(step_trace, is_a_file_of_trace_events) {
  const auto x = checked_trace_events(trace_events_of(two_pipelines()));
  EXPECT_THAT(x.names, UnorderedElementsAre(Pair(Pair(1, 1), "stage 0: a/0"), Pair(Pair(1, 2), "stage 1: b/0"),
                                            Pair(Pair(2, 1), "stage 0: c/0"), Pair(Pair(2, 2), "stage 1: d/0")));
  EXPECT_THAT(x.flows, UnorderedElementsAre(Pair("activation", 8), Pair("gradient", 8)));
  for (const auto& [where, all] : x.slices) {
    EXPECT_NEAR(x.ms_of(where, "forward"), 4e-3, 1e-9);
    EXPECT_NEAR(x.ms_of(where, "optimizer"), 6.002e-3, 1e-9);
    EXPECT_NEAR(x.ms_of(where, "step 7"), 0.103001, 1e-9);
    EXPECT_EQ(all.front().name, "step 7");
    EXPECT_EQ(all.front().from, 0);
  }
}

// given: a slot that told of nothing, one that told of what is no rank, a step without a span / expected: the rest
TEST(step_trace, leaves_out_what_is_not_there) {
  auto x = two_pipelines();
  std::erase_if(x.traces, [](const auto& trace) { return trace.rank == 1; });
  x.traces.push_back(step_of(1'000'000, 7, 0));
  x.traces.push_back({{9, {}, false}, 0});
  const auto there = checked_trace_events(trace_events_of(x));
  EXPECT_EQ(there.slices.size(), 3u);
  EXPECT_THAT(there.flows, UnorderedElementsAre(Pair("activation", 4), Pair("gradient", 4)));
  EXPECT_THAT(trace_events_of({}), HasSubstr("\"traceEvents\":[]"));
}

} // namespace
} // namespace parcae

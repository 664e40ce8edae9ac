// Where a step's time goes: parts and spans add up to it, on every kind of job, wherever its stages are.

#include "gpu/plugin/plugins.hpp"
#include "gpu/training/step_ledger.hpp"
#include "protocols/base/enum_text.hpp"
#include "protocols/model/exported_model.hpp"
#include "tests/gpu/training/short_job.hpp"
#include "tests/support/executor_cluster.hpp"
#include "tests/support/fake_device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace parcae {
namespace {

/// What a rank said of its steps.
struct told {
  std::uint64_t steps = 0;
  double wall_ms = 0; ///< of all of them
  step_parts parts;   ///< likewise
  std::vector<step_trace> traces;

  void add(const progress& x) {
    const auto n = static_cast<double>(x.at.steps - steps);
    steps = x.at.steps;
    wall_ms += n * x.step_ms;
    for (const auto member : members_of_step_parts)
      parts.*member += n * x.parts.*member;
  }
};

std::string text_of(const step_parts& x) {
  std::string result;
  for (std::size_t i = 0; i < step_part_count; ++i)
    result +=
        std::string(enum_name(static_cast<step_part>(i))) + " " + std::to_string(x.*members_of_step_parts[i]) + ", ";
  return result;
}

#ifndef PARCAE_EXPORTED_MODELS
/// The example's, of layers in a shared library.
model_specification model_of_plugin() {
  static const auto digest = open_plugin(PARCAE_MIXER_PLUGIN);
  model_specification result{.kind = "plugin", .path = "mixer.json"};
  take_described_plugin(result, describe_plugin_model(digest, "mixer", {{"width", "32"}, {"depth", "3"}}));
  return result;
}
#endif

job_specification job_of(const std::string& kind) {
#ifdef PARCAE_EXPORTED_MODELS
  auto job = short_job("gpt");
  job.model = {.kind = "exported"};
  job.model.path = (std::filesystem::path(PARCAE_EXPORTED_MODELS) / kind).string();
  take_exported_model(job.model);
  if (kind == "resnet18")
    job.data = {.kind = "synthetic", .samples = 100};
#else
  auto job = short_job(kind); // gpt if it is no kind
  job.recompute = kind == "recompute";
  if (kind == "plugin") {
    job.model = model_of_plugin();
    job.data = {.kind = "synthetic", .samples = 100};
  }
#endif
  job.steps = 8;
  return job;
}

/// Runs the job to its end in one shape, all of it traced. By slot. No step begins before all are told to trace it.
std::map<std::string, told> run(const job_specification& job, std::uint32_t width, std::uint32_t depth,
                                const worker_kind& workers = {}) {
  know_fake_devices(); // before autograd makes its threads
  std::map<std::string, told> result;
  std::set<slot_id> traced_ones;
  std::promise<void> all_told;
  const fault_plan waits = [begins = all_told.get_future().share()](const fault_point& at) {
    if (std::string_view(at.phase) == "activate") {
      EXPECT_EQ(begins.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    }
    return fault_action::none;
  };
  executor_cluster cluster(job);
  cluster.workers = workers;
  cluster.keep_shape(width, depth);
  cluster.on_report = [&](const slot_id& from, const report& x) {
    if (const auto* p = std::get_if<progress>(&x))
      result[to_string(from)].add(*p);
    else if (const auto* t = std::get_if<parcae::traced>(&x))
      result[to_string(from)].traces.push_back(t->what);
  };
  cluster.on_effect = [&](const effect& x) {
    const auto* t = std::get_if<tell>(&x);
    const auto* a = t ? std::get_if<activate>(t->what.get()) : nullptr;
    if (!a)
      return true;
    cluster.submit(t->to, *t->what);
    cluster.submit(t->to, trace_steps{a->next, trace_steps::most});
    if (traced_ones.insert(t->to).second && traced_ones.size() == width * depth)
      all_told.set_value();
    return false;
  };
  cluster.add_keeper("keeper");
  for (std::uint32_t i = 0; i < width * depth; ++i)
    cluster.add_worker("w" + std::to_string(i), waits);
  EXPECT_TRUE(cluster.run_until_ended()) << cluster.log().back();
  return result;
}

/// Of the step that has least: a busy machine may hold a thread up anywhere, and what no part counts is in each.
double least_of_other(const told& x) {
  std::vector<double> shares;
  for (const auto& trace : x.traces) {
    double all = 0, other = 0;
    for (const auto& span : trace.spans) {
      all += static_cast<double>(span.ns);
      other += span.part == step_part::other ? static_cast<double>(span.ns) : 0;
    }
    shares.push_back(other / all);
  }
  return *std::ranges::min_element(shares);
}

class step_parts_test
    : public testing::TestWithParam<std::tuple<const char*, std::pair<std::uint32_t, std::uint32_t>>> {};

// given: a job in a shape / expected: on each rank the named parts are all of its steps but 2 %; parts that there are
// are more than nothing, others are nothing
TEST_P(step_parts_test, add_up_to_the_step) {
  const auto [kind, shape] = GetParam();
  const auto [width, depth] = shape;
  const auto job = job_of(kind);
  ASSERT_EQ(problem_of(job), "");
  const auto slots = run(job, width, depth);
  ASSERT_EQ(slots.size(), width * depth);
  for (const auto& [slot, x] : slots) {
    SCOPED_TRACE(slot + ": " + text_of(x.parts) + "of " + std::to_string(x.wall_ms));
    ASSERT_EQ(x.steps, job.steps);
    EXPECT_NEAR(total_ms(x.parts), x.wall_ms, 0.02 * x.wall_ms);
    EXPECT_LE(least_of_other(x), 0.02);
    for (const auto part : {step_part::forward, step_part::backward, step_part::optimizer, step_part::snapshot})
      EXPECT_GT(part_of(x.parts, part), 0) << enum_name(part);
    EXPECT_EQ(x.parts.recompute_ms > 0, job.recompute);
    EXPECT_EQ(x.parts.pipeline_ms + x.parts.transfer_ms > 0, depth > 1);
  }
}

#ifdef PARCAE_EXPORTED_MODELS
const auto kinds = testing::Values("gpt2_dropout", "resnet18");
#else
const auto kinds = testing::Values("gpt", "recompute", "mlp", "bert", "resnet", "vgg", "plugin");
#endif
std::string name_of(const testing::TestParamInfo<step_parts_test::ParamType>& x) {
  const auto& [kind, shape] = x.param;
  return std::string(kind) + "_" + std::to_string(shape.first) + "x" + std::to_string(shape.second);
}

INSTANTIATE_TEST_SUITE_P(kinds, step_parts_test,
                         testing::Combine(kinds, testing::Values(std::pair(1u, 1u), std::pair(2u, 1u),
                                                                 std::pair(1u, 2u), std::pair(2u, 2u))),
                         name_of);

#ifndef PARCAE_EXPORTED_MODELS
/// What it costs a thread to go from one part to another.
double ms_of_change() {
  constexpr int changes = 200'000;
  step_ledger ledger(nullptr);
  ledger.start();
  const auto from = std::chrono::steady_clock::now();
  for (int i = 0; i < changes / 2; ++i)
    const auto part = ledger.in(step_part::forward);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - from).count() / changes;
}

// given: all steps of a job on two pipelines of two stages are traced / expected: each rank tells all of them, in
// order; their spans are as long as the parts it reports, and each micro-batch of its pipeline is in them. So many
// changes of part cost less than 0.5 % of the step: their number times what one costs
TEST(step_spans, are_as_long_as_the_parts) {
  const auto job = job_of("gpt");
  const auto slots = run(job, 2, 2);
  ASSERT_EQ(slots.size(), 4u);
  for (const auto& [slot, x] : slots) {
    SCOPED_TRACE(slot);
    ASSERT_EQ(x.traces.size(), job.steps);
    step_parts sums;
    std::size_t changes = 0;
    for (std::uint64_t step = 0; step < job.steps; ++step) {
      EXPECT_EQ(x.traces[step].step, step);
      EXPECT_FALSE(x.traces[step].is_cut);
      std::set<std::uint32_t> forward;
      for (const auto& span : x.traces[step].spans) {
        sums.*members_of_step_parts[static_cast<std::size_t>(span.part)] += static_cast<double>(span.ns) / 1e6;
        if (span.part == step_part::forward)
          forward.insert(span.micro_batch);
      }
      EXPECT_EQ(forward.size(), job.micro_batches() / 2);
      changes += x.traces[step].spans.size();
    }
    for (std::size_t i = 0; i < step_part_count; ++i)
      EXPECT_NEAR(sums.*members_of_step_parts[i], x.parts.*members_of_step_parts[i], 0.02) << text_of(sums);
    const auto cost = ms_of_change() * static_cast<double>(changes);
    EXPECT_LE(cost, 0.005 * x.wall_ms) << changes << " changes";
  }
}

// given: the same on fake devices / expected: steps of the devices' time, each behind the one before, in which all is
// what it is on a processor
TEST(step_spans, are_of_the_time_of_a_device) {
  const auto job = job_of("gpt");
  const auto slots = run(job, 2, 2, {[](std::uint64_t n) { return &fake_device(static_cast<std::uint32_t>(n / 2)); }});
  ASSERT_EQ(slots.size(), 4u);
  for (const auto& [slot, x] : slots) {
    SCOPED_TRACE(slot);
    ASSERT_GE(x.traces.size(), job.steps / 2) << "what a device has not done when the job ends is not told";
    std::uint64_t end = 0;
    for (const auto& trace : x.traces)
      for (const auto& span : trace.spans) {
        EXPECT_GE(span.from_ns + 1'000, end);
        end = span.from_ns + span.ns;
      }
    for (const auto part : {step_part::forward, step_part::backward, step_part::optimizer, step_part::exchange})
      EXPECT_GT(part_of(x.parts, part), 0) << enum_name(part);
    EXPECT_LE(least_of_other(x), 0.1);
  }
}
#endif

} // namespace
} // namespace parcae

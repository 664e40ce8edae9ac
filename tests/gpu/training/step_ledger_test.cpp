// Where a step's time goes, of a thread and of a device.

#include "gpu/training/step_ledger.hpp"
#include "tests/support/fake_device.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace parcae {
namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

double ms_since(steady::time_point x) {
  return std::chrono::duration<double, std::milli>(steady::now() - x).count();
}

// given: a step with stays within stays, one of which is no part of it / expected: each part has at least what was
// slept there, and together they are what the clock says, without what is no part
TEST(step_ledger, parts_of_a_thread_add_up) {
  step_ledger ledger(nullptr);
  const auto began = steady::now();
  ledger.start();
  double outside = 0;
  {
    const auto whole = ledger.in(step_part::exchange);
    std::this_thread::sleep_for(4ms);
    {
      const auto part = ledger.in(step_part::data, 3);
      std::this_thread::sleep_for(6ms);
    }
    const auto from = steady::now();
    {
      const auto none = ledger.outside();
      std::this_thread::sleep_for(8ms);
    }
    outside = ms_since(from);
  }
  ledger.end_step(0);
  const auto whole = ms_since(began);
  const auto x = ledger.take();
  ASSERT_TRUE(x);
  EXPECT_GE(x->exchange_ms, 4);
  EXPECT_GE(x->data_ms, 6);
  EXPECT_EQ(x->forward_ms, 0);
  EXPECT_NEAR(total_ms(*x), whole - outside, 1);
  EXPECT_FALSE(ledger.take());
}

// given: a thread that computes for a while and then has no core for 5 ms, in parts that compute, one within the other,
// and in one that waits / expected: of those that compute that is `core`, and what they computed is theirs; of the one
// that waits nothing is
TEST(step_ledger, a_thread_without_a_core_does_not_compute) {
  step_ledger ledger(nullptr);
  ledger.start();
  const auto compute = [] {
    for (const auto from = thread_cpu_ms(); thread_cpu_ms() - from < 3;) {
    }
    std::this_thread::sleep_for(5ms);
  };
  {
    const auto whole = ledger.in(step_part::backward);
    compute();
    {
      const auto part = ledger.in(step_part::recompute);
      compute();
    }
    compute();
    const auto waits = ledger.in(step_part::reduction);
    compute();
  }
  ledger.end_step(0);
  const auto x = ledger.take().value();
  EXPECT_NEAR(x.backward_ms, 6, 0.5);
  EXPECT_NEAR(x.recompute_ms, 3, 0.5);
  EXPECT_GE(x.core_ms, 15);
  EXPECT_GE(x.reduction_ms, 8);
}

// given: the end of a stay was another part, longer than it or not / expected: it is charged there, the stay no less
// than nothing
TEST(step_ledger, the_end_of_a_stay_may_be_another_part) {
  for (const auto last : {2ms, 1000ms}) {
    step_ledger ledger(nullptr);
    ledger.start();
    {
      const auto part = ledger.in(step_part::pipeline);
      std::this_thread::sleep_for(5ms);
      ledger.was_in(step_part::transfer, last);
    }
    ledger.end_step(0);
    const auto x = ledger.take().value();
    EXPECT_GE(x.pipeline_ms + x.transfer_ms, 5);
    if (last == 2ms) {
      EXPECT_DOUBLE_EQ(x.transfer_ms, 2);
    } else {
      EXPECT_EQ(x.pipeline_ms, 0);
    }
  }
}

// given: two of four steps are to be kept / expected: their spans, in order, without gaps, as long as their parts; a
// step of more spans than are kept says so
TEST(step_ledger, keeps_spans_of_the_steps_asked_for) {
  step_ledger ledger(nullptr);
  ledger.start();
  std::vector<step_parts> parts;
  for (std::uint64_t step = 0; step < 4; ++step) {
    if (step == 1)
      ledger.trace(2);
    for (std::uint32_t i = 0; i < (step == 2 ? step_trace::max_spans : 2); ++i) {
      const auto part = ledger.in(step_part::forward, i);
      std::this_thread::sleep_for(1us);
    }
    ledger.end_step(step);
    parts.push_back(ledger.take().value());
  }
  const auto first = ledger.take_trace(), second = ledger.take_trace();
  ASSERT_TRUE(first && second && !ledger.take_trace());
  EXPECT_EQ(first->step, 1u);
  EXPECT_FALSE(first->is_cut);
  double sum = 0;
  for (std::size_t i = 0; i < first->spans.size(); ++i) {
    const auto& x = first->spans[i];
    sum += static_cast<double>(x.ns) / 1e6;
    if (i > 0) {
      EXPECT_EQ(x.from_ns, first->spans[i - 1].from_ns + first->spans[i - 1].ns);
    }
  }
  EXPECT_NEAR(sum, total_ms(parts[1]), 1e-3);
  EXPECT_EQ(first->spans[1].micro_batch, 0u);
  EXPECT_EQ(second->step, 2u);
  EXPECT_TRUE(second->is_cut);
  EXPECT_EQ(second->spans.size(), step_trace::max_spans);
}

// given: a device that copies in two parts of a step / expected: nothing is told before it is done; then the parts are
// all of the device's time
TEST(step_ledger, counts_the_time_of_a_device) {
  constexpr std::size_t bytes = 1 << 20;
  device& on = fake_device(0);
  const device_memory memory = on.allocate(bytes), pinned = on.allocate_pinned(bytes);
  const auto stream = on.make_stream();
  step_ledger ledger(stream.get());
  const auto began = stream->record_time();
  ledger.start();
  for (const auto part : {step_part::forward, step_part::optimizer}) {
    const auto stay = ledger.in(part);
    for (int i = 0; i < 50; ++i)
      stream->copy(memory.get(), pinned.get(), bytes);
  }
  ledger.end_step(0);
  const auto early = ledger.take();
  const auto ended = stream->record_time();
  const bool was_early = !ended->done();
  ASSERT_TRUE(ended->wait(10s));
  ledger.end_step(1);
  ASSERT_TRUE(stream->record()->wait(10s));
  ledger.end_step(2);
  EXPECT_FALSE(was_early && early);
  const auto x = early ? early : ledger.take();
  ASSERT_TRUE(x);
  EXPECT_GT(x->forward_ms, 0);
  EXPECT_GT(x->optimizer_ms, 0);
  EXPECT_LE(x->forward_ms, ended->ms_since(*began));
}

} // namespace
} // namespace parcae

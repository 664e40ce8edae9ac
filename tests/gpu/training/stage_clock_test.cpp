// What passes take of a device, whose work comes late.

#include "gpu/training/stage_clock.hpp"
#include "tests/support/fake_device.hpp"

#include <gtest/gtest.h>

namespace parcae {
namespace {

using namespace std::chrono_literals;

struct stage_clock_test : testing::Test {
  /// Some work of the device.
  void copy() { stream_->copy(memory_.get(), pinned_.get(), bytes); }

  void wait() { ASSERT_TRUE(stream_->record()->wait(10s)); }

  static constexpr std::size_t bytes = 1 << 20;
  device& on_ = fake_device(0);
  const device_memory memory_ = on_.allocate(bytes), pinned_ = on_.allocate_pinned(bytes);
  const std::unique_ptr<stream> stream_ = on_.make_stream();
};

// given: three passes of two layers / expected: means of what each layer's work took, once it is done, together no more
// than from the first to the last; and no differences for a thread that slept
TEST_F(stage_clock_test, counts_the_time_of_a_device) {
  stage_clock clock(5, 7, 0us, stream_.get());
  clock.start();
  const auto begun = stream_->record_time();
  for (int i = 0; i < 3; ++i) {
    clock.begin(pass_kind::forward);
    for (const std::uint32_t layer : {5, 6}) {
      const auto time = clock.of_layer(layer, pass_kind::forward);
      copy();
    }
  }
  clock.end_step();
  const auto ended = stream_->record_time();
  wait();
  const auto x = clock.take();
  ASSERT_EQ(x.layers.size(), 2u);
  EXPECT_EQ(x.layers[1].layer, 6u);
  EXPECT_GT(x.layers[0].all.forward_ms, 0);
  EXPECT_GT(x.layers[1].all.forward_ms, 0);
  EXPECT_LE(3 * (x.layers[0].all.forward_ms + x.layers[1].all.forward_ms), ended->ms_since(*begun) + 1e-6);
  EXPECT_EQ(x.layers[0].awake.forward_ms, x.layers[0].all.forward_ms);
  EXPECT_EQ(x.layers[0].waking.forward_ms, 0);
  EXPECT_EQ(x.layers[0].all.backward_ms, 0);
}

// given: a pass that is not done when times are taken / expected: nobody waits for it; it is in the next times, whole
TEST_F(stage_clock_test, what_is_not_done_counts_later) {
  stage_clock clock(0, 1, 0us, stream_.get());
  clock.start();
  clock.begin(pass_kind::apply);
  {
    const auto time = clock.of_layer(0, pass_kind::apply);
    for (int j = 0; j < 50; ++j)
      copy();
  }
  const auto end = stream_->record();
  const auto early = clock.take();
  const bool was_early = !end->done();
  wait();
  const auto late = clock.take();
  EXPECT_TRUE(was_early);
  if (was_early) {
    EXPECT_EQ(early.layers[0].all.optimizer_ms, 0);
    EXPECT_GT(late.layers[0].all.optimizer_ms, 0);
  }
}

} // namespace
} // namespace parcae

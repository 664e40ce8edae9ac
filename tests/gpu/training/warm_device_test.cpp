// Layers that go ahead of a change, from devices or to them, where there is no memory for that. Fake devices.

#include "tests/actors/conductor/failure_schedule.hpp"
#include "tests/gpu/training/short_job.hpp"
#include "tests/support/fake_device.hpp"

#include <atomic>
#include <optional>
#include <string>
#include <string_view>

namespace parcae {
namespace {

device& device_of(std::uint64_t slot) {
  know_fake_devices();
  return fake_device(static_cast<std::uint32_t>(slot));
}

/// w0 trains on device 2, w1 joins on device 3: the keeper is the first slot.
class warm_device : public failure_schedule {
protected:
  void begin_warm(job_specification job) {
    job.steps = 16;
    conductor_options options;
    options.feed_from = std::chrono::milliseconds(0);
    begin({{1, 1}, {1, 2}}, job, {}, options);
    cluster_->workers.on = [](std::uint64_t n) { return &device_of(n); };
    on_told<warm>([this] {
      warms_ = true;
      told_.reach();
    });
  }

  /// The source is at its sixth step when WARM is told.
  void train_on(const fault_plan& source, fault_plan destination) {
    cluster_->add_worker(
        "w0", [this, source, waits = after({&told_}, fault_action::none, "forward", 5)](const fault_point& at) {
          waits(at);
          return source(at);
        });
    ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().steps_done >= 1; }));
    cluster_->add_worker("w1", std::move(destination));
    ASSERT_TRUE(cluster_->run_until_ended()) << to_string(cluster_->view().now) << " " << cluster_->log().back();
    EXPECT_EQ(cluster_->final_digest(), undisturbed_digest(job_, {[](std::uint64_t n) { return &device_of(2 + n); }}));
    EXPECT_EQ(cluster_->view().replayed_steps, 0u);
  }

  /// Nobody went on without memory, and every shortage was told, once.
  static void expect_told(const device& x) {
    EXPECT_GT(x.shortages(), 0u);
    EXPECT_EQ(x.told_shortages(), x.shortages());
  }

  std::atomic<bool> warms_ = false;
  shared_moment told_; ///< WARM
};

class full_source : public warm_device, public testing::WithParamInterface<const char*> {};

// given: who trains has no memory for copies of layers, nor, if they have them, of running statistics, of which some go
// ahead; it has it for a step / expected: what began to be followed is, the rest is moved after the stop, and no step
// ends for that
TEST_P(full_source, moves_the_rest_after_the_stop) {
  auto job = small_job_of(GetParam());
  const auto layers = describe(job.model).layers.size();
  begin_warm(job);
  std::optional<little_memory> card;
  std::atomic<int> received = 0;
  train_on(
      [&](const fault_point& at) { // on its training thread
        if (warms_ && at.phase == std::string_view("apply") && at.index == layers)
          card.emplace(device_of(2), 0, 0);
        if (at.phase == std::string_view("committed"))
          card.reset();
        return at_a_pace(at);
      },
      [&](const fault_point& at) {
        received += at.phase == std::string_view("transfer_receive");
        return fault_action::none;
      });
  EXPECT_TRUE(decided("generation 2 is warm"));
  EXPECT_GT(received, 0);
  expect_told(device_of(2));
}

INSTANTIATE_TEST_SUITE_P(kinds, full_source, testing::Values("gpt", "resnet"));

// given: who is to follow has no memory for a gradient / expected: the change is given up, whether it says why first or
// the source that it hung up; g trains on, and it has its place later
TEST_F(warm_device, a_destination_that_is_full) {
  begin_warm(small_job_of("gpt"));
  std::optional<little_memory> card;
  cluster_->on_report = [&](const slot_id&, const report& x) {
    if (std::holds_alternative<failed>(x))
      card.reset();
  };
  train_on(at_a_pace, [&, done = std::make_shared<std::atomic<bool>>(false)](const fault_point& at) {
    if (at.phase == std::string_view("follow_base") && !done->exchange(true))
      card.emplace(device_of(3), 0, 0);
    return fault_action::none;
  });
  EXPECT_TRUE(decided("change given up"));
  EXPECT_FALSE(decided("generation 1 ends"));
  expect_told(device_of(3));
}

} // namespace
} // namespace parcae

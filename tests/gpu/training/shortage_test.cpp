// What an executor does when LibTorch finds no memory on its device: what ended for it is reported, and what went on
// without is never said to anybody.

#include "protocols/model/model_description.hpp"
#include "tests/gpu/training/short_job.hpp"
#include "tests/gpu/training/stage_executor_fixture.hpp"
#include "tests/support/fake_device.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace parcae::rig {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A job with convolutions. A device that once did without memory does so for the whole process: each test has its own.
class shortage_test : public stage_executor_test {
protected:
  shortage_test() {
    know_fake_devices();
    job.model = small_job_of("resnet").model;
    job.data = small_job_of("resnet").data;
  }
  ~shortage_test() override { watch_work({}); }

  prepare alone(std::uint64_t g, const worker& w) {
    auto x = plan(g, {&w});
    x.target.first_layer = {0, static_cast<std::uint32_t>(describe(job.model).layers.size())};
    return x;
  }

  /// The worker's fault points say which step it is at.
  void follow(worker& w, std::function<void(const fault_point&)> more = {}) {
    w.at_fault_points([this, more](const fault_point& x) {
      step = x.step;
      if (x.phase == std::string_view("committed"))
        committed = x.step;
      if (more)
        more(x);
    });
  }

  /// The first such operation of a step goes on without memory that it asked for.
  void go_without(std::uint32_t device, const std::string& operation, std::uint64_t in) {
    watch_work([=, this, once = std::make_shared<std::atomic<bool>>(false)](std::uint32_t number,
                                                                            const std::string& name, const auto&) {
      if (number == device && name == operation && step == in && !once->exchange(true))
        run_short(fake_device(device));
    });
  }

  void expect_three_more_steps() {
    const auto before = committed.load();
    EXPECT_TRUE(eventually([&] { return committed >= before + 3; }));
  }

  std::atomic<std::uint64_t> step = 0, committed = 0; ///< of what was begun; so many were committed
};

class shortage_of_operations : public shortage_test, public ::testing::WithParamInterface<const char*> {};

// given: a convolution of the fourth step, forward or backward, that takes another way for want of memory / expected:
// that step comes to nothing, and the process is to end, told once and why
TEST_P(shortage_of_operations, gone_without_spoils_the_step) {
  const std::uint32_t number = GetParam() == std::string_view("convolution") ? 9 : 10;
  worker w("w", {}, &fake_device(number));
  follow(w);
  go_without(number, GetParam(), 3);
  prepare_and_start(w, alone(1, w));
  const auto said = w.said.next<failed>();
  EXPECT_EQ(said.kind, failure::computation);
  EXPECT_THAT(w.reasons_to_end(), ElementsAre(said.what));
  EXPECT_THAT(said.what, HasSubstr("privateuseone:" + std::to_string(number) + " had no memory"));
  EXPECT_EQ(committed, 3u);
}
INSTANTIATE_TEST_SUITE_P(both_ways, shortage_of_operations, ::testing::Values("convolution", "convolution_backward"),
                         [](const auto& x) { return std::string(x.param); });

// given: the same, in a step that is aborted / expected: the next generation's first step comes to nothing, as the
// process goes on to compute in that way
TEST_F(shortage_test, gone_without_spoils_generations_to_come) {
  worker w("w", {}, &fake_device(11));
  gate at_end;
  follow(w, [&](const fault_point& x) {
    if (x.at.value == 1 && x.step == 1 && x.phase == std::string_view("backward"))
      at_end.pass();
  });
  go_without(11, "convolution", 1);
  const auto first = alone(1, w), second = alone(2, w);
  prepare_and_start(w, first);
  ASSERT_TRUE(at_end.wait_until_reached());
  w.work->submit(abort_generation{first.next});
  at_end.open();
  const auto at = w.said.next<aborted>().at;
  EXPECT_EQ(at.steps, 1u);
  EXPECT_THAT(w.reasons_to_end(), IsEmpty());
  prepare_and_start(w, second, at);
  w.said.next<failed>();
  EXPECT_EQ(w.reasons_to_end().size(), 1u);
  EXPECT_EQ(committed, 1u);
}

// given: the same in an evaluation / expected: nobody hears its losses
TEST_F(shortage_test, gone_without_spoils_an_evaluation) {
  job.evaluate_every = 2;
  job.data.validation = 8;
  worker w("w", {}, &fake_device(12));
  bool evaluates = false;
  follow(w, [&](const fault_point& x) {
    if (x.phase == std::string_view("evaluate") && !std::exchange(evaluates, true))
      run_short(fake_device(12));
  });
  prepare_and_start(w, alone(1, w));
  for (;;) {
    const auto said = w.said.next_word();
    ASSERT_FALSE(std::holds_alternative<evaluated>(said));
    if (std::holds_alternative<failed>(said))
      break;
  }
  EXPECT_TRUE(evaluates);
  EXPECT_EQ(w.reasons_to_end().size(), 1u);
}

// given: a step that ends for want of memory / expected: that is reported, and the next generation trains: whoever
// asked did not go on
TEST_F(shortage_test, what_ends_for_it_is_reported) {
  worker w("w", {}, &fake_device(13));
  std::optional<little_memory> card;
  follow(w, [&](const fault_point& x) {
    if (x.at.value == 1 && x.step == 2 && x.phase == std::string_view("forward") && !card)
      card.emplace(fake_device(13), 0, 0);
  });
  const auto first = alone(1, w);
  prepare_and_start(w, first);
  const auto said = w.said.next<failed>();
  EXPECT_THAT(said.what, HasSubstr("a fake device is full"));
  w.work->submit(abort_generation{first.next});
  const auto at = w.said.next<aborted>().at;
  card.reset();
  prepare_and_start(w, alone(2, w), at);
  expect_three_more_steps();
  EXPECT_THAT(w.reasons_to_end(), IsEmpty());
}

// given: a PREPARE for which there is no memory while a generation trains, and a snapshot whose copy finds none /
// expected: the former fails, the latter leaves from the state, and that generation goes on
TEST_F(shortage_test, what_may_find_none_leaves_training_alone) {
  job.keeper_every = 1;
  auto& on = fake_device(14);
  worker w("w", {}, &on, 1, std::uint64_t{8} << 30), v("v", {}, &fake_device(15));
  gate between;
  std::optional<little_memory> card;
  std::atomic<std::uint64_t> snapshots = 0;
  follow(w, [&](const fault_point& x) {
    if (x.phase == std::string_view("committed") && x.step == 1) { // behind which the first snapshot leaves
      card.emplace(on, 0, 0);
      between.pass();
    }
    if (x.phase == std::string_view("snapshot")) {
      ++snapshots;
      card.reset();
    }
  });
  const keeper_share nobody{{{"keeper", {1}, 0}, "127.0.0.1", v.port->port()}, {0, 1}};
  w.work->submit(protect{{1}, {nobody}, permit_of({{5}}, {"sender", {3}, 0}), false});
  prepare_and_start(w, alone(1, w));
  ASSERT_TRUE(between.wait_until_reached());
  auto next = plan(2, {&w, &v});
  next.target.first_layer = {0, static_cast<std::uint32_t>(describe(job.model).layers.size())};
  for (std::uint32_t layer = 0; layer < next.target.first_layer.back(); ++layer)
    next.moves.push_back({layer, 1, 0});
  w.work->submit(next);
  EXPECT_THAT(w.said.next<failed>().what, HasSubstr("a fake device is full"));
  card.emplace(on, std::size_t{1} << 10, 0); // enough to see whether all is finite, not for a layer
  between.open();
  expect_three_more_steps();
  EXPECT_GE(snapshots, 1u);
  EXPECT_GT(on.shortages(), 1u);
  EXPECT_THAT(w.reasons_to_end(), IsEmpty());
}

} // namespace
} // namespace parcae::rig

// When a device is given up, or a process, with executors that do what the test says.

#include "gpu/device/device.hpp"
#include "runtime/node/device_watch.hpp"
#include "runtime/node/retirement.hpp"
#include "tests/support/names.hpp"
#include "tests/support/slow_stream.hpp"

#include <future>
#include <string>
#include <vector>

namespace parcae {
namespace {

class some_device final : public device {
public:
  const device_facts& facts() const override { return facts_; }
  device_memory allocate(std::size_t) override { throw device_error("no memory"); }
  device_memory allocate_pinned(std::size_t) override { throw device_error("no memory"); }
  std::unique_ptr<stream> make_stream() override { throw device_error("no stream"); }
  stream& compute() override {
    return is_sick ? throw device_error("an illegal memory access was encountered") : compute_;
  }

  bool is_sick = false;
  std::atomic<bool>& ends = compute_.open; ///< else nothing that it is given does

private:
  const device_facts facts_{"cuda", "cuda:3", "", "", 0, false};
  const std::unique_ptr<device> healthy_ = make_cpu_device({"cpu", "cpu", "", "", 0, true});
  slow_stream compute_{healthy_->compute()};
};

struct device_watch : testing::Test {
  /// Answers an ABORT if it shall.
  class silent_executor final : public executor {
  public:
    silent_executor(device_watch& test, executor_options options) : test_(test), options_(std::move(options)) {
      test_.say = options_.report_to;
    }
    void submit(command x) override {
      if (const auto* a = std::get_if<abort_generation>(&x); a && test_.answers)
        options_.report_to(aborted{a->current, {}, no_step, {}, {}});
    }
    void want_snapshot() override { ++test_.snapshots; }

  private:
    device_watch& test_;
    const executor_options options_;
  };

  std::unique_ptr<executor> make(const device_limits& limits) {
    executor_options options;
    options.on = &on;
    options.report_to = [](const report&) {};
    return make_watched_executor(
        std::move(options),
        [this](executor_options x) { return std::make_unique<silent_executor>(*this, std::move(x)); },
        [this](const std::string& why) { lost.set_value(why); }, limits);
  }

  bool is_lost(std::chrono::milliseconds within) { return why.wait_for(within) == std::future_status::ready; }

  some_device on;
  bool answers = true;
  int snapshots = 0; ///< wanted
  std::function<void(report)> say;
  std::promise<std::string> lost; ///< said twice it throws
  std::future<std::string> why = lost.get_future();
};

// given: something fails, and the device takes more work, or does not / expected: in the second case it is lost, which
// is said once
TEST_F(device_watch, a_device_that_refuses_work_is_lost) {
  for (const auto kind : {failure::computation, failure::refused, failure::communication}) {
    const auto x = make({});
    say(failed{{1}, kind, 0, "out of memory", {}});
    EXPECT_FALSE(is_lost(0s));
    on.is_sick = true;
    for (int i = 0; i < 2; ++i)
      say(failed{{1}, kind, 0, "a layer failed", {}});
    ASSERT_TRUE(is_lost(0s));
    EXPECT_EQ(why.get(), "cuda:3 is lost: a layer failed (an illegal memory access was encountered)");
    on.is_sick = false;
    lost = {};
    why = lost.get_future();
  }
}

// given: the generation that trains is aborted, and that is answered, or not / expected: in the second case the device
// is lost when the limit is over; what else is wanted of who is watched gets there
TEST_F(device_watch, a_call_that_does_not_return_loses_the_device) {
  const auto x = make({.answer = 50ms, .first_answer = 50ms});
  x->want_snapshot();
  EXPECT_EQ(snapshots, 1);
  x->submit(activate{{1}, {}});
  x->submit(abort_generation{{1}});
  EXPECT_FALSE(is_lost(200ms));
  answers = false;
  x->submit(activate{{2}, {}});
  x->submit(abort_generation{{1}}); // which waits for no step's end
  EXPECT_FALSE(is_lost(200ms));
  x->submit(abort_generation{{2}});
  ASSERT_TRUE(is_lost(10s));
  EXPECT_THAT(why.get(),
              HasSubstr("cuda:3 is lost: a call did not return within 50 ms after generation 2 was aborted"));
}

// given: a call that loads a library for the first time while its generation is aborted, before and after that has
// committed a step / expected: the shorter limit is for the second only
TEST_F(device_watch, what_is_called_first_may_take_longer) {
  const auto x = make({.answer = 50ms, .first_answer = 1h});
  answers = false;
  x->submit(activate{{1}, {}});
  x->submit(abort_generation{{1}});
  EXPECT_FALSE(is_lost(200ms));
  say(aborted{{1}, {}, no_step, {}, {}});
  x->submit(activate{{2}, {}});
  progress committed;
  committed.current = {2};
  say(committed);
  x->submit(abort_generation{{2}});
  ASSERT_TRUE(is_lost(10s));
  EXPECT_THAT(why.get(), HasSubstr("a call did not return within 50 ms after generation 2 was aborted"));
}

// given: the limits that a node has, an ABORT before the first commit, and one behind it / expected: the first may take
// the ten seconds that libraries may take, so is not yet missed after three; the second is
TEST_F(device_watch, a_node_waits_longer_for_a_first_call) {
  const auto x = make({});
  answers = false;
  x->submit(activate{{1}, {}});
  x->submit(abort_generation{{1}});
  EXPECT_FALSE(is_lost(3s));
  EXPECT_EQ(device_limits{}.first_answer, 10s);
  say(aborted{{1}, {}, no_step, {}, {}});
  x->submit(activate{{2}, {}});
  progress committed;
  committed.current = {2};
  say(committed);
  x->submit(abort_generation{{2}});
  ASSERT_TRUE(is_lost(10s));
  EXPECT_THAT(why.get(), HasSubstr("did not return within 2000 ms after generation 2"));
}

// given: a generation is aborted that is prepared, or moves shards / expected: only in the second case is the device
// lost if that is not answered
TEST_F(device_watch, nor_may_a_call_stand_still_that_moves_shards) {
  const auto x = make({.first_answer = 50ms});
  answers = false;
  x->submit(activate{{1}, {}});
  x->submit(abort_generation{{2}});
  EXPECT_FALSE(is_lost(200ms));
  x->submit(activate{{5}, {}});
  x->submit(abort_generation{{5}});
  ASSERT_TRUE(is_lost(10s));
  EXPECT_THAT(why.get(), HasSubstr("after generation 5 was aborted"));
}

// given: an ABORT is answered while the device is at work, which ends in time, or does not / expected: in the second
// case it is lost
TEST_F(device_watch, work_that_does_not_end_loses_the_device) {
  const auto x = make({.answer = 10s, .work = 100ms});
  x->submit(activate{{1}, {}});
  x->submit(abort_generation{{1}});
  on.ends = true;
  EXPECT_FALSE(is_lost(300ms));
  on.ends = false;
  x->submit(activate{{2}, {}});
  x->submit(abort_generation{{2}});
  ASSERT_TRUE(is_lost(10s));
  EXPECT_EQ(why.get(), "cuda:3 is lost: it was still at work 100 ms after generation 2 was aborted");
}

/// Does not end before it may.
class busy_executor final : public executor {
public:
  busy_executor(std::vector<std::string>& seen, std::shared_future<void> may_end) :
      seen_(seen), may_end_(std::move(may_end)) {}
  ~busy_executor() override { may_end_.wait(); }
  void submit(command x) override { seen_.push_back(std::holds_alternative<forget>(x) ? "forget" : "command"); }
  void want_snapshot() override { seen_.emplace_back("snapshot"); }

private:
  std::vector<std::string>& seen_;
  const std::shared_future<void> may_end_;
};

// given: a worker's executor in the midst of an operator that does not end, whose job is over, and which is told of the
// next / expected: FORGET said again makes no executor; the next job has one of its own at once; that the first does
// not end is said, once, after the limit; one that ends in time is none of anybody's business
TEST(retirement, an_operator_of_hours_ends_the_process) {
  std::promise<void> end;
  std::promise<std::string> said;
  auto stuck = said.get_future();
  std::vector<std::string> seen;
  int made = 0;
  {
    retirement retired(50ms, [&](const std::string& why) { said.set_value(why); }); // said twice it throws
    std::promise<void> ended;
    ended.set_value();
    const std::vector<std::shared_future<void>> may_end{end.get_future().share(), ended.get_future().share()};
    const auto x = make_executor_of_one_job(
        [&] { return std::make_unique<busy_executor>(seen, may_end.at(static_cast<std::size_t>(made++))); }, retired);
    x->submit(load{});
    x->want_snapshot();
    x->submit(forget{{1}});
    x->submit(forget{{1}});
    x->want_snapshot();
    EXPECT_EQ(made, 1);
    x->submit(load{});
    EXPECT_EQ(made, 2);
    ASSERT_EQ(stuck.wait_for(10s), std::future_status::ready);
    EXPECT_THAT(stuck.get(), HasSubstr("did not end within 50ms of the job's end"));
    x->submit(forget{{2}});
    end.set_value();
  }
  EXPECT_THAT(seen, testing::ElementsAre("command", "snapshot", "forget", "command", "forget"));
}

} // namespace
} // namespace parcae

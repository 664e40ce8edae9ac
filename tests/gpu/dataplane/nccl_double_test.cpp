// NCCL's double finds each use that NCCL does not allow: without that, tests in which it notes nothing would show
// nothing.

#include "tests/support/fake_device.hpp"
#include "tests/support/nccl_double.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace parcae;
using namespace parcae::testing;
using ::testing::UnorderedElementsAreArray;

namespace {

using steady = std::chrono::steady_clock;

constexpr std::chrono::seconds longest{20};
constexpr std::size_t part = 256; ///< bytes of a message

/// A participant of two.
struct double_end {
  double_end(nccl_double& world, std::uint32_t number) :
      number(number), on(late_fake_device(number)), calls(world.library(number, on)) {}

  void send_of_group(const device_memory& from, stream& by, std::size_t bytes = part) {
    calls.send(made, 1 - number, from.get(), bytes, by);
  }
  void receive_of_group(const device_memory& to, stream& by, std::size_t bytes = part) {
    calls.receive(made, 1 - number, to.get(), bytes, by);
  }
  /// Returns when the group is in the stream.
  void end_group() {
    EXPECT_EQ(calls.end_group(), nccl_result::in_progress);
    settle();
  }
  void settle() {
    for (const auto end = steady::now() + longest; calls.state(made) == nccl_result::in_progress;)
      ASSERT_LT(steady::now(), end);
  }

  // Groups of one message.
  void send(std::size_t bytes = part) {
    calls.start_group();
    send_of_group(memory, *work, bytes);
    end_group();
  }
  void receive(std::size_t bytes = part) {
    calls.start_group();
    receive_of_group(memory, *work, bytes);
    end_group();
  }

  const std::uint32_t number;
  device& on;
  nccl_library& calls;
  device_memory memory = on.allocate(part);
  std::unique_ptr<stream> work = on.make_stream(), other = on.make_stream();
  nccl_handle* made = nullptr;
};

struct double_ends {
  ~double_ends() { world.release(); } // or the streams would not end

  void begin(double_end& x) { EXPECT_EQ(x.calls.begin(x.made, 2, id, x.number), nccl_result::in_progress); }
  /// Makes a communicator.
  void make() {
    EXPECT_EQ(left.calls.make_id(id), nccl_result::success);
    begin(left);
    begin(right);
    left.settle();
    right.settle();
  }
  /// Of the streams' work.
  void wait_for_end() {
    for (const auto* x : {&left, &right})
      for (const auto& by : {x->work.get(), x->other.get()})
        EXPECT_TRUE(by->record()->wait(longest));
  }

  nccl_double world{1};
  nccl_id id{};
  double_end left{world, 0}, right{world, 1};
};

struct use_of_nccl {
  std::string name;
  std::vector<std::string> noted;
  std::function<void(double_ends&)> does;
};

const std::vector<use_of_nccl> allowed{
    {"messages both ways, and the end",
     {},
     [](auto& x) {
       x.make();
       const auto in = x.left.on.allocate(part), more = x.right.on.allocate(part);
       for (int i = 0; i < 50; ++i) {
         x.left.calls.start_group();
         x.left.send_of_group(x.left.memory, *x.left.work);
         x.left.receive_of_group(in, *x.left.work);
         x.left.end_group();
         x.right.calls.start_group();
         x.right.receive_of_group(more, *x.right.work);
         x.right.send_of_group(x.right.memory, *x.right.work);
         x.right.end_group();
         x.left.work->record();
       }
       x.wait_for_end();
       x.left.calls.abort(x.left.made);
       x.right.calls.abort(x.right.made);
     }},
    {"an end while a group is cut off, and a communicator after it",
     {},
     [](auto& x) {
       x.make();
       x.left.receive();
       x.left.calls.abort(x.left.made);
       x.right.calls.abort(x.right.made);
       x.wait_for_end();
       x.make();
       x.left.send();
       x.right.receive();
       x.wait_for_end();
     }},
};

const std::vector<use_of_nccl> wrong_calls{
    {"a call beside another",
     {"two calls of one participant at once"},
     [](auto& x) {
       x.world.plan(0, nccl_call::make_id, 1, nccl_fault::freeze);
       std::thread first([&] { x.left.calls.make_id(x.id); });
       for (const auto end = steady::now() + longest;
            x.world.calls_of(0, nccl_call::make_id) == 0 && steady::now() < end;)
         std::this_thread::yield();
       x.left.calls.start_group();
       x.world.release();
       first.join();
     }},
    {"a call of another thread",
     {"calls of several threads"},
     [](auto& x) {
       x.make();
       std::thread([&] { x.left.calls.state(x.left.made); }).join();
     }},
    {"a group that another thread ends",
     {"calls of several threads"},
     [](auto& x) {
       x.make();
       x.left.calls.start_group();
       x.left.send_of_group(x.left.memory, *x.left.work);
       std::thread([&] { x.left.calls.end_group(); }).join();
     }},
    {"a call behind abort",
     {"a call after abort"},
     [](auto& x) {
       x.make();
       x.left.calls.abort(x.left.made);
       x.left.calls.state(x.left.made);
     }},
    {"abort twice",
     {"a second abort", "a call after abort"},
     [](auto& x) {
       x.make();
       x.left.calls.abort(x.left.made);
       x.left.calls.abort(x.left.made);
     }},
    {"abort within a group",
     {"an abort in a group, of which it would be a part"},
     [](auto& x) {
       x.make();
       x.left.calls.start_group();
       x.left.calls.abort(x.left.made);
     }},
};

const std::vector<use_of_nccl> wrong_groups{
    {"a group within another",
     {"a group in a group"},
     [](auto& x) {
       x.left.calls.start_group();
       x.left.calls.start_group();
     }},
    {"a message without a group",
     {"an operation in no group"},
     [](auto& x) {
       x.make();
       x.left.send_of_group(x.left.memory, *x.left.work);
     }},
    {"a message before the communicator is made",
     {"an operation while the one before is in progress"},
     [](auto& x) {
       x.begin(x.left);
       x.left.calls.start_group();
       x.left.send_of_group(x.left.memory, *x.left.work);
     }},
    {"messages of a group in two streams",
     {"a group of two communicators or streams"},
     [](auto& x) {
       x.make();
       x.left.calls.start_group();
       x.left.send_of_group(x.left.memory, *x.left.work);
       x.left.send_of_group(x.left.memory, *x.left.other);
     }},
    {"messages of a group by two communicators",
     {"a group of two communicators or streams"},
     [](auto& x) {
       x.make();
       auto* before = x.left.made;
       x.make();
       x.left.calls.start_group();
       x.left.send_of_group(x.left.memory, *x.left.work);
       x.left.calls.send(before, 1, x.left.memory.get(), part, *x.left.work);
     }},
    {"the end of a group that was not begun", {"the end of no group"}, [](auto& x) { x.left.calls.end_group(); }},
    {"a group without messages",
     {"the end of no group"},
     [](auto& x) {
       x.left.calls.start_group();
       x.left.calls.end_group();
     }},
};

const std::vector<use_of_nccl> wrong_work{
    {"an event recorded before the group is in the stream", // the double may be quicker: that is tried some times
     {"an event was recorded before the group was in the stream"},
     [](auto& x) {
       x.make();
       for (const auto end = steady::now() + longest; x.world.violations().empty() && steady::now() < end;) {
         x.left.calls.start_group();
         x.left.send_of_group(x.left.memory, *x.left.work);
         EXPECT_EQ(x.left.calls.end_group(), nccl_result::in_progress);
         x.left.work->record();
         x.left.settle();
       }
     }},
    {"what is sent given back before it is",
     {"memory that was given back"},
     [](auto& x) {
       x.make();
       x.left.send();
       x.left.memory.reset();
       x.right.receive();
       x.wait_for_end();
     }},
    {"what is to be received given back before it is",
     {"memory that was given back"},
     [](auto& x) {
       x.make();
       x.left.receive();
       x.left.memory.reset();
       x.right.send();
       x.wait_for_end();
     }},
    {"what is to be received given back before it is cut off",
     {"memory that was given back"},
     [](auto& x) {
       x.make();
       x.left.receive();
       x.left.memory.reset();
       x.left.calls.abort(x.left.made);
       x.wait_for_end();
     }},
    {"a message that is shorter there",
     {"a send and a receive of different sizes"},
     [](auto& x) {
       x.make();
       x.left.send(part);
       x.right.receive(part / 2);
       x.wait_for_end();
     }},
    {"messages of a group in two groups there",
     {"groups whose ends differ"},
     [](auto& x) {
       x.make();
       x.left.calls.start_group();
       x.left.send_of_group(x.left.memory, *x.left.work);
       x.left.send_of_group(x.left.memory, *x.left.work);
       x.left.end_group();
       x.right.receive();
       x.right.receive();
       x.wait_for_end();
     }},
};

void expect_notes(const std::vector<use_of_nccl>& uses) {
  for (const auto& use : uses) {
    SCOPED_TRACE(use.name);
    double_ends x;
    use.does(x);
    EXPECT_THAT(x.world.violations(), UnorderedElementsAreArray(use.noted));
  }
}

} // namespace

// given: what NCCL allows / expected: nothing is noted
TEST(nccl_double, notes_nothing_that_is_allowed) {
  expect_notes(allowed);
}

// given: each use that NCCL does not allow / expected: that is noted, and nothing else
TEST(nccl_double, notes_calls_that_are_not_allowed) {
  expect_notes(wrong_calls);
}

TEST(nccl_double, notes_groups_that_are_not_allowed) {
  expect_notes(wrong_groups);
}

TEST(nccl_double, notes_work_that_is_not_allowed) {
  expect_notes(wrong_work);
}

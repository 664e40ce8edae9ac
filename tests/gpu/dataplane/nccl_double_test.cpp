// NCCL's double finds each use that NCCL does not allow: without that, tests in which it notes nothing would show
// nothing.

#include "tests/support/eventually.hpp"
#include "tests/support/fake_device.hpp"
#include "tests/support/nccl_double.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace parcae;
using namespace parcae::rig;

namespace {

constexpr std::size_t part = 256; ///< bytes of a message

/// One of two participants, which sends and receives in `memory` by the stream `work`.
struct double_end {
  double_end(nccl_double& world, std::uint32_t number) :
      number(number), on(late_fake_device(number)), calls(world.library(number, on)) {}

  nccl_result state() { return calls.state(made); }
  void abort() { calls.abort(made); }
  void settle() {
    EXPECT_TRUE(eventually([&] { return state() != nccl_result::in_progress; }));
  }

  void open() { calls.start_group(); }
  void close() { calls.end_group(); }
  void add_send(std::size_t bytes = part) { calls.send(made, 1 - number, memory.get(), bytes, *work); }
  void add_receive(std::size_t bytes = part) { calls.receive(made, 1 - number, in.get(), bytes, *work); }
  /// Returns when it is in the stream.
  void group(const std::function<void()>& f) {
    open();
    f();
    close();
    settle();
  }
  void send(std::size_t bytes = part) {
    group([&] { add_send(bytes); });
  }
  void receive(std::size_t bytes = part) {
    group([&] { add_receive(bytes); });
  }

  const std::uint32_t number;
  device& on;
  nccl_library& calls;
  device_memory memory = on.allocate(part), in = on.allocate(part);
  std::unique_ptr<stream> work = on.make_stream(), other = on.make_stream();
  nccl_handle* made = nullptr;
};

struct double_ends {
  ~double_ends() { world.release(); } // or the streams would not end

  void begin(double_end& x) { EXPECT_EQ(x.calls.begin(x.made, 2, id, x.number), nccl_result::in_progress); }
  /// With a communicator.
  double_ends& made() {
    EXPECT_EQ(left.calls.make_id(id), nccl_result::success);
    for (auto* x : {&left, &right})
      begin(*x);
    for (auto* x : {&left, &right})
      x->settle();
    return *this;
  }
  /// Of the streams' work.
  void end() {
    for (const auto* by : {&left.work, &left.other, &right.work, &right.other})
      EXPECT_TRUE((*by)->record()->wait(std::chrono::seconds(20)));
  }

  nccl_double world{1};
  nccl_id id{};
  double_end left{world, 0}, right{world, 1};
};

void on_another_thread(const std::function<void()>& f) {
  std::thread(f).join();
}

using ends = double_ends&;

void messages_both_ways_and_the_end(ends x) {
  for (int i = 0; i < 50; ++i) {
    for (auto* y : {&x.left, &x.right})
      y->group([&] { y->add_send(), y->add_receive(); });
    x.left.work->record();
  }
  x.end();
  x.left.abort(), x.right.abort();
}

void an_end_while_a_group_is_cut_off(ends x) {
  x.left.receive();
  x.left.abort(), x.right.abort();
  x.end();
  x.made().left.send();
  x.right.receive();
  x.end();
}

void a_call_beside_another(ends x) {
  x.world.plan(0, nccl_call::make_id, 1, nccl_fault::freeze);
  std::thread first([&] { x.left.calls.make_id(x.id); });
  EXPECT_TRUE(eventually([&] { return x.world.calls_of(0, nccl_call::make_id) == 1; }));
  x.left.open();
  x.world.release();
  first.join();
}

void a_message_before_it_is_made(ends x) {
  x.begin(x.left);
  x.left.open(), x.left.add_send();
}

void messages_of_a_group_by_two_streams(ends x) {
  x.left.open(), x.left.add_send();
  x.left.work.swap(x.left.other);
  x.left.add_send();
}

void messages_of_a_group_by_two(ends x) {
  auto* before = x.left.made;
  x.made().left.open();
  x.left.add_send();
  x.left.calls.send(before, 1, x.left.memory.get(), part, *x.left.work);
}

void an_event_before_its_group(ends x) {
  x.left.open(), x.left.add_send(), x.left.close();
  x.left.work->record();
  x.left.settle();
}

void a_group_in_two_there(ends x) {
  x.left.group([&] { x.left.add_send(), x.left.add_send(); });
  x.right.receive(), x.right.receive();
  x.end();
}

const char *const of_threads = "calls of several threads", *const of_two = "a group of two communicators or streams",
                  *const given_back = "memory that was given back before it was moved",
                  *const no_group = "the end of no group", *const unlike = "a send and a receive of different sizes";

/// What is done, and what is noted of it.
const std::vector<std::pair<std::function<void(ends)>, std::vector<std::string>>> uses{
    {[](ends x) { messages_both_ways_and_the_end(x.made()); }, {}},
    {[](ends x) { an_end_while_a_group_is_cut_off(x.made()); }, {}},
    // calls
    {a_call_beside_another, {"two calls of one participant at once"}},
    {[](ends x) { on_another_thread([&y = x.made().left] { y.state(); }); }, {of_threads}},
    {[](ends x) { x.made().left.open(), x.left.add_send(), on_another_thread([&] { x.left.close(); }); }, {of_threads}},
    {[](ends x) { x.made().left.abort(), x.left.state(); }, {"a call after abort"}},
    {[](ends x) { x.made().left.abort(), x.left.abort(); }, {"a second abort", "a call after abort"}},
    {[](ends x) { x.made().left.open(), x.left.abort(); }, {"an abort in a group, of which it would be a part"}},
    // groups
    {[](ends x) { x.left.open(), x.left.open(); }, {"a group in a group"}},
    {[](ends x) { x.made().left.add_send(); }, {"an operation in no group"}},
    {a_message_before_it_is_made, {"an operation while the one before is in progress"}},
    {[](ends x) { messages_of_a_group_by_two_streams(x.made()); }, {of_two}},
    {[](ends x) { messages_of_a_group_by_two(x.made()); }, {of_two}},
    {[](ends x) { x.left.close(); }, {no_group}},
    {[](ends x) { x.left.open(), x.left.close(); }, {no_group}},
    // work
    {[](ends x) { an_event_before_its_group(x.made()); }, {"an event was recorded before the group was in the stream"}},
    {[](ends x) { x.made().left.send(), x.left.memory.reset(), x.right.receive(); }, {given_back}},
    {[](ends x) { x.made().left.receive(), x.left.in.reset(), x.right.send(); }, {given_back}},
    {[](ends x) { x.made().left.receive(), x.left.in.reset(), x.left.abort(); }, {given_back}},
    {[](ends x) { x.made().left.send(), x.right.receive(part / 2); }, {unlike}},
    {[](ends x) { a_group_in_two_there(x.made()); }, {"groups whose ends differ"}},
};

} // namespace

// given: what NCCL allows, and each use that it does not / expected: nothing is noted of the former, of the others
// their fault and nothing else
TEST(nccl_double, notes_what_is_not_allowed) {
  for (std::size_t row = 0; row < uses.size(); ++row) {
    SCOPED_TRACE(row);
    const auto& [does, noted] = uses[row];
    double_ends x;
    does(x);
    EXPECT_TRUE(eventually([&, n = noted.size()] { return x.world.violations().size() >= n; })); // a stream comes to it
    EXPECT_THAT(x.world.violations(), ::testing::UnorderedElementsAreArray(noted));
  }
}

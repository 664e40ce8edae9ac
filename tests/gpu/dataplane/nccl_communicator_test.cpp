#include "tests/gpu/dataplane/nccl_run.hpp"
#include "tests/support/thrown_by.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <future>
#include <optional>

using namespace parcae;
using namespace parcae::rig;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace {

using phase = nccl_communicator::phase;

struct pair_by_nccl {
  ~pair_by_nccl() {
    members.clear();
    EXPECT_THAT(world.violations(), IsEmpty());
  }

  /// Connects both; returns when their communicators are made or have failed.
  void connect() {
    ++ports.plan.next.value;
    members.clear();
    for (std::uint32_t i = 0; i < 2; ++i) {
      auto& on = late_fake_device(i);
      if (!slots[i])
        slots[i] = std::make_shared<nccl_slot>(
            on, world.library(i, on), [this](const std::string&) { ++stuck; }, limits);
      members.push_back(std::make_unique<nccl_member>(ports, i, slots[i]));
    }
    ports.each([&](std::uint32_t i) { members[i]->connect(); });
    ports.each([&](std::uint32_t i) { members[i]->made(); });
  }

  void connect_and_take_over() {
    connect();
    take_over();
  }
  void take_over() {
    for (auto& x : members)
      x->comm->take_over();
  }

  nccl_communicator& of(std::uint32_t i) { return *members[i]->comm; }

  nccl_limits limits{.make = 2s, .id = 1s, .end = 300ms};
  std::atomic<int> stuck = 0;
  nccl_double world{1};
  cluster ports{2};
  std::array<std::shared_ptr<nccl_slot>, 2> slots;
  std::vector<std::unique_ptr<nccl_member>> members;
};

} // namespace

// given: a participant that is never heard of, that cannot begin, or that as participant 0 makes no id, or not in time
// / expected: both know in time why there is no communicator, go on below, and nothing but NCCL's memory is in danger
TEST(nccl_communicator, what_cannot_be_made_is_done_without) {
  const std::string too_long = "making a communicator took longer than 500ms";
  struct {
    std::uint32_t rank;
    nccl_call where;
    nccl_fault what;
    std::array<std::string, 2> problems;
  } const table[] = {
      {1, nccl_call::begin, nccl_fault::freeze, {too_long, "a call has not returned within 1s"}},
      {1, nccl_call::begin, nccl_fault::fail, {too_long, "making a communicator: a call of the system failed"}},
      {0, nccl_call::make_id, nccl_fault::fail, {"making an id", "participant 0 has made no id"}},
      {0, nccl_call::make_id, nccl_fault::freeze, {"no id was made in time", "participant 0 has made no id"}}};
  for (const auto& row : table) {
    pair_by_nccl x;
    (row.where == nccl_call::begin ? x.limits.make : x.limits.id) = 500ms;
    x.world.plan(row.rank, row.where, 1, row.what);
    const auto begin = std::chrono::steady_clock::now();
    x.connect();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, patience);
    for (std::uint32_t i = 0; i < 2; ++i) {
      EXPECT_THAT(x.of(i).state().problem, HasSubstr(row.problems[i]));
      EXPECT_EQ(x.of(i).state().own, row.where == nccl_call::begin || i == row.rank);
      EXPECT_NE(thrown_by<communication_error>([&] { x.of(i).take_over(); }), "");
    }
    EXPECT_EQ(x.world.calls_of(1, nccl_call::begin), row.where == nccl_call::begin ? 1u : 0u);
    x.ports.each([&](std::uint32_t i) { x.members[i]->exchange(1, 1 - i, 2, 500); });
    for (auto& m : x.members)
      m->comm.reset();
    EXPECT_EQ(x.stuck, 0);
    x.world.release();
    EXPECT_TRUE(eventually([&] { return !x.slots[0]->busy && !x.slots[1]->busy; }));
  }
}

// given: messages before and after both take over / expected: all arrive; NCCL has only the latter, and not the host's
TEST(nccl_communicator, takes_over_in_mid_run) {
  pair_by_nccl x;
  x.connect();
  ASSERT_EQ(x.of(0).state().now, phase::ready) << x.of(0).state().problem;
  const auto calls = x.world.calls_of(0, nccl_call::send);
  x.ports.each([&](std::uint32_t i) { x.members[i]->exchange(1, 1 - i, 3, 1000); });
  EXPECT_EQ(x.world.calls_of(0, nccl_call::send), calls);
  x.take_over();
  x.ports.each([&](std::uint32_t i) { x.members[i]->exchange(2, 1 - i, 3, 1000); });
  EXPECT_EQ(x.world.calls_of(0, nccl_call::send), calls + 3);
  const auto out = random_bytes(100, 1);
  std::vector<std::byte> in(100);
  const auto sent = x.of(0).send(1, {channel::exchange, 0, 0}, out);
  x.of(1).wait(x.of(1).receive(0, {channel::exchange, 0, 0}, in), patience);
  x.of(0).wait(sent, patience);
  EXPECT_EQ(in, out);
  EXPECT_EQ(x.world.calls_of(0, nccl_call::send), calls + 3);
  EXPECT_EQ(x.of(0).state().now, phase::in_use);
  EXPECT_EQ(x.world.listeners(), 0u);
}

// given: three participants, NCCL between the first two, not begun at once / expected: nothing of NCCL is called
// before; then only messages between those two go by it
TEST(nccl_communicator, is_between_the_first_participants) {
  nccl_double world(1);
  cluster ports{3};
  std::vector<std::unique_ptr<nccl_member>> members;
  for (std::uint32_t i = 0; i < 3; ++i)
    members.push_back(std::make_unique<nccl_member>(ports, i, world));
  const auto of_two = [&](auto f) {
    ports.each([&](std::uint32_t i) {
      if (i < 2)
        f(*members[i], 1 - i);
    });
  };
  ports.each([&](std::uint32_t i) { members[i]->prepare_to_begin(2); });
  ASSERT_EQ(members[0]->comm->size(), 3u);
  EXPECT_EQ(members[0]->comm->state().now, phase::waiting);
  EXPECT_NE(thrown_by<communication_error>([&] { members[0]->comm->take_over(); }), "");
  EXPECT_EQ(world.calls_of(0, nccl_call::begin), 0u);
  of_two([](auto& x, auto) { x.comm->begin(); });
  of_two([](auto& x, auto) {
    EXPECT_EQ(x.made().now, phase::ready) << x.comm->state().problem;
    x.comm->take_over();
  });
  const auto calls = world.calls_of(0, nccl_call::receive);
  std::thread third([&] { members[2]->exchange(1, 0, 2, 1000); });
  members[0]->exchange(1, 2, 2, 1000);
  third.join();
  EXPECT_EQ(world.calls_of(0, nccl_call::receive), calls);
  of_two([](auto& x, std::uint32_t other) { x.exchange(2, other, 2, 500); });
  EXPECT_EQ(world.calls_of(0, nccl_call::receive), calls + 2);
  members.clear();
  EXPECT_EQ(world.calls_of(2, nccl_call::begin), 0u);
  EXPECT_THAT(world.violations(), IsEmpty());
}

// given: memory of another device, and a message that was not given / expected: refused; to wait for it is a mistake
TEST(nccl_communicator, refuses_mistakes) {
  pair_by_nccl x;
  x.connect_and_take_over();
  auto& other = late_fake_device(5);
  const auto memory = other.allocate(8);
  EXPECT_THROW(x.of(0).send(1, {channel::shard, 0, 0}, const_memory_view(std::span(memory.get(), 8), &other)),
               std::invalid_argument);
  const auto open = x.members[0]->post(7, 1, false, 0, 1000);
  EXPECT_FALSE(x.of(0).done(open));
  EXPECT_THROW(x.of(0).wait(open, patience), std::logic_error);
}

// given: a participant that dies before its half of a group is in the stream / expected: its peer's wait has returned,
// as it needs no word of it; once that aborts its device's work ends without error, and check says that it is worth
// nothing
TEST(nccl_communicator, what_was_cut_off_is_said_to_be) {
  pair_by_nccl x;
  x.connect_and_take_over();
  auto& on = x.slots[0]->on;
  x.world.plan(1, nccl_call::end_group, 1, nccl_fault::die);
  const auto sent = x.members[1]->post_and_give(7, 0, true, 0, 1000);
  const auto received = x.members[0]->post_and_give(7, 1, false, 0, 1000);
  x.of(0).wait(received, patience);
  const auto after = on.compute().record();
  EXPECT_FALSE(after->wait(50ms));
  x.of(0).abort();
  EXPECT_TRUE(after->wait(patience)) << "what was given ends";
  EXPECT_THAT(thrown_by<communication_error>([&] { x.of(0).check(); }), HasSubstr("aborted"));
  const auto begin = std::chrono::steady_clock::now();
  x.members[0]->comm.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, patience);
  EXPECT_EQ(x.stuck, 0);
  x.world.release();
}

// given: an abort that does not return, and nothing in the stream / expected: the process may go on, but NCCL is not
// used again, not even when the abort has come back. (With a group in the stream: stuck_nccl_test.)
TEST(nccl_communicator, an_abort_that_never_returns) {
  pair_by_nccl x;
  x.connect_and_take_over();
  x.world.plan(0, nccl_call::abort, 1, nccl_fault::freeze);
  const auto begin = std::chrono::steady_clock::now();
  x.of(0).abort();
  x.members[0]->comm.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, patience);
  EXPECT_TRUE(x.slots[0]->lost);
  x.connect();
  EXPECT_THAT(x.of(0).state().problem, HasSubstr("never returned"));
  x.world.release();
  EXPECT_TRUE(eventually([&] { return !x.slots[0]->busy; })) << "what was lost has ended";
  const auto calls = x.world.calls_of(0, nccl_call::make_id);
  x.connect();
  EXPECT_THAT(x.of(0).state().problem, HasSubstr("never returned"));
  EXPECT_EQ(x.world.calls_of(0, nccl_call::make_id), calls);
  x.members.clear();
  EXPECT_EQ(x.stuck, 0);
  EXPECT_FALSE(x.slots[0]->busy);
}

// given: errors of calls, within a group too, and of the communicator's state / expected: messages fail there, with the
// reason
TEST(nccl_communicator, says_what_nccl_says) {
  const std::pair<nccl_call, nccl_fault> table[] = {{nccl_call::receive, nccl_fault::fail},
                                                    {nccl_call::end_group, nccl_fault::fail},
                                                    {nccl_call::end_group, nccl_fault::spoil}};
  for (const auto& [where, what] : table) {
    pair_by_nccl x;
    x.connect_and_take_over();
    x.world.plan(1, where, 1, what);
    const auto sent = x.members[0]->post_and_give(7, 1, true, 0, 1000);
    const auto received = x.members[1]->post_and_give(7, 0, false, 0, 1000);
    const auto failure = thrown_by<communication_error>([&] {
      x.of(1).wait(received, patience);
      x.of(1).check();
    });
    EXPECT_THAT(failure, HasSubstr(what == nccl_fault::fail ? "a call of the system failed" : "another participant"));
    EXPECT_THAT(failure, HasSubstr("the double says so"));
    x.of(0).abort();
  }
}

// given: a device on which LibTorch keeps what NCCL needs, and takes it again none, one or more times that it is given
// back, as by training beside / expected: it is given back before each try and behind one that failed, so the first or
// the second succeeds, or the reason names memory; NCCL has nothing of it afterwards
TEST(nccl_communicator, is_made_in_what_libtorch_gives_back) {
  for (const std::uint32_t again : {0, 1, 9}) {
    SCOPED_TRACE(again);
    pair_by_nccl x;
    x.limits.make = 500ms;
    auto& device = late_fake_device(0);
    device.begin_peak();
    const auto taken = device.peak_bytes();
    const little_memory card(device, 64 << 10, nccl_own_bytes + nccl_pair_bytes, again);
    std::uint32_t asked = 0;
    for (std::uint32_t attempt = 0; attempt < 2; ++attempt) {
      x.connect();
      const auto said = x.of(0).state();
      const bool fits = again <= 2 * attempt;
      EXPECT_EQ(said.now, fits ? phase::ready : phase::failed);
      EXPECT_THAT(said.problem,
                  HasSubstr(fits ? "" : "making a communicator: a CUDA call failed (Failed to CUDA malloc"));
      x.members.clear();
      EXPECT_EQ(card.given_back(), asked += fits ? 1 : 2);
    }
    device.begin_peak();
    EXPECT_EQ(device.peak_bytes(), taken);
  }
}

// given: a device with room for a communicator, but not for its connection with the other one / expected: it is not
// used, and the reason names memory
TEST(nccl_communicator, is_not_ready_without_room_for_connections) {
  pair_by_nccl x;
  x.limits.make = 500ms;
  const little_memory card(late_fake_device(1), nccl_own_bytes + nccl_pair_bytes / 2, 0);
  x.connect();
  EXPECT_THAT(x.of(1).state().problem, HasSubstr("connecting: a CUDA call failed (Failed to CUDA malloc"));
  EXPECT_EQ(x.of(0).state().now, phase::failed);
}

// given: calls about a device's events that do not return, of NCCL's thread, when it has given a group or is leaving,
// or of the thread that waits for the end of what was given / expected: abort() returns, waits end, and the state is
// known meanwhile: no such call is under a lock that they need
TEST(nccl_communicator, aborts_while_events_stand_still) {
  const std::pair<nccl_fault, device_call> table[] = {
      {nccl_fault::garble, device_call::record}, // of NCCL's thread, behind the group
      {nccl_fault::garble, device_call::end},    // of the group before
      {nccl_fault::fail, device_call::look},     // at what is left
      {nccl_fault::freeze, device_call::look}};  // of who leaves; there is no fault
  for (const auto& [what, call] : table) {
    SCOPED_TRACE(static_cast<int>(call));
    pair_by_nccl x;
    x.connect_and_take_over();
    x.ports.each([&](std::uint32_t i) { x.members[i]->exchange(1, 1 - i, 1, 500); });
    std::future<void> leaves; // ends when nothing is stuck any more
    std::optional<stuck_calls> stuck;
    std::atomic<bool> begun = false;
    const auto stand_still = [&, call = call](auto...) {
      stuck.emplace(x.slots[0]->on, call);
      begun = true;
    };
    std::vector<ticket> both;
    if (what != nccl_fault::freeze) {
      x.world.plan(0, nccl_call::send, 1, what);
      x.world.on_fault(stand_still);
      both = {x.members[0]->post(2, 1, true, 0, 500), x.members[0]->post(2, 1, false, 1, 500)};
      x.of(0).give(both);
    } else {
      stand_still();
      leaves = std::async(std::launch::async, [&] { x.of(0).leave(); });
    }
    ASSERT_TRUE(eventually([&] { return begun && stuck->calls() > 0; }));
    auto checks =
        std::async(std::launch::async, [&] { return thrown_by<communication_error>([&] { x.of(0).check(); }); });
    EXPECT_TRUE(stuck->are_not_in_the_way_of([&] { x.of(0).abort(); }));
    EXPECT_TRUE(stuck->are_not_in_the_way_of([&] {
      const auto said = checks.get();
      EXPECT_TRUE(!said.empty() || both.empty()) << "without a fault it may have been answered before";
      EXPECT_EQ(x.of(0).state().now, phase::failed);
      for (const auto& t : both)
        EXPECT_NE(thrown_by<communication_error>([&] { x.of(0).wait(t, patience); }), "");
    }));
    stuck.reset();
    if (leaves.valid())
      leaves.get();
    x.of(1).abort();
  }
}

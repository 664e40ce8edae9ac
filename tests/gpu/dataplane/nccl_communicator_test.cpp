#include "tests/gpu/dataplane/nccl_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace parcae;
using namespace parcae::testing;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace {

using phase = nccl_communicator::phase;

struct pair_by_nccl {
  explicit pair_by_nccl(std::uint64_t seed = 1) : world(seed) {}

  /// Connects both; returns when their communicators are made or have failed.
  void connect() {
    plan();
    members.clear();
    for (std::uint32_t i = 0; i < 2; ++i)
      members.push_back(std::make_unique<nccl_member>(ports, i, slots[i]));
    ports.each([&](std::uint32_t i) { members[i]->connect(); });
    ports.each([&](std::uint32_t i) { members[i]->made(); });
  }

  void plan() {
    ++ports.plan.next.value;
    for (std::uint32_t i = 0; i < 2; ++i)
      if (!slots[i]) {
        slots[i] = std::make_shared<nccl_slot>(late_fake_device(i), world.library(i, late_fake_device(i)),
                                               [this](const std::string&) { ++stuck; });
        slots[i]->limits = limits;
      }
  }

  void take_over() {
    for (auto& x : members)
      x->comm->take_over();
  }

  nccl_communicator& of(std::uint32_t i) { return *members[i]->comm; }

  nccl_limits limits{.make = 2s, .id = 1s, .end = 300ms};
  std::atomic<int> stuck = 0;
  nccl_double world;
  cluster ports{2};
  std::array<std::shared_ptr<nccl_slot>, 2> slots;
  std::vector<std::unique_ptr<nccl_member>> members;
};

std::string what_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const communication_error& e) {
    return e.what();
  }
  return {};
}

} // namespace

// given: a participant that is never heard of while the communicator is made / expected: the other ends it in time
TEST(nccl_communicator, is_not_made_for_ever) {
  pair_by_nccl x;
  x.limits.make = 100ms;
  x.world.plan(1, nccl_call::begin, 1, nccl_fault::freeze);
  const auto begin = std::chrono::steady_clock::now();
  x.connect();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
  EXPECT_THAT(x.of(0).state().problem, HasSubstr("making a communicator took longer than 100ms"));
  EXPECT_EQ(x.of(1).state().now, phase::failed);
  x.ports.each([&](std::uint32_t i) { x.members[i]->exchange(1, 1 - i, 2, 500); });
  for (auto& m : x.members)
    m->comm.reset();
  EXPECT_EQ(x.stuck, 0) << "no memory but NCCL's is in danger";
  x.world.release();
  EXPECT_TRUE(eventually([&] { return !x.slots[1]->busy; }));
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
  x.members.clear();
  EXPECT_THAT(x.world.violations(), IsEmpty());
  EXPECT_EQ(x.world.listeners(), 0u);
}

// given: three participants, NCCL between the first two, not begun at once / expected: nothing of NCCL is called
// before; then only messages between those two go by it
TEST(nccl_communicator, is_between_the_first_participants) {
  nccl_double world(1);
  cluster ports{3};
  std::vector<std::unique_ptr<nccl_member>> members;
  for (std::uint32_t i = 0; i < 2; ++i)
    members.push_back(std::make_unique<nccl_member>(
        ports, i,
        std::make_shared<nccl_slot>(late_fake_device(i), world.library(i, late_fake_device(i)),
                                    [](const std::string& problem) { ADD_FAILURE() << problem; })));
  auto& third = late_fake_device(2);
  std::unique_ptr<communicator> below;
  ports.each([&](std::uint32_t i) {
    if (i < 2)
      members[i]->prepare_to_begin(2);
    else
      below =
          make_staged_communicator(ports.ports[2]->connect(ports.plan, ports.slot(2), patience, ports.never), third);
  });
  ASSERT_EQ(members[0]->comm->size(), 3u);
  EXPECT_EQ(members[0]->comm->state().now, phase::waiting);
  EXPECT_NE(what_of([&] { members[0]->comm->take_over(); }), "");
  EXPECT_EQ(world.calls_of(0, nccl_call::begin), 0u);
  ports.each([&](std::uint32_t i) {
    if (i < 2)
      members[i]->comm->begin();
  });
  ports.each([&](std::uint32_t i) {
    if (i == 2)
      return;
    EXPECT_EQ(members[i]->made().now, phase::ready) << members[i]->comm->state().problem;
    members[i]->comm->take_over();
  });
  const auto calls = world.calls_of(0, nccl_call::receive);
  const auto memory = third.allocate(1000), pinned = third.allocate_pinned(1000);
  std::ranges::copy(random_bytes(1000, (1 * 16 + 2) * 16 * 64), pinned.get());
  third.compute().copy(memory.get(), pinned.get(), 1000);
  const auto sent =
      below->send(0, {channel::shard, 1, 0}, const_memory_view(std::span<const std::byte>(memory.get(), 1000), &third));
  const auto received = members[0]->post(1, 2, false, 0, 1000);
  members[0]->comm->wait(received, patience);
  below->wait(sent, patience);
  members[0]->compare(ports.never);
  EXPECT_EQ(world.calls_of(0, nccl_call::receive), calls);
  std::thread other([&] { members[1]->exchange(2, 0, 2, 500); });
  members[0]->exchange(2, 1, 2, 500);
  other.join();
  EXPECT_EQ(world.calls_of(0, nccl_call::receive), calls + 2);
  members.clear();
  EXPECT_THAT(world.violations(), IsEmpty());
}

// given: memory of another device / expected: refused
TEST(nccl_communicator, takes_memory_of_its_device_only) {
  pair_by_nccl x;
  x.connect();
  x.take_over();
  auto& other = late_fake_device(5);
  const auto memory = other.allocate(8);
  EXPECT_THROW(x.of(0).send(1, {channel::shard, 0, 0}, const_memory_view(std::span(memory.get(), 8), &other)),
               std::invalid_argument);
}

// given: a participant that cannot begin / expected: it says so, the other that it has waited, and both go on below
TEST(nccl_communicator, what_cannot_be_made_is_done_without) {
  pair_by_nccl x;
  x.limits.make = 300ms;
  x.world.plan(1, nccl_call::begin, 1, nccl_fault::fail);
  x.connect();
  EXPECT_THAT(x.of(0).state().problem, HasSubstr("making a communicator took longer than 300ms"));
  EXPECT_THAT(x.of(1).state().problem, HasSubstr("making a communicator: a call of the system failed"));
  EXPECT_NE(what_of([&] { x.of(0).take_over(); }), "");
  x.ports.each([&](std::uint32_t j) { x.members[j]->exchange(1, 1 - j, 2, 500); });
  x.members.clear();
  EXPECT_THAT(x.world.violations(), IsEmpty());
}

// given: participant 0, which makes no id, or not in time / expected: the other hears of it at once
TEST(nccl_communicator, without_an_id_nobody_waits) {
  for (const auto what : {nccl_fault::fail, nccl_fault::freeze}) {
    pair_by_nccl x;
    x.limits.id = 200ms;
    x.world.plan(0, nccl_call::make_id, 1, what);
    const auto begin = std::chrono::steady_clock::now();
    x.connect();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
    EXPECT_EQ(x.of(0).state().now, phase::failed);
    EXPECT_TRUE(x.of(0).state().own);
    EXPECT_THAT(x.of(1).state().problem, HasSubstr("participant 0 has made no id"));
    EXPECT_FALSE(x.of(1).state().own);
    EXPECT_EQ(x.world.calls_of(1, nccl_call::begin), 0u);
    x.ports.each([&](std::uint32_t j) { x.members[j]->exchange(1, 1 - j, 2, 500); });
    x.world.release();
  }
}

// given: a message that was not given / expected: to wait for it is a mistake of the program
TEST(nccl_communicator, what_was_not_given_is_not_waited_for) {
  pair_by_nccl x;
  x.connect();
  x.take_over();
  const auto open = x.members[0]->post(7, 1, false, 0, 1000);
  EXPECT_FALSE(x.of(0).done(open));
  EXPECT_THROW(x.of(0).wait(open, patience), std::logic_error);
}

// given: a participant that dies before its half of a group is in the stream / expected: its peer's wait has returned,
// as it needs no word of it; once that aborts its device's work ends without error, and check says that it is worth
// nothing
TEST(nccl_communicator, what_was_cut_off_is_said_to_be) {
  pair_by_nccl x;
  x.connect();
  x.take_over();
  auto& on = x.slots[0]->on;
  x.world.plan(1, nccl_call::end_group, 1, nccl_fault::die);
  const auto sent = x.members[1]->post_and_give(7, 0, true, 0, 1000);
  const auto received = x.members[0]->post_and_give(7, 1, false, 0, 1000);
  x.of(0).wait(received, patience);
  const auto after = on.compute().record();
  EXPECT_FALSE(after->wait(50ms));
  x.of(0).abort();
  EXPECT_TRUE(after->wait(patience)) << "what was given ends";
  EXPECT_THAT(what_of([&] { x.of(0).check(); }), HasSubstr("aborted"));
  const auto begin = std::chrono::steady_clock::now();
  x.members[0]->comm.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
  EXPECT_EQ(x.stuck, 0);
  x.world.release();
  x.members.clear();
  EXPECT_THAT(x.world.violations(), IsEmpty());
}

// given: an abort that does not return, with a group in the stream or without one / expected: waits end at once; with
// one the process is to end; without, it may go on, but NCCL is not used again, not even when the abort has come back
TEST(nccl_communicator, an_abort_that_never_returns) {
  for (const bool under_way : {true, false}) {
    pair_by_nccl x;
    x.connect();
    x.take_over();
    x.world.plan(0, nccl_call::abort, 1, nccl_fault::freeze);
    if (under_way) {
      x.world.plan(1, nccl_call::start_group, 1, nccl_fault::freeze);
      const auto sent = x.members[1]->post_and_give(7, 0, true, 0, 1000);
      const auto received = x.members[0]->post_and_give(7, 1, false, 0, 1000);
      x.of(0).wait(received, patience);
    }
    const auto begin = std::chrono::steady_clock::now();
    x.of(0).abort();
    EXPECT_THAT(what_of([&] { x.of(0).wait(x.members[0]->post_and_give(7, 1, false, 1, 1000), patience); }),
                HasSubstr("aborted"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 200ms);
    x.members[0]->comm.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
    EXPECT_EQ(x.stuck, under_way ? 1 : 0);
    EXPECT_TRUE(x.slots[0]->lost);
    x.of(1).abort();
    x.members[1]->comm.reset();
    x.stuck = 0;
    if (!under_way) {
      x.connect();
      EXPECT_THAT(x.of(0).state().problem, HasSubstr("never returned"));
    }
    x.world.release();
    EXPECT_TRUE(eventually([&] { return !x.slots[0]->busy; })) << "what was lost has ended";
    const auto calls = x.world.calls_of(0, nccl_call::make_id);
    x.connect();
    EXPECT_THAT(x.of(0).state().problem, HasSubstr("never returned"));
    EXPECT_EQ(x.world.calls_of(0, nccl_call::make_id), calls);
    x.members.clear();
    EXPECT_FALSE(x.slots[0]->busy);
    EXPECT_THAT(x.world.violations(), IsEmpty());
  }
}

// given: errors of calls, within a group too, and of the communicator's state / expected: messages fail there, with the
// reason
TEST(nccl_communicator, says_what_nccl_says) {
  const std::pair<nccl_call, nccl_fault> table[] = {{nccl_call::receive, nccl_fault::fail},
                                                    {nccl_call::end_group, nccl_fault::fail},
                                                    {nccl_call::end_group, nccl_fault::spoil}};
  for (const auto& [where, what] : table) {
    pair_by_nccl x;
    x.connect();
    x.take_over();
    x.world.plan(1, where, 1, what);
    const auto sent = x.members[0]->post_and_give(7, 1, true, 0, 1000);
    const auto received = x.members[1]->post_and_give(7, 0, false, 0, 1000);
    const auto failure = what_of([&] {
      x.of(1).wait(received, patience);
      x.of(1).check();
    });
    EXPECT_THAT(failure, HasSubstr(what == nccl_fault::fail ? "a call of the system failed" : "another participant"));
    EXPECT_THAT(failure, HasSubstr("the double says so"));
    x.of(0).abort();
    x.members.clear();
    EXPECT_THAT(x.world.violations(), IsEmpty());
  }
}

// given: generations one after the other on the same devices / expected: each has NCCL
TEST(nccl_communicator, one_after_the_other) {
  pair_by_nccl x;
  for (int i = 0; i < 5; ++i) {
    x.connect();
    ASSERT_EQ(x.of(0).state().now, phase::ready) << x.of(0).state().problem;
    x.take_over();
    x.ports.each([&](std::uint32_t j) { x.members[j]->exchange(1, 1 - j, 5, 5000); });
  }
  x.members.clear();
  EXPECT_THAT(x.world.violations(), IsEmpty());
  EXPECT_EQ(x.world.calls_of(0, nccl_call::abort), 5u);
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
    EXPECT_THAT(x.world.violations(), IsEmpty());
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

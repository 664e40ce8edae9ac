// What copies from device to device do that other ways do not.

#include "tests/gpu/dataplane/data_plane_fixture.hpp"
#include "tests/support/fake_device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace parcae {
namespace {

using namespace testing;
using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr std::size_t bytes = 1 << 20;
constexpr tag gradient{channel::gradient, 5, 2};

/// What sets the last of some participants apart.
enum class last_one { like_others, of_another_process, of_another_token };

/// Participants whose devices do what they are given later.
struct late_ends : cluster {
  explicit late_ends(std::uint32_t n, last_one last = last_one::like_others) : cluster(n) {
    ends.resize(n);
    each([&](std::uint32_t i) {
      const bool apart = i + 1 == n;
      auto& at = apart && last == last_one::of_another_process ? elsewhere : peers;
      auto shown = plan;
      if (apart && last == last_one::of_another_token)
        ++shown.token.low;
      auto place = at.enter(purpose::generation, shown, slot(i), on(i));
      auto below = make_staged_communicator(ports[i]->connect(plan, slot(i), patience, never), on(i));
      ends[i] = make_peer_communicator(std::move(below), std::move(place), at);
    });
  }

  static device& on(std::uint32_t i) { return late_fake_device(i); }
  static std::span<std::byte> span_of(const device_memory& x) { return {x.get(), bytes}; }
  memory_view view(std::uint32_t i, const device_memory& x) { return {span_of(x), &on(i)}; }

  peer_meeting elsewhere;
  std::vector<std::unique_ptr<peer_communicator>> ends;
};

std::vector<std::byte> content_of(const device_memory& x) {
  const auto* begin = static_cast<const std::byte*>(readable(x.get()));
  return {begin, begin + bytes};
}

// given: memory that the sender's device fills behind the send's back and fills anew once it has waited, a receiver
// that reads what came into a copy, both of devices that are late / expected: what was there when it was sent
TEST(peer_communicator, keeps_the_order_of_both_devices_work) {
  late_ends x(2);
  const auto out = x.on(0).allocate(bytes), in = x.on(1).allocate(bytes), copy = x.on(1).allocate(bytes);
  const auto before = copies_between_devices();
  for (int round = 0; round < 20; ++round) {
    const auto what = random_bytes(bytes, round), other = random_bytes(bytes, 100 + round);
    const auto fill = [&](const std::vector<std::byte>& with) {
      give_work(x.on(0).compute(), [to = readable(out.get()), &with] { std::memcpy(to, with.data(), bytes); });
    };
    fill(what);
    const auto sent = x.ends[0]->send(1, gradient, x.view(0, out));
    EXPECT_FALSE(x.ends[0]->done(sent)) << "nobody receives it";
    const auto received = x.ends[1]->receive(0, gradient, x.view(1, in));
    x.ends[0]->wait(sent, patience);
    fill(other);
    x.ends[1]->wait(received, patience);
    x.on(1).compute().copy(copy.get(), in.get(), bytes);
    ASSERT_TRUE(x.on(1).compute().record()->wait(patience));
    ASSERT_TRUE(content_of(copy) == what) << round;
    ASSERT_TRUE(x.on(0).compute().record()->wait(patience));
  }
  EXPECT_EQ(copies_between_devices() - before, 20u);
}

// given: two participants of one process and one of another, or one that was prepared by another token / expected:
// copies between the two only, messages arrive from everybody
class peers_and_one_apart : public ::testing::TestWithParam<last_one> {};
TEST_P(peers_and_one_apart, goes_below_to_others) {
  late_ends x(3, GetParam());
  const auto out = x.on(0).allocate(bytes), first = x.on(1).allocate(bytes), second = x.on(2).allocate(bytes);
  const auto what = random_bytes(bytes, 1);
  std::memcpy(readable(out.get()), what.data(), bytes);
  const auto before = copies_between_devices();
  const std::array sent{x.ends[0]->send(1, gradient, x.view(0, out)), x.ends[0]->send(2, gradient, x.view(0, out))};
  const std::array received{x.ends[1]->receive(0, gradient, x.view(1, first)),
                            x.ends[2]->receive(0, gradient, x.view(2, second))};
  for (std::uint32_t i = 0; i < 2; ++i) {
    x.ends[i + 1]->wait(received[i], patience);
    x.ends[0]->wait(sent[i], patience);
    ASSERT_TRUE(x.on(i + 1).compute().record()->wait(patience));
  }
  EXPECT_EQ(copies_between_devices() - before, 1u);
  EXPECT_TRUE(content_of(first) == what);
  EXPECT_TRUE(content_of(second) == what);
  EXPECT_EQ(x.ends[0]->copies(), (peer_copies{true, {}}));
  EXPECT_EQ(x.ends[2]->copies(), peer_copies{});
}
INSTANTIATE_TEST_SUITE_P(peer_communicator, peers_and_one_apart,
                         ::testing::Values(last_one::of_another_process, last_one::of_another_token));

// given: devices between which copies come with another bit / expected: that is seen before anything is sent, and all
// goes by TCP
TEST(peer_communicator, does_without_copies_that_come_wrong) {
  const spoilt_copies spoilt;
  late_ends x(2);
  const auto out = x.on(0).allocate(bytes), in = x.on(1).allocate(bytes);
  const auto what = random_bytes(bytes, 1);
  std::memcpy(readable(out.get()), what.data(), bytes);
  const auto sent = x.ends[0]->send(1, gradient, x.view(0, out));
  x.ends[1]->wait(x.ends[1]->receive(0, gradient, x.view(1, in)), patience);
  x.ends[0]->wait(sent, patience);
  ASSERT_TRUE(x.on(1).compute().record()->wait(patience));
  EXPECT_TRUE(content_of(in) == what);
  for (const auto& end : x.ends) {
    EXPECT_FALSE(end->copies().used);
    EXPECT_THAT(end->copies().reason,
                ::testing::AllOf(HasSubstr("privateuseone:0"), HasSubstr("comes with other bits")));
  }
}

// given: two participants with one device / expected: copies within it
TEST(peer_communicator, copies_within_a_device) {
  cluster x(2);
  auto& on = fake_device(0);
  std::vector<std::unique_ptr<peer_communicator>> ends(2);
  x.each([&](std::uint32_t i) {
    auto place = x.peers.enter(purpose::generation, x.plan, x.slot(i), on);
    auto below = make_staged_communicator(x.ports[i]->connect(x.plan, x.slot(i), patience, x.never), on);
    ends[i] = make_peer_communicator(std::move(below), std::move(place), x.peers);
  });
  const auto out = on.allocate(bytes), in = on.allocate(bytes);
  const auto what = random_bytes(bytes, 1);
  std::memcpy(readable(out.get()), what.data(), bytes);
  const auto before = copies_between_devices();
  const auto received = ends[1]->receive(0, gradient, memory_view(std::span(in.get(), bytes), &on));
  ends[0]->wait(ends[0]->send(1, gradient, const_memory_view(std::span(out.get(), bytes), &on)), patience);
  ends[1]->wait(received, patience);
  EXPECT_TRUE(content_of(in) == what);
  EXPECT_EQ(copies_between_devices() - before, 1u);
}

// given: a copy that cannot begin yet, as the sender's device has more to do, and an end that goes meanwhile /
// expected: it goes when nothing touches its memory any more
TEST(peer_communicator, goes_when_nothing_is_copied_any_more) {
  for (const std::uint32_t who : {0u, 1u}) {
    late_ends x(2);
    auto out = x.on(0).allocate(bytes), in = x.on(1).allocate(bytes);
    std::promise<void> may_go_on;
    give_work(x.on(0).compute(), [held = may_go_on.get_future().share()] { held.wait_for(patience); });
    const auto sent = x.ends[0]->send(1, gradient, x.view(0, out));
    const auto received = x.ends[1]->receive(0, gradient, x.view(1, in));
    std::atomic<bool> gone = false;
    std::thread end([&] {
      x.ends[who].reset();
      gone = true;
    });
    EXPECT_TRUE(eventually([&] { // it is closed, and its end has begun
      const auto later = x.on(1 - who).allocate(bytes);
      const auto next =
          who == 0 ? x.ends[1]->receive(0, gradient, x.view(1, later)) : x.ends[0]->send(1, gradient, x.view(0, later));
      return x.ends[1 - who]->done(next);
    }));
    EXPECT_FALSE(gone);
    may_go_on.set_value();
    end.join();
    EXPECT_TRUE(x.ends[1 - who]->done(who == 0 ? received : sent));
    x.ends[1 - who]->wait(who == 0 ? received : sent, patience);
  }
}

// given: calls about the receiver's events that do not return, of who gives a copy, or waits for one when it goes /
// expected: both ends' abort() returns, and waits end
TEST(peer_communicator, aborts_while_events_stand_still) {
  for (const auto call : {device_call::record, device_call::look}) {
    SCOPED_TRACE(static_cast<int>(call));
    late_ends x(2);
    const auto out = x.on(0).allocate(bytes), in = x.on(1).allocate(bytes), more = x.on(1).allocate(bytes);
    const auto exchange = [&] { // behind which the sender looks whether earlier copies are done
      const auto received = x.ends[1]->receive(0, gradient, x.view(1, in));
      x.ends[0]->wait(x.ends[0]->send(1, gradient, x.view(0, out)), patience);
      x.ends[1]->wait(received, patience);
    };
    exchange();
    const auto last = x.ends[1]->receive(0, gradient, x.view(1, more));
    std::optional<stuck_calls> stuck(std::in_place, x.on(1), call);
    std::thread sends([&] { x.ends[0]->send(1, gradient, x.view(0, out)); });
    EXPECT_TRUE(eventually([&] { return stuck->calls() > 0; }));
    auto waits = std::async(std::launch::async, [&] { x.ends[1]->wait(last, patience); });
    EXPECT_TRUE(stuck->are_not_in_the_way_of([&] { x.ends[0]->abort(); }));
    EXPECT_TRUE(stuck->are_not_in_the_way_of([&] { EXPECT_THROW(waits.get(), communication_error); }));
    EXPECT_TRUE(stuck->are_not_in_the_way_of([&] { x.ends[1]->abort(); }));
    stuck.reset();
    sends.join();
  }
}

TEST(peer_communicator, aborts_while_another_end_goes_and_events_stand_still) {
  late_ends x(2);
  const auto out = x.on(0).allocate(bytes), in = x.on(1).allocate(bytes);
  const auto received = x.ends[1]->receive(0, gradient, x.view(1, in));
  x.ends[0]->wait(x.ends[0]->send(1, gradient, x.view(0, out)), patience);
  std::optional<stuck_calls> stuck(std::in_place, x.on(1), device_call::look);
  std::thread goes([&] { x.ends[0].reset(); });
  EXPECT_TRUE(eventually([&] { return stuck->calls() > 0; }));
  EXPECT_TRUE(stuck->are_not_in_the_way_of([&] { x.ends[1]->abort(); }));
  stuck.reset();
  goes.join();
}

// given: a slot that left / expected: the other one's next message fails
TEST(peer_communicator, who_left_is_no_peer) {
  late_ends x(2);
  x.ends[1].reset();
  const auto out = x.on(0).allocate(bytes);
  try {
    x.ends[0]->wait(x.ends[0]->send(1, gradient, x.view(0, out)), patience);
    FAIL();
  } catch (const communication_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("participant 1 (node-1/0): closed by the peer"));
  }
}

} // namespace
} // namespace parcae

#include "gpu/dataplane/connection_watch.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace parcae;

namespace {

tcp_info info(unsigned probes, unsigned retransmits, unsigned silent_ms) {
  tcp_info x{};
  x.tcpi_probes = static_cast<std::uint8_t>(probes);
  x.tcpi_retransmits = static_cast<std::uint8_t>(retransmits);
  x.tcpi_last_ack_recv = silent_ms;
  return x;
}

} // namespace

// given: unanswered probes, repetitions, milliseconds since the other host was heard / expected: silent only if it
// should have answered, and long enough: an idle connection, and one without room there, are no sign of anything
TEST(connection_watch, silence_is_of_who_should_answer) {
  EXPECT_FALSE(is_silent(info(0, 0, 0)));
  EXPECT_FALSE(is_silent(info(0, 0, 60'000)));
  EXPECT_FALSE(is_silent(info(1, 0, 1'100)));
  EXPECT_FALSE(is_silent(info(0, 3, 1'900)));
  EXPECT_TRUE(is_silent(info(2, 0, 2'300)));
  EXPECT_TRUE(is_silent(info(0, 4, 2'300)));
}

// given: a connection that is there, one whose owner is gone, one that is closed / expected: looked at, not touched
TEST(connection_watch, forgets_who_is_gone) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  const auto owner = std::make_shared<int>(0);
  connection_watch connections;
  int looked = 0, closed = 0;
  const auto connection = [&](const std::shared_ptr<int>& by, int descriptor) {
    return watched_connection{.owner = by,
                              .descriptor =
                                  [&, descriptor] {
                                    ++looked;
                                    return descriptor;
                                  },
                              .close = [&](const std::string&) { ++closed; },
                              .name = "a",
                              .peer = {}};
  };
  connections.add(connection(owner, socket));
  connections.add(connection(std::make_shared<int>(0), socket));
  connections.add(connection(owner, -1));
  looked = 0;
  connections.look();
  EXPECT_EQ(looked, 2); // nothing is asked of who is gone
  connections.look();
  EXPECT_EQ(looked, 3);
  EXPECT_EQ(closed, 0);
  ::close(socket);
}

// given: what connections brought over a link of 100 MB/s in looks of 200 ms / expected: the most that one was seen to
// bring in the time that it was busy, or all together within the time that there was; nothing of what was short;
// nothing any more after a minute
TEST(link_rate, is_the_most_that_was_seen) {
  using namespace std::chrono_literals;
  constexpr std::uint64_t mb = 1'000'000;
  link_rate x;
  auto now = std::chrono::steady_clock::time_point{} + 1h;
  const auto look = [&](std::vector<link_use> uses) {
    x.note(uses, 200ms, now += 200ms);
    return x.bytes_per_s(now);
  };
  EXPECT_EQ(look({}), 0);
  EXPECT_EQ(look({{8 * mb, 10ms}}), 0) << "a burst";
  EXPECT_DOUBLE_EQ(look({{4 * mb, 80ms}}), 50e6) << "it shared the link";
  EXPECT_DOUBLE_EQ(look({{4 * mb, 100ms}, {4 * mb, 100ms}}), 50e6) << "one after the other, or at the same time";
  EXPECT_DOUBLE_EQ(look({{10 * mb, 200ms}, {10 * mb, 200ms}}), 100e6);
  EXPECT_DOUBLE_EQ(look({{1 * mb, 200ms}}), 100e6) << "the most counts";
  now += link_rate::age;
  EXPECT_DOUBLE_EQ(look({{1 * mb, 100ms}}), 100e6);
  now += link_rate::age;
  EXPECT_DOUBLE_EQ(look({}), 10e6) << "links change";
  now += 2 * link_rate::age;
  EXPECT_EQ(x.bytes_per_s(now), 0);
}

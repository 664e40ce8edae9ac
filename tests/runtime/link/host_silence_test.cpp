#include "runtime/link/host_silence.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace parcae {
namespace {

using std::chrono::milliseconds;

tcp_info heard(unsigned retransmits, unsigned ack_ms, unsigned data_ms, unsigned rtt_us = 200) {
  tcp_info x{};
  x.tcpi_retransmits = static_cast<std::uint8_t>(retransmits);
  x.tcpi_last_ack_recv = ack_ms;
  x.tcpi_last_data_recv = data_ms;
  x.tcpi_rtt = rtt_us;
  return x;
}

} // namespace

// given: repetitions, time since an acknowledgement and since data came, round trip / expected: vanished if it owes an
// answer for a second and two round trips
TEST(host_silence, is_of_who_owes_an_answer) {
  EXPECT_FALSE(has_vanished(silence_in(heard(0, 60'000, 60'000)), true)) << "nothing was asked";
  EXPECT_FALSE(has_vanished(silence_in(heard(2, 900, 900)), true)) << "its link stood still for 0.4 s";
  EXPECT_FALSE(has_vanished(silence_in(heard(2, 1'400, 300)), true)) << "it says something";
  EXPECT_FALSE(has_vanished(silence_in(heard(2, 300, 1'400)), true)) << "it acknowledges";
  EXPECT_TRUE(has_vanished(silence_in(heard(1, 1'001, 1'001)), true));
  EXPECT_FALSE(has_vanished(silence_in(heard(1, 1'150, 1'150, 100'000)), true)) << "it is far away";
  EXPECT_TRUE(has_vanished(silence_in(heard(1, 1'201, 1'201, 100'000)), true));
}

// given: nobody else is heard / expected: it may be this host that is not
TEST(host_silence, of_all_is_no_sign) {
  EXPECT_FALSE(has_vanished(silence_in(heard(3, 1'500, 1'500)), false));
}

// given: a socket that is closed, one that is not connected / expected: nothing is known of the first, the second owes
// nothing
TEST(host_silence, asks_the_kernel) {
  EXPECT_FALSE(silence_of(-1));
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  const auto known = silence_of(socket);
  ASSERT_TRUE(known);
  EXPECT_FALSE(known->owes_answer);
  EXPECT_EQ(known->limit, longest_silence);
  ::close(socket);
  EXPECT_FALSE(silence_of(socket));
}

} // namespace parcae

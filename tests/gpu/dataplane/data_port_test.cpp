#include "gpu/dataplane/frames.hpp"
#include "tests/gpu/dataplane/data_plane_fixture.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

using namespace parcae;
using namespace parcae::rig;
using ::testing::HasSubstr;

namespace {

/// A client that speaks as it likes. Reads end within ten seconds.
struct raw_client {
  explicit raw_client(std::uint16_t port) : socket(io) {
    socket.connect({boost::asio::ip::address_v4::loopback(), port});
    timeval limit{10, 0};
    ::setsockopt(socket.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }

  template <class Bytes>
  void write(const Bytes& x) {
    boost::system::error_code ignored; // the port may have closed already
    boost::asio::write(socket, boost::asio::buffer(x), ignored);
  }

  /// The verdict, or nothing if the connection was closed without.
  std::optional<refusal> verdict() {
    std::array<std::byte, verdict_size> bytes;
    if (::recv(socket.native_handle(), bytes.data(), bytes.size(), MSG_WAITALL) != verdict_size)
      return std::nullopt;
    return decode_verdict(bytes);
  }

  boost::asio::io_context io;
  boost::asio::ip::tcp::socket socket;
};

void expect_works(communicator& from, communicator& to, std::uint32_t step) {
  tag what{channel::activation, step, 0};
  auto bytes = random_bytes(1000, step);
  std::vector<std::byte> in(bytes.size());
  from.send(to.self(), what, bytes);
  to.wait(to.receive(from.self(), what, in), patience);
  EXPECT_TRUE(in == bytes);
}

greeting greeting_of(const cluster& c, std::uint32_t from, std::uint32_t to) {
  return {purpose::generation, from, to, c.plan.job, c.plan.next, c.plan.token, {}, {}};
}

} // namespace

// given: bytes that are no greeting / expected: closed without an answer; a running generation is not disturbed
TEST(data_port, random_bytes_are_refused) {
  cluster c(2);
  auto ends = c.connect_all();
  std::mt19937_64 draw(5);
  for (std::uint32_t i = 0; i < 50; ++i) {
    raw_client client(c.ports[1]->port());
    client.write(random_bytes(greeting_size + draw() % 5000, draw()));
    EXPECT_EQ(client.verdict(), std::nullopt);
    expect_works(*ends[0], *ends[1], i);
  }
}

// given: a valid greeting with each bit flipped in turn / expected: it is none, or says something else
TEST(data_port, damaged_greetings_are_noticed) {
  cluster c(2);
  auto good = encode(greeting_of(c, 0, 1));
  int unnoticed = 0;
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    auto bytes = good;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    auto x = decode_greeting(bytes);
    if (x && encode(*x) == good)
      ++unnoticed;
  }
  EXPECT_EQ(unnoticed, 0);
}

TEST(data_port, a_silent_connection_is_closed) {
  cluster c(1);
  raw_client silent(c.ports[0]->port()), slow(c.ports[0]->port());
  slow.write(std::string("par"));
  auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(silent.verdict(), std::nullopt);
  EXPECT_EQ(slow.verdict(), std::nullopt);
  auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GT(took, 4s);
  EXPECT_LT(took, 9s);
}

TEST(data_port, another_protocol_version_is_told_so) {
  cluster c(1);
  raw_client client(c.ports[0]->port());
  auto hello = greeting_of(c, 0, 1);
  hello.protocol = 99;
  client.write(encode(hello));
  EXPECT_EQ(client.verdict(), refusal::protocol);
}

TEST(data_port, a_wrong_token_ends_connecting_at_once) {
  cluster c(2);
  auto other = c.plan;
  other.token.low ^= 1;
  std::atomic<bool> cancelled = false;
  auto right = std::async(std::launch::async, [&] {
    EXPECT_THROW(c.ports[1]->connect(c.plan, c.slot(1), patience, cancelled), communication_error);
  });
  try {
    c.ports[0]->connect(other, c.slot(0), patience, c.never);
    FAIL();
  } catch (const unreachable_peer& e) {
    EXPECT_EQ(e.peer, 1u);
    EXPECT_THAT(e.what(), HasSubstr("wrong token"));
  }
  cancelled = true;
  right.get();
}

// given: a greeting before the generation is prepared here / expected: answered when it is
TEST(data_port, early_greetings_wait) {
  cluster c(2);
  raw_client early(c.ports[1]->port()), wrong(c.ports[1]->port()), stranger(c.ports[1]->port());
  auto bad = greeting_of(c, 0, 1);
  bad.token.high ^= 1;
  wrong.write(encode(bad));
  early.write(encode(greeting_of(c, 0, 1)));
  bad.protocol = 99;
  stranger.write(encode(bad));
  EXPECT_EQ(stranger.verdict(), refusal::protocol); // so the others were read
  auto comm = c.connect(1);
  EXPECT_EQ(early.verdict(), refusal::none);
  EXPECT_EQ(wrong.verdict(), refusal::token);
}

// given: a parked greeting whose sender left / expected: not taken for the participant
TEST(data_port, a_parked_greeting_goes_with_its_sender) {
  cluster c(2);
  {
    raw_client gone(c.ports[1]->port());
    gone.write(encode(greeting_of(c, 0, 1)));
  }
  auto ends = c.connect_all();
  expect_works(*ends[0], *ends[1], 1);
  expect_works(*ends[1], *ends[0], 2);
}

// given: a participant that starts late, in another process or port / expected: dialled again until it is there
TEST(data_port, dialling_is_repeated) {
  cluster c(2);
  auto number = c.ports[1]->port();
  c.ports[1].reset();
  auto first = std::async(std::launch::async, [&] { return c.connect(0); });
  c.ports[1] = make_data_port("127.0.0.1", number);
  auto second = c.connect(1);
  expect_works(*first.get(), *second, 1);
}

TEST(data_port, who_cannot_be_reached_is_named) {
  cluster c(3);
  c.ports[2].reset();
  auto other = std::async(std::launch::async, [&] {
    try {
      c.connect(1, 300ms);
      ADD_FAILURE();
    } catch (const unreachable_peer& e) {
      EXPECT_EQ(e.peer, 2u);
    }
  });
  try {
    c.connect(0, 300ms);
    FAIL();
  } catch (const unreachable_peer& e) {
    EXPECT_EQ(e.peer, 2u);
    EXPECT_THAT(e.what(), HasSubstr("node-2/0"));
  }
  other.get();
}

TEST(data_port, connecting_can_be_cancelled) {
  cluster c(2);
  std::atomic<bool> cancelled = false;
  for (std::uint32_t self : {0u, 1u}) {
    cancelled = false;
    auto begin = std::chrono::steady_clock::now();
    auto end = std::async(std::launch::async,
                          [&] { return c.ports[self]->connect(c.plan, c.slot(self), patience, cancelled); });
    cancelled = true;
    EXPECT_THROW(end.get(), communication_error);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
  }
  auto ends = c.connect_all(); // nothing is left of the attempts
  expect_works(*ends[0], *ends[1], 1);
}

// given: two generations at once between the same ports / expected: they do not meet
TEST(data_port, generations_are_apart) {
  cluster c(2);
  auto old = c.connect_all();
  c.plan.next = {4};
  c.plan.token = {77, 77};
  auto young = c.connect_all();
  expect_works(*old[0], *old[1], 1);
  expect_works(*young[1], *young[0], 2);
  old[0]->abort();
  expect_works(*young[0], *young[1], 3);
}

TEST(data_port, who_is_not_a_participant_is_told_so) {
  cluster c(1);
  EXPECT_THROW(c.ports[0]->connect(c.plan, {"stranger", {1}, 0}, 100ms, c.never), communication_error);
}

TEST(data_port, an_address_in_use_is_an_error_that_names_it) {
  auto first = make_data_port("127.0.0.1");
  try {
    make_data_port("127.0.0.1", first->port());
    FAIL();
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("127.0.0.1:" + std::to_string(first->port())));
  }
}

namespace {

/// Rank 1 lets gateways in; node-0 is one.
struct passes_cluster : cluster {
  passes_cluster() : cluster(2), gate(ports[1]->accept_passes(plan, 1)) {}

  pass_call call(pass_end end) const { return {plan.job, plan.next, plan.token, 1, plan.target.participants[1], end}; }
  std::unique_ptr<communicator> dial(const pass_call& x, std::chrono::milliseconds limit = patience) {
    return ports[0]->connect_passes(x, limit, cancelled);
  }
  std::shared_ptr<communicator> came(pass_end end) {
    std::shared_ptr<communicator> result;
    eventually([&] { return (result = gate->newest(end)) != nullptr; });
    return result;
  }

  std::atomic<bool> cancelled = false;
  std::unique_ptr<pass_gate> gate;
};

void expect_passes(communicator& from, communicator& to) {
  const auto bytes = random_bytes(1000, 1);
  std::vector<std::byte> in(bytes.size());
  from.send(pass_peer, {channel::pass, 1, 0}, bytes);
  to.wait(to.receive(pass_peer, {channel::pass, 1, 0}, in), patience);
  EXPECT_TRUE(in == bytes);
}

} // namespace

// given: a gateway that connects with both ends, then anew / expected: each is there; the newest counts, and the one
// before is closed
TEST(data_port, takes_the_newest_connection_of_a_gateway) {
  passes_cluster c;
  EXPECT_FALSE(c.gate->newest(pass_end::rows));
  const auto rows = c.dial(c.call(pass_end::rows)), tokens = c.dial(c.call(pass_end::tokens));
  expect_passes(*rows, *c.came(pass_end::rows));
  expect_passes(*c.came(pass_end::tokens), *tokens);
  const auto before = c.came(pass_end::rows);
  const auto again = c.dial(c.call(pass_end::rows));
  std::vector<std::byte> in(10);
  EXPECT_THROW(rows->wait(rows->receive(pass_peer, {channel::pass, 1, 0}, in), patience), communication_error);
  EXPECT_NE(c.came(pass_end::rows), before);
  expect_passes(*again, *c.came(pass_end::rows));
  c.gate->close();
  EXPECT_THROW(again->wait(again->receive(pass_peer, {channel::pass, 1, 0}, in), patience), communication_error);
}

// given: a wrong token, a rank or a generation that lets nobody in, one that does later, and a cancelled call /
// expected: refused for good, tried until the limit, connected, and given up
TEST(data_port, lets_gateways_in_by_token_where_they_are_expected) {
  passes_cluster c;
  auto wrong = c.call(pass_end::rows);
  wrong.token.low ^= 1;
  EXPECT_THROW(c.dial(wrong), communication_error);
  auto other = c.call(pass_end::rows);
  other.rank = 0;
  EXPECT_THROW(c.dial(other, 50ms), communication_error);
  other.rank = 1;
  other.of = {4};
  auto later = std::async(std::launch::async, [&] { return c.dial(other); });
  auto plan = c.plan;
  plan.next = {4};
  const auto gate = c.ports[1]->accept_passes(plan, 1);
  EXPECT_TRUE(later.get());
  other.of = {5};
  auto given_up = std::async(std::launch::async, [&] { return c.dial(other); });
  c.cancelled = true;
  EXPECT_THROW(given_up.get(), communication_error);
}

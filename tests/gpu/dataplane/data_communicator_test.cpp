#include "tests/gpu/dataplane/data_plane_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace parcae;
using namespace parcae::rig;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

constexpr tag activation{channel::activation, 5, 2};

std::string failure_of(communicator& comm, const ticket& x) {
  try {
    comm.wait(x, patience);
  } catch (const communication_error& e) {
    return e.what();
  }
  return "";
}

/// A pair of participants and their ends.
struct pair_of_ends : cluster {
  pair_of_ends() : cluster(2), ends(connect_all()) {}

  std::vector<std::unique_ptr<communicator>> ends;
};

} // namespace

// given: n participants / expected: every one reaches every other, with messages of all sizes in both directions at
// once
TEST(data_communicator, full_mesh_in_both_directions) {
  const std::vector<std::size_t> sizes{0, 1, 39, 4096, 100'000, 9'000'000, 3};
  for (std::uint32_t n : {1u, 2u, 4u}) {
    cluster c(n);
    auto ends = c.connect_all();
    c.each([&](std::uint32_t self) {
      auto& comm = *ends[self];
      ASSERT_EQ(comm.self(), self);
      ASSERT_EQ(comm.size(), n);
      std::vector<ticket> tickets;
      std::vector<std::vector<std::byte>> out, in;
      out.reserve(100), in.reserve(100);
      for (std::uint32_t peer = 0; peer < n; ++peer)
        for (std::uint32_t i = 0; peer != self && i < sizes.size(); ++i) {
          tag what{i % 2 ? channel::shard : channel::activation, 1, i};
          out.push_back(random_bytes(sizes[i], self * 1000 + peer * 100 + i));
          in.push_back(std::vector<std::byte>(sizes[i]));
          tickets.push_back(comm.send(peer, what, out.back()));
          tickets.push_back(comm.receive(peer, what, in.back()));
        }
      for (auto& x : tickets)
        comm.wait(x, patience);
      std::size_t at = 0;
      for (std::uint32_t peer = 0; peer < n; ++peer)
        for (std::uint32_t i = 0; peer != self && i < sizes.size(); ++i)
          EXPECT_TRUE(in[at++] == random_bytes(sizes[i], peer * 1000 + self * 100 + i)) << peer << " " << i;
    });
  }
}

// given: a receive that differs from what was sent in / expected: an error that names both
TEST(data_communicator, mismatches_are_errors) {
  const std::vector<std::pair<tag, std::size_t>> wrong{{{channel::gradient, 5, 2}, 16},   // kind
                                                       {{channel::activation, 6, 2}, 16}, // step
                                                       {{channel::activation, 5, 3}, 16}, // index
                                                       {activation, 15},                  // too short
                                                       {activation, 17}};                 // too long
  for (auto& [what, size] : wrong) {
    pair_of_ends x;
    std::vector<std::byte> out(16), in(size);
    x.ends[0]->send(1, activation, out);
    EXPECT_THAT(failure_of(*x.ends[1], x.ends[1]->receive(0, what, in)),
                AllOf(HasSubstr("expected kind"), HasSubstr("came kind 1 step 5 index 2 with 16 bytes"),
                      HasSubstr("participant 0 (node-0/0)")));
    EXPECT_NE(failure_of(*x.ends[1], x.ends[1]->receive(0, activation, in)), "") << "stays unusable";
  }
}

#ifndef PARCAE_DATA_PEERS // there, what was sent is in the sender's memory until its receive is posted

// given: a peer that sent everything and left / expected: what it sent still arrives, what it did not send fails, and
// other peers are not affected
TEST(data_communicator, what_arrived_before_the_end_is_delivered) {
  cluster c(3);
  auto ends = c.connect_all();
  auto bytes = random_bytes(300'000, 2);
  std::vector<std::byte> first(bytes.size()), second(bytes.size()), third(bytes.size()), other(bytes.size());
  auto posted = ends[1]->receive(0, activation, first);
  ends[0]->wait(ends[0]->send(1, activation, bytes), patience);
  ends[0]->wait(ends[0]->send(1, activation, bytes), patience);
  ends[0].reset();
  ends[1]->wait(posted, patience);
  EXPECT_TRUE(first == bytes);
  auto posted_second = ends[1]->receive(0, activation, second);
  ends[1]->wait(posted_second, patience);
  EXPECT_TRUE(second == bytes);
  EXPECT_THAT(failure_of(*ends[1], ends[1]->receive(0, activation, third)), HasSubstr("closed by the peer"));

  auto sent = ends[2]->send(1, activation, bytes);
  ends[1]->wait(ends[1]->receive(2, activation, other), patience);
  EXPECT_TRUE(other == bytes);
  ends[2]->wait(sent, patience);

  ends[1]->abort();
  ends[1]->wait(posted, patience); // done stays done
  EXPECT_TRUE(ends[1]->done(posted));
}

// given: a peer that left without reading what was sent to it, as a killed process does, so that its kernel sends a
// reset / expected: what it sent before still arrives
TEST(data_communicator, what_arrived_before_a_reset_is_delivered) {
  pair_of_ends x;
  auto bytes = random_bytes(100'000, 4);
  std::vector<std::byte> in(bytes.size());
  auto posted = x.ends[1]->receive(0, activation, in);
  x.ends[1]->wait(x.ends[1]->send(0, activation, bytes), patience); // never read
  x.ends[0]->wait(x.ends[0]->send(1, activation, bytes), patience);
  x.ends[0].reset();
  EXPECT_TRUE(eventually([&] { // the reset is here when nothing more can be sent
    try {
      x.ends[1]->wait(x.ends[1]->send(0, activation, bytes), patience);
      return false;
    } catch (const communication_error&) {
      return true;
    }
  }));
  x.ends[1]->wait(posted, patience);
  EXPECT_TRUE(in == bytes);
  EXPECT_NE(failure_of(*x.ends[1], x.ends[1]->receive(0, activation, in)), "");
}

#endif

// given: a transfer far larger than all socket buffers, aborted by either side / expected: both sides' waits end with
// an error, and nothing touches the buffers afterwards (which the sanitizer would see)
// given: the receiver's buffer is full, and it aborts but keeps the communicator / expected: the sender hears of it
TEST(data_communicator, abort_is_heard_by_a_sender_whose_window_is_closed) {
  pair_of_ends x;
  std::vector<std::byte> out(64 << 20);
  auto sent = x.ends[0]->send(1, activation, out);
  EXPECT_THROW(x.ends[0]->wait(sent, 500ms), communication_error) << "nobody reads";
  x.ends[1]->abort();
  auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(x.ends[0]->wait(sent, patience), communication_error);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, patience / 2);
}

TEST(data_communicator, abort_in_the_middle_of_large_transfers) {
  for (auto who : {0, 1}) {
    pair_of_ends x;
    auto out = std::make_unique<std::vector<std::byte>>(64 << 20);
    auto in = std::make_unique<std::vector<std::byte>>(64 << 20);
    auto half = std::make_unique<std::vector<std::byte>>(1000);
    auto first = x.ends[0]->send(1, activation, *half);
    auto second = x.ends[0]->send(1, activation, *out);
    auto back = x.ends[0]->receive(1, activation, *in);
    x.ends[1]->wait(x.ends[1]->receive(0, activation, *half), patience);
    std::vector<std::byte> into(out->size());
    auto arriving = x.ends[1]->receive(0, activation, into);
    std::thread waiter([&] {
      if (who == 0)
        EXPECT_THAT(failure_of(*x.ends[0], back), HasSubstr("aborted"));
      else
        EXPECT_NE(failure_of(*x.ends[0], back), "");
    });
    x.ends[who]->abort();
    waiter.join();
    x.ends[0]->abort();
    out.reset(), in.reset();
    failure_of(*x.ends[1], arriving); // ends either way: it may have been complete before
    EXPECT_NE(failure_of(*x.ends[1], x.ends[1]->receive(0, activation, into)), "");
    EXPECT_NE(failure_of(*x.ends[0], x.ends[0]->send(1, activation, into)), "");
  }
}

TEST(data_communicator, a_wait_ends_at_its_limit) {
  pair_of_ends x;
  std::vector<std::byte> in(10);
  auto never_sent = x.ends[0]->receive(1, activation, in);
  EXPECT_FALSE(x.ends[0]->done(never_sent));
  try {
    x.ends[0]->wait(never_sent, 20ms);
    FAIL();
  } catch (const communication_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("within 20ms"));
  }
}

// given: a receiver that does not post / expected: the sender is held back, nothing is lost
TEST(data_communicator, nothing_is_read_before_it_is_asked_for) {
  pair_of_ends x;
  auto bytes = random_bytes(48 << 20, 3);
  auto sent = x.ends[0]->send(1, activation, bytes);
  try {
    x.ends[0]->wait(sent, 50ms);
    FAIL() << "more than the socket buffers was taken";
  } catch (const communication_error&) {
  }
  std::vector<std::byte> in(bytes.size());
  x.ends[1]->wait(x.ends[1]->receive(0, activation, in), patience);
  x.ends[0]->wait(sent, patience);
  EXPECT_TRUE(in == bytes);
}

// given: ends that are aborted at random moments while both stream / expected: no hang, no crash (and no report of
// the sanitizers)
TEST(data_communicator, aborts_at_random_moments) {
  std::mt19937_64 draw(11);
  for (int round = 0; round < 20; ++round) {
    cluster c(3);
    auto ends = c.connect_all();
    auto victim = draw() % 3;
    auto after = draw() % 40;
    std::atomic<int> messages = 0;
    std::thread killer([&] {
      eventually([&] { return messages >= static_cast<int>(after); });
      ends[victim]->abort();
    });
    c.each([&](std::uint32_t self) {
      std::vector<std::byte> out(200'000), in(400'000);
      try {
        for (std::uint32_t i = 0;; ++i) {
          std::vector<ticket> tickets;
          for (std::uint32_t peer = 0; peer < 3; ++peer)
            if (peer != self) {
              tickets.push_back(ends[self]->send(peer, {channel::shard, 0, i}, out));
              tickets.push_back(ends[self]->receive(peer, {channel::shard, 0, i},
                                                    std::span(in).subspan(peer < self ? 0 : 200'000, 200'000)));
            }
          for (auto& x : tickets)
            ends[self]->wait(x, patience);
          ++messages;
        }
      } catch (const communication_error&) {
        ends[self]->abort();
      }
    });
    killer.join();
  }
}

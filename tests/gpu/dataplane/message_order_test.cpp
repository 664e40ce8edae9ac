#include "gpu/dataplane/message_order.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

namespace parcae {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr tag activation{channel::activation, 5, 2};

/// Participants, and notes between them that come in order, but whenever the test wants.
struct participants {
  explicit participants(std::uint32_t n) {
    for (std::uint32_t i = 0; i < n; ++i)
      orders.emplace_back(i, n);
  }

  void collect() {
    for (std::uint32_t i = 0; i < orders.size(); ++i)
      for (auto& x : orders[i].take_letters())
        on_the_way[{i, x.to}].push_back(x.what);
  }

  /// The next note on one way; what it did.
  std::string deliver(std::uint32_t from, std::uint32_t to) {
    auto& notes = on_the_way[{from, to}];
    const auto note = notes.front();
    notes.pop_front();
    auto problem = orders[to].hear(from, note);
    collect();
    return problem;
  }

  /// All notes. Returns what was wrong, by who says so.
  std::map<std::uint32_t, std::string> deliver_all() {
    std::map<std::uint32_t, std::string> problems;
    collect();
    for (bool more = true; more;) {
      more = false;
      for (std::uint32_t i = 0; i < orders.size(); ++i)
        for (std::uint32_t j = 0; j < orders.size(); ++j)
          while (!on_the_way[{i, j}].empty()) {
            more = true;
            if (auto x = deliver(i, j); !x.empty())
              problems[j] = x;
          }
    }
    return problems;
  }

  std::vector<message_order> orders;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<order_note>> on_the_way;
};

} // namespace

// given: five participants whose messages are posted, and notes delivered, in random order / expected: each message is
// in one group of its sender and of its receiver, those of one way in the order of posts; groups have the same messages
// at both ends, and if each participant lets a group end before it takes the next one, all end
TEST(message_order, groups_have_one_order) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 draw(seed);
    constexpr std::uint32_t n = 5;
    participants x(n);
    struct way {
      std::uint32_t to_send = 40, to_receive = 40;
      std::vector<std::uint64_t> sends, receives; ///< numbers, by the order of posts
    };
    std::map<std::pair<std::uint32_t, std::uint32_t>, way> ways;
    for (std::uint32_t i = 0; i < n; ++i)
      for (std::uint32_t j = 0; j < n; ++j)
        if (i != j && draw() % 3)
          ways[{i, j}];
    std::vector<std::vector<message_order::group>> taken(n);
    for (bool more = true; more;) {
      more = false;
      for (auto& [ends, w] : ways)
        for (const bool sends : {true, false})
          if (auto& left = sends ? w.to_send : w.to_receive; left > 0) {
            more = true;
            if (draw() % 2)
              continue;
            const auto [from, to] = ends;
            const auto [number, problem] =
                x.orders[sends ? from : to].post(sends ? to : from, sends, {channel::activation, 0, left}, left * 8);
            ASSERT_EQ(problem, "");
            (sends ? w.sends : w.receives).push_back(number);
            --left;
          }
      x.collect();
      for (auto& [ends, notes] : x.on_the_way)
        for (; !notes.empty(); more = true) {
          if (draw() % 3 == 0)
            break;
          ASSERT_EQ(x.deliver(ends.first, ends.second), "");
        }
      for (std::uint32_t i = 0; i < n; ++i)
        while (draw() % 2)
          if (auto g = x.orders[i].next())
            taken[i].push_back(std::move(*g));
          else
            break;
      for (auto& [ends, notes] : x.on_the_way)
        more |= !notes.empty();
    }
    for (std::uint32_t i = 0; i < n; ++i)
      while (auto g = x.orders[i].next())
        taken[i].push_back(std::move(*g));

    std::vector<std::size_t> at(n);
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> moved;
    for (bool more = true; more;) {
      more = false;
      for (std::uint32_t i = 0; i < n; ++i) {
        if (at[i] == taken[i].size())
          continue;
        const auto& mine = taken[i][at[i]];
        const auto peer = mine.peer;
        if (at[peer] == taken[peer].size() || taken[peer][at[peer]].peer != i)
          continue;
        const auto& theirs = taken[peer][at[peer]];
        ASSERT_EQ(mine.sends.size(), theirs.receives.size());
        ASSERT_EQ(mine.receives.size(), theirs.sends.size());
        for (std::size_t k = 0; k < mine.sends.size(); ++k, ++moved[{i, peer}]) {
          ASSERT_EQ(mine.sends[k], (ways[{i, peer}].sends[moved[{i, peer}]]));
          ASSERT_EQ(theirs.receives[k], (ways[{i, peer}].receives[moved[{i, peer}]]));
        }
        for (std::size_t k = 0; k < mine.receives.size(); ++k, ++moved[{peer, i}]) {
          ASSERT_EQ(theirs.sends[k], (ways[{peer, i}].sends[moved[{peer, i}]]));
          ASSERT_EQ(mine.receives[k], (ways[{peer, i}].receives[moved[{peer, i}]]));
        }
        ++at[i], ++at[peer];
        more = true;
      }
    }
    for (std::uint32_t i = 0; i < n; ++i)
      ASSERT_EQ(at[i], taken[i].size()) << "seed " << seed << ": a circle at participant " << i;
    for (const auto& [ends, w] : ways)
      ASSERT_EQ((moved[ends]), 40u) << "seed " << seed;
  }
}

// given: a send to one who does not post, then messages with another / expected: these go on
TEST(message_order, nobody_waits_for_what_is_not_posted) {
  participants x(3);
  x.orders[0].post(1, true, activation, 8);
  x.orders[0].post(2, true, activation, 8);
  x.orders[2].post(0, false, activation, 8);
  EXPECT_THAT(x.deliver_all(), IsEmpty());
  EXPECT_TRUE(x.orders[0].next());
  EXPECT_FALSE(x.orders[0].next());
  EXPECT_TRUE(x.orders[2].next());
  EXPECT_FALSE(x.orders[1].next());
}

// given: a proposal whose answer has not come / expected: a later group waits for it, until it is lost
TEST(message_order, a_proposal_may_be_first) {
  participants x(3);
  for (const std::uint32_t peer : {1u, 2u}) {
    x.orders[peer].post(0, false, activation, 8);
    x.orders[0].post(peer, true, activation, 8);
  }
  x.collect();
  x.deliver(1, 0); // 0 proposes to 1
  x.deliver(2, 0);
  x.deliver(0, 2);
  x.deliver(2, 0); // settled
  EXPECT_FALSE(x.orders[0].next());
  EXPECT_TRUE(x.orders[2].next());
  x.orders[0].lose(1);
  const auto g = x.orders[0].next();
  ASSERT_TRUE(g);
  EXPECT_EQ(g->peer, 2u);
}

// given: a receive of another length, whoever is the sender, before and after messages that agree / expected: both ends
// say what differs
TEST(message_order, both_ends_say_what_differs) {
  for (const std::uint32_t from : {0u, 1u}) {
    participants x(2);
    const auto to = 1 - from;
    for (const std::uint64_t length : {8, 16}) {
      x.orders[from].post(to, true, activation, length);
      x.orders[to].post(from, false, activation, length == 16 ? 17 : length);
    }
    const auto problems = x.deliver_all();
    ASSERT_EQ(problems.size(), 2u);
    EXPECT_THAT(problems.at(to), AllOf(HasSubstr("expected kind 1 step 5 index 2 with 17 bytes"),
                                       HasSubstr("came kind 1 step 5 index 2 with 16 bytes")));
    EXPECT_THAT(problems.at(from), AllOf(HasSubstr("sent kind 1 step 5 index 2 with 16 bytes"),
                                         HasSubstr("it expects kind 1 step 5 index 2 with 17 bytes")));
  }
}

// given: notes that no participant would send now / expected: each is refused, and the pair is over
TEST(message_order, what_nobody_sends_is_refused) {
  const auto refused = [](std::uint32_t self, order_note x) {
    message_order order(self, 2);
    const auto peer = 1 - self;
    order.post(peer, true, activation, 8);
    const auto problem = order.hear(peer, x);
    EXPECT_EQ(order.hear(peer, {.what = order_note::kind::complete}), "");
    return !problem.empty() && !order.next();
  };
  using kind = order_note::kind;
  EXPECT_TRUE(refused(1, {.what = kind::send, .message = activation, .length = 8}));
  EXPECT_TRUE(refused(1, {.what = kind::proposal, .time = 1, .outgoing = 1, .incoming = 0}));
  EXPECT_TRUE(refused(1, {.what = kind::proposal, .time = 1, .outgoing = 0, .incoming = 2}));
  EXPECT_TRUE(refused(1, {.what = kind::proposal, .time = 1, .outgoing = 0, .incoming = 0}));
  EXPECT_TRUE(refused(1, {.what = kind::proposal, .time = ~std::uint64_t{0}, .outgoing = 0, .incoming = 1}));
  EXPECT_TRUE(refused(1, {.what = kind::settled, .time = 1}));
  EXPECT_TRUE(refused(1, {.what = kind::differs, .message = activation, .length = 8, .incoming = 0}));
  EXPECT_TRUE(refused(0, {.what = kind::proposal, .time = 1, .outgoing = 0, .incoming = 1}));
  EXPECT_TRUE(refused(0, {.what = kind::settled, .time = 1}));
  EXPECT_TRUE(refused(0, {.what = kind::differs, .message = activation, .length = 8}));
}

} // namespace parcae

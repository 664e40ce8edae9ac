// What a rank makes of what its job, its node and the other ranks say about NCCL.

#include "gpu/dataplane/staged_communicator.hpp"
#include "gpu/training/rank_transport.hpp"
#include "tests/gpu/dataplane/data_plane_fixture.hpp"
#include "tests/support/fake_device.hpp"
#include "tests/support/names.hpp"
#include "tests/support/nccl_double.hpp"

#include <array>
#include <cctype>
#include <optional>
#include <string>

namespace parcae {
namespace {

using namespace rig;

/// Two ranks side by side.
struct two_ranks {
  explicit two_ranks(const std::string& transport) : world(1), ports(2) {
    ports.plan.specification.transport = transport;
    ports.plan.target.width = 2;
    ports.plan.target.depth = 1;
    for (std::uint32_t i = 0; i < 2; ++i) {
      auto& x = options[i];
      x.self = ports.slot(i);
      x.on = &fake_device(i);
      x.nccl.slot = std::make_shared<nccl_slot>(fake_device(i), world.library(i, fake_device(i)),
                                                [](const std::string& why) { ADD_FAILURE() << why; });
    }
  }

  void connect() {
    for (std::uint32_t i = 0; i < 2; ++i)
      ranks[i].emplace(ports.plan, i, options[i]);
    ports.each([&](std::uint32_t i) {
      auto below = ports.ports[i]->connect(ports.plan, ports.slot(i), patience, ports.never);
      ends[i] = ranks[i]->connect(make_staged_communicator(std::move(below), fake_device(i)), {});
    });
  }

  /// A step of both, as far as it is about NCCL: what they say in its exchange, and what follows. Whether it moves
  /// tensors.
  bool step() {
    std::atomic<int> by_nccl = 0;
    ports.each([&](std::uint32_t i) { by_nccl += ranks[i]->begin_step() ? 1 : 0; });
    EXPECT_NE(by_nccl, 1);
    if (ranks[0]->is_ready() && ranks[1]->is_ready())
      for (auto& r : ranks)
        r->agree();
    return by_nccl > 0;
  }

  /// Steps until NCCL moves tensors, or for a while.
  bool changes_over() {
    return eventually([&] { return step() || !reason(0).empty() || !reason(1).empty(); }) &&
           ranks[0]->state().by == "nccl";
  }

  std::string reason(std::uint32_t i) { return ranks[i]->state().reason; }

  nccl_double world;
  cluster ports;
  std::array<executor_options, 2> options;
  std::array<std::optional<rank_transport>, 2> ranks;
  std::array<std::unique_ptr<communicator>, 2> ends;
};

// given: jobs that say "tcp", or leave it open where that means TCP / expected: NCCL is not thought of
TEST(rank_transport, is_tcp_unless_asked_for) {
  for (const auto* transport : {"tcp", "auto"}) {
    two_ranks x(transport);
    x.connect();
    for (std::uint32_t i = 0; i < 2; ++i) {
      for (int step = 0; step < 3; ++step)
        EXPECT_FALSE(x.ranks[i]->begin_step());
      EXPECT_FALSE(x.ranks[i]->is_ready());
      EXPECT_EQ(x.ranks[i]->state(), (transport_state{"tcp", "a fake device", {}}));
    }
    EXPECT_EQ(x.world.calls_of(0, nccl_call::make_id), 0u);
  }
}

// given: a job that says "nccl", or leaves it open where that means NCCL / expected: begun behind the first step, taken
// over when both were ready
TEST(rank_transport, changes_over_when_all_are_ready) {
  for (const auto* transport : {"nccl", "auto"}) {
    two_ranks x(transport);
    for (auto& o : x.options)
      o.nccl.by_itself = true;
    x.connect();
    EXPECT_TRUE(x.ranks[0]->may_load());
    EXPECT_FALSE(x.step());
    EXPECT_FALSE(x.ranks[0]->may_load());
    EXPECT_EQ(x.world.calls_of(0, nccl_call::make_id), 0u) << "the first step is not over";
    EXPECT_EQ(x.ranks[0]->state().by, "tcp");
    EXPECT_TRUE(x.changes_over());
    EXPECT_EQ(x.world.calls_of(0, nccl_call::make_id), 1u);
    for (auto& r : x.ranks) {
      EXPECT_FALSE(r->is_ready()) << "it is in use";
      EXPECT_EQ(r->state(), (transport_state{"nccl", "a fake device", {}}));
    }
    for (auto& end : x.ends)
      end.reset();
    EXPECT_THAT(x.world.violations(), IsEmpty());
  }
}

// given: ranks on one host, or two, on nodes that trust the network or do not / expected: between hosts only if both
// do; who does not says what is missing
TEST(rank_transport, between_hosts_the_network_is_to_be_trusted) {
  for (const bool two_hosts : {false, true})
    for (const bool first : {false, true})
      for (const bool second : {false, true}) {
        SCOPED_TRACE(std::to_string(two_hosts) + std::to_string(first) + std::to_string(second));
        two_ranks x("nccl");
        if (two_hosts)
          x.ports.plan.target.participants[1].host = "localhost";
        x.options[0].nccl.trusts_network = first;
        x.options[1].nccl.trusts_network = second;
        x.connect();
        for (std::uint32_t i = 0; i < 2; ++i) {
          if (two_hosts && !(i == 0 ? first : second))
            EXPECT_THAT(x.reason(i), HasSubstr("needs parcae-node --trust-network"));
          else
            EXPECT_EQ(x.reason(i), "");
        }
        const bool may = !two_hosts || (first && second);
        EXPECT_EQ(x.changes_over(), may);
        EXPECT_EQ(x.world.calls_of(1, nccl_call::begin), may ? 1u : 0u);
      }
}

// given: a rank on the processor, one without NCCL, one in whose process a call never returned / expected: it says so,
// the other one nothing, and NCCL moves nothing
TEST(rank_transport, what_one_cannot_nobody_begins) {
  const std::pair<std::function<void(executor_options&)>, const char*> table[] = {
      {[](executor_options& x) { x.on = nullptr; }, "on the processor"},
      {[](executor_options& x) {
         x.nccl.slot = nullptr;
         x.nccl.problem = "NCCL 1 is there";
       },
       "NCCL 1 is there"},
      {[](executor_options& x) { x.nccl.slot->lost = true; }, "never returned"},
  };
  for (const auto& [spoil, reason] : table) {
    two_ranks x("nccl");
    spoil(x.options[1]);
    x.connect();
    EXPECT_THAT(x.reason(1), HasSubstr(reason));
    for (int step = 0; step < 5; ++step)
      EXPECT_FALSE(x.step());
    EXPECT_EQ(x.reason(0), "");
    EXPECT_EQ(x.ranks[0]->state().by, "tcp");
    for (auto& end : x.ends)
      end.reset();
    EXPECT_EQ(x.world.calls_of(0, nccl_call::make_id), 0u);
  }
}

// given: NCCL that cannot be made at one rank / expected: after three times nobody tries, and no more threads are left,
// until one of the ranks is not there any more
TEST(rank_transport, what_cannot_be_made_is_not_tried_for_ever) {
  two_ranks x("nccl");
  for (auto& o : x.options)
    o.nccl.slot->limits.make = std::chrono::milliseconds(200);
  std::string last;
  for (std::uint32_t i = 0; i <= nccl_failures::max_in_a_row; ++i) {
    if (i < nccl_failures::max_in_a_row)
      x.world.plan(1, nccl_call::begin, 1, nccl_fault::fail);
    x.connect();
    EXPECT_FALSE(x.changes_over());
    EXPECT_TRUE(eventually([&] { return !x.reason(0).empty() && !x.reason(1).empty(); }));
    last = x.reason(1);
    for (auto& r : x.ranks) {
      r->leave();
      if (i == 0)
        r->note_end(); // as ABORT may come then: it counts once
    }
    for (auto& end : x.ends)
      end.reset();
    ++x.ports.plan.next.value;
  }
  EXPECT_THAT(last, HasSubstr("NCCL failed 3 times in a row, and no rank was lost; the last time: NCCL: making"));
  EXPECT_EQ(x.world.listeners(), nccl_failures::max_in_a_row);
  x.ports.plan.target.participants[1].slot.life.value += 1;
  for (auto& o : x.options)
    o.nccl.slot->limits = {};
  x.connect();
  EXPECT_TRUE(x.changes_over()) << x.reason(0) << x.reason(1);
}

// given: grids, a tied tensor in layers of two stages / expected: the stages beside, the replicas, and who has the
// other one of it
TEST(rank_transport, peers_are_whom_it_has_messages_for) {
  placement grid;
  grid.width = 2;
  grid.depth = 4;
  grid.first_layer = {0, 2, 4, 6, 8};
  const tied_tensors tied{.first_layer = 0, .second_layer = 7};
  const auto peers = [&](std::uint32_t pipeline, std::uint32_t stage, bool is_tied) {
    return peers_of(grid, grid.rank(pipeline, stage), is_tied ? std::optional(tied) : std::nullopt);
  };
  const auto rank = [&](std::uint32_t pipeline, std::uint32_t stage) { return grid.rank(pipeline, stage); };
  EXPECT_THAT(peers(0, 0, false), UnorderedElementsAre(rank(0, 1), rank(1, 0)));
  EXPECT_THAT(peers(0, 0, true), UnorderedElementsAre(rank(0, 1), rank(1, 0), rank(0, 3)));
  EXPECT_THAT(peers(1, 3, true), UnorderedElementsAre(rank(1, 2), rank(0, 3), rank(1, 0)));
  EXPECT_THAT(peers(1, 2, true), UnorderedElementsAre(rank(1, 1), rank(1, 3), rank(0, 2)));
}

// given: who used NCCL when it broke, and who is to use it then / expected: only breaks in a row of ranks that are all
// still there count
TEST(nccl_failures, count_while_nobody_is_lost) {
  const auto named = [](const std::string& letters) {
    std::vector<slot_id> result;
    for (const char x : letters) // in a later life as a capital
      result.push_back({std::string(1, static_cast<char>(std::tolower(x))), {x < 'a' ? 2u : 1u}, 0});
    return result;
  };
  struct row {
    std::vector<std::string> broke;
    std::string next;
    bool may;
  };
  const row table[] = {
      {{}, "ab", true},
      {{"ab", "ab"}, "ab", true},
      {{"ab", "ab", "ab"}, "ab", false},
      {{"ab", "ba", "ab"}, "ba", false},
      {{"ab", "ab", "ab"}, "aB", true},            // one was lost, and came back
      {{"ab", "ab", "ab"}, "abc", false},          // one joins
      {{"ab", "abc", "abc"}, "abc", false},        // joined in between
      {{"abc", "abc", "abc"}, "ab", true},         // one was lost
      {{"abc", "ab", "abc"}, "abc", true},         // one was away in between
      {{"abc", "abd", "abe", "abf"}, "abg", true}, // one was lost each time
      {{"abc", "abc", "ab", "ab"}, "ab", true},
      {{"abc", "abc", "ab", "ab", "ab"}, "ab", false},
  };
  for (const auto& [broke, next, may] : table) {
    nccl_failures x;
    for (const auto& ranks : broke) {
      x.note_use(named(ranks));
      x.note_failure("why");
    }
    EXPECT_EQ(x.problem_among(named(next)).empty(), may) << ::testing::PrintToString(broke) << " " << next;
  }
}

} // namespace
} // namespace parcae

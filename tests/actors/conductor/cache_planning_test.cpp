// What the caches of a job that serves do at a change.

#include "tests/actors/conductor/serving_conductor.hpp"

namespace parcae {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// given: a notice to a stage, with a spare, then to a whole pipeline / expected: the caches of that stage go to who
// takes it over, and of no other; those of a pipeline that goes to another one; who leaves sends them
TEST_F(serving_conductor, caches_go_to_who_goes_on_with_them) {
  c.depth = 2;
  c.add_gateway("g");
  c.join({"a", "b", "d", "e", "spare"});
  ASSERT_EQ(c.running(), 2u);
  c.serve();
  const auto before = *c.view().grid;
  const auto name = [&](std::uint32_t rank) { return before.participants[rank].slot.instance; };
  c.notice(name(1), 30s);
  c.advance(20ms);
  ASSERT_EQ(c.running(), 2u);
  const auto plan = c.all_told<prepare>("spare").back();
  EXPECT_THAT(plan.caches, ElementsAre(cache_move{2, 4, 4, 1}));
  EXPECT_EQ(plan.target.participants[1].slot.instance, "spare");
  EXPECT_EQ(plan.target.participants[4].slot.instance, name(1));
  EXPECT_EQ(c.all_told<activate>(name(1)).back().next, plan.next);
  c.serve();
  EXPECT_EQ(c.all_told<release>(name(1)).back().current, plan.next);
  c.notice(name(2), 30s);
  c.advance(20ms);
  ASSERT_EQ(c.running(), 1u);
  const auto narrow = c.all_told<prepare>("spare").back();
  EXPECT_THAT(narrow.caches, ElementsAre(cache_move{0, 2, 2, 0}, cache_move{2, 4, 3, 1}));
  EXPECT_EQ(narrow.target.participants[2].slot.instance, name(2));
}

// given: a stage that is lost / expected: what is left of its pipeline's caches is of no use, and stays
TEST_F(serving_conductor, caches_of_a_broken_pipeline_stay) {
  c.depth = 2;
  c.add_gateway("g");
  c.join({"a", "b", "d", "e", "spare"});
  ASSERT_EQ(c.running(), 2u);
  c.serve();
  c.lose(c.view().grid->participants[1].slot.instance);
  c.advance(20ms);
  ASSERT_EQ(c.running(), 2u);
  EXPECT_THAT(c.all_told<prepare>("spare").back().caches, IsEmpty());
}

// given: rows that take 100 nanoseconds, or a second / expected: caches of one that leaves are computed again, or move
TEST_F(serving_conductor, caches_move_if_that_is_quicker) {
  for (const double ms : {0.0001, 1'000.0}) {
    serve_by_two();
    const auto g = c.view().current;
    c.say("g", routed{job_id{1}, g, 2, {}, {}, {500, 500}});
    for (const auto* who : {"a", "b"})
      c.say(who, served{.current = g, .passes = 10, .rows = 640, .pass_ms = 64 * ms, .by_size = {{64, 10, 64 * ms}}});
    c.notice("b", 30s);
    c.advance(20ms);
    ASSERT_EQ(c.running(), 1u);
    EXPECT_EQ(c.all_told<prepare>("a").back().caches.size(), ms > 1 ? 1u : 0u);
    EXPECT_THAT(c.log(), Contains(HasSubstr(ms > 1 ? "1 move of caches" : "caches are computed again, in ")));
    c.lose("a");
    c.lose("b");
    c.lose("g");
    c.advance(20ms);
  }
}

} // namespace
} // namespace parcae

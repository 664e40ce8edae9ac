// What the keepers hold of a job, and which layers each is to hold.

#include "actors/conductor/protection.hpp"
#include "tests/support/names.hpp"

namespace parcae::protection_of_a_job {
namespace {

const time_point start = time_point{} + 1h;

slot_id slot_of(const std::string& name) {
  return {name, {1}, 0};
}

struct protection_test : testing::Test {
  protection_test() {
    job.specification.keeper_every = 2;
    job.model.state_bytes = {10, 10};
    chain.begin({1}, 0);
  }

  slot_state& join(const std::string& name) {
    auto& slot = all.join(slot_of(name), start);
    slot.where.slot = slot_of(name);
    slot.keeper = slot.heard = true;
    return slot;
  }

  conducted_job job{{1}, {}, {}, {}, secret_key{{1}}, {}, {}};
  roster all{1s};
  commit_chain chain;
  protection x{job};
};

TEST_F(protection_test, a_version_counts_that_is_whole_and_possible) {
  auto& k = join("k");
  k.reported = {{0, {4, {1}}}, {0, {9, {1}}}, {1, {4, {1}}}, {1, {9, {1}}}};
  x.believe(k, 5, start);
  EXPECT_TRUE(x.is_doubtful());
  x.update(all, chain, 5);
  EXPECT_EQ(x.newest(), (version{4, {1}}));
  EXPECT_TRUE(x.is_current());
  x.update(all, chain, 20); // the same, but old by now
  EXPECT_FALSE(x.is_current());
  EXPECT_EQ(x.take_doubt(), start);
  x.believe(k, 10, start);
  EXPECT_FALSE(x.is_doubtful());
  x.update(all, chain, 10);
  EXPECT_EQ(x.safe(), (version{9, {1}}));
  k.held.clear();
  x.update(all, chain, 10);
  EXPECT_EQ(x.newest(), version{});
  EXPECT_EQ(x.safe(), version{}) << "what is older is needed again";
  EXPECT_EQ(x.reached(), (version{9, {1}})) << "it was complete once";
  x.go_back();
  EXPECT_EQ(x.reached(), version{});
}

// given: a worker and a keeper on each of two machines, of which each computes one of two layers; then one that
// computes both, with the only keeper / expected: each keeps the other's layer; where it does not, of the version there
// is, that is said, but not where all is on one machine
TEST_F(protection_test, layers_are_kept_apart_from_who_computes_them) {
  for (const std::string m : {"m", "n"}) {
    join("keeper-" + m).machine.id = m;
    auto& worker = all.join(slot_of("worker-" + m), start);
    worker.where.slot = slot_of("worker-" + m);
    worker.machine.id = m;
  }
  const placement grid{1, 2, {0, 1, 2}, {{slot_of("worker-m"), {}, {}}, {slot_of("worker-n"), {}, {}}}};
  EXPECT_TRUE(x.assign(all, &grid));
  EXPECT_FALSE(x.assign(all, &grid));
  EXPECT_THAT(x.shares()[0].layers, ElementsAre(1));
  EXPECT_THAT(x.shares()[1].layers, ElementsAre(0));
  const auto problem = [&] {
    for (auto&& [id, slot] : all.keepers())
      slot.held = {{0, {4, {1}}}, {1, {4, {1}}}};
    x.update(all, chain, 4);
    return x.view(all).copies_problem;
  };
  EXPECT_EQ(problem(), "");
  for (auto&& [id, slot] : all.keepers()) // as they were to before anybody computed
    slot.held = {{id.instance == "keeper-m" ? 0u : 1u, {5, {1}}}};
  x.update(all, chain, 5);
  EXPECT_EQ(x.view(all).copies_problem, "of 2 layers, from layer 0 on, only where they are trained");
  const placement other{1, 1, {0, 2}, {{slot_of("worker-m"), {}, {}}}};
  EXPECT_TRUE(x.assign(all, &other));
  EXPECT_EQ(problem(), "");
  all.lose(slot_of("keeper-n"), start);
  EXPECT_TRUE(x.assign(all, &other));
  EXPECT_EQ(problem(), "of 2 layers, from layer 0 on, only where they are trained");
  all.lose(slot_of("worker-n"), start);
  x.assign(all, &other);
  EXPECT_EQ(problem(), "") << "there is one machine";
}

// given: snapshots that come as often as links allow, of steps so far apart, and so late / expected: the newest is old
// once more was done than twice what lies between it and the one on its way; none is current that is gone
TEST_F(protection_test, what_is_paced_is_old_by_its_own_pace) {
  job.specification.keeper_every = 0;
  auto& k = join("k");
  const auto come = [&](std::uint64_t steps, std::uint64_t done) {
    k.held = {{0, {steps, {1}}}, {1, {steps, {1}}}};
    x.update(all, chain, done);
  };
  const auto is_current_at = [&](std::uint64_t done) {
    x.update(all, chain, done);
    return x.is_current();
  };
  come(1, 3);
  EXPECT_TRUE(is_current_at(500)) << "when the second one comes nobody knows";
  EXPECT_FALSE(is_current_at(501));
  come(101, 151);
  EXPECT_TRUE(is_current_at(500));
  EXPECT_FALSE(is_current_at(501));
  come(106, 151);
  EXPECT_TRUE(is_current_at(305)) << "one that was asked for, after five steps";
  EXPECT_FALSE(is_current_at(306));
  for (std::uint64_t steps = 107; steps < 127; ++steps)
    come(steps, steps + 1);
  EXPECT_TRUE(is_current_at(145)) << "ten steps are always allowed";
  EXPECT_FALSE(is_current_at(146));
  come(526, 528);
  k.held.clear();
  x.update(all, chain, 528);
  EXPECT_FALSE(x.is_current());
}

TEST_F(protection_test, digests_are_asked_for_once_per_version) {
  EXPECT_TRUE(x.ask_digests());
  EXPECT_FALSE(x.ask_digests());
  auto& k = join("k");
  k.held = {{0, {4, {1}}}, {1, {4, {1}}}};
  k.digests = {{0, "of an older version"}};
  x.update(all, chain, 4);
  EXPECT_THAT(digests_of(all), IsEmpty());
  EXPECT_TRUE(x.ask_digests());
}

TEST_F(protection_test, safe_is_what_has_its_copies) {
  // given: two copies asked for, a keeper, then another. expected: with one of them alone its version counts; later
  // what both hold; why there is less is said, and what brings it there
  job.specification.keeper_copies = 2;
  auto& k = join("k");
  k.held = {{0, {4, {1}}}, {1, {4, {1}}}};
  x.assign(all, nullptr);
  x.update(all, chain, 4);
  EXPECT_EQ(x.safe(), (version{4, {1}}));
  EXPECT_EQ(x.view(all).copies, 1u);
  EXPECT_EQ(x.view(all).copies_problem, "there is 1 keeper");

  auto& l = join("l");
  l.held = {{1, {4, {1}}}};
  x.assign(all, nullptr);
  x.update(all, chain, 4);
  EXPECT_EQ(x.safe(), version{}) << "what l may hold besides is needed if k is lost";
  EXPECT_TRUE(x.had_copies());
  EXPECT_EQ(x.view(all).copies_problem, "l lacks step 4");
  const auto missing = x.missing(all);
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_EQ(missing[0].first, slot_of("k"));
  EXPECT_EQ(missing[0].second, (replicate{job.id, {4, {1}}, l.where, {0}}));
  l.held.insert(l.held.begin(), {0, {4, {1}}});
  k.held.insert(k.held.begin() + 1, {0, {6, {1}}});
  k.held.push_back({1, {6, {1}}});
  x.update(all, chain, 6);
  EXPECT_EQ(x.newest(), (version{6, {1}}));
  EXPECT_EQ(x.safe(), (version{4, {1}}));
  EXPECT_EQ(x.view(all).copies, 2u);
  EXPECT_EQ(x.view(all).copies_problem, "");
  x.update(all, chain, 8); // l is sent nothing any more
  EXPECT_FALSE(x.had_copies());
  EXPECT_EQ(x.view(all).copies, 1u);
  EXPECT_EQ(x.view(all).copies_problem, "l lacks step 6");

  k.memory.bytes = 3 * 30;
  l.memory.bytes = 3 * 10;
  x.assign(all, nullptr);
  x.update(all, chain, 8);
  EXPECT_EQ(x.view(all).copies_problem, "the keepers have too little memory");
  EXPECT_EQ(x.safe(), (version{6, {1}})) << "as many as there can be";
}

} // namespace
} // namespace parcae::protection_of_a_job

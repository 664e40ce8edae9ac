// What the conductor knows of the job's steps, asks for, and tells the keepers.

#include "actors/conductor/recollection.hpp"
#include "tests/actors/conductor/dummy_cluster.hpp"

namespace parcae::losses_of_conductor {
namespace {

loss_block steps(std::uint64_t first, std::uint64_t count) {
  loss_block x{first, 0, {}};
  for (auto step = first; step < first + count; ++step)
    x.all.push_back({1 / static_cast<double>(step + 1), 2, 3, {}, 1'000 + static_cast<std::int64_t>(step)});
  return x;
}

const recollection::time_point begin{std::chrono::hours(1)};

// given: answers that overlap, come late, or have more than counts / expected: what is missing is asked for, twice a
// second at most, and at once after a full block
TEST(recollection, asks_for_what_is_missing) {
  recollection x({}, 8);
  EXPECT_FALSE(x.ask(begin, 0));
  EXPECT_EQ(x.ask(begin, 10), 0u);
  EXPECT_FALSE(x.ask(begin + 100ms, 10));
  EXPECT_EQ(x.hear(encode(steps(0, 20)), 10), "");
  EXPECT_EQ(x.complete(), 10u);
  EXPECT_FALSE(x.ask(begin + 1s, 10));
  EXPECT_EQ(x.ask(begin + 1s, 12), 10u);
  EXPECT_EQ(x.hear(encode(steps(12, 3)), 15), "") << "of one who does not know all of it";
  EXPECT_EQ(x.complete(), 10u);
  EXPECT_EQ(x.hear(encode(steps(8, 4)), 15), "");
  EXPECT_EQ(x.complete(), 15u);
  EXPECT_EQ(x.ask(begin + 2s, 10'000), 15u);
  x.hear(encode(steps(15, loss_block_steps)), 10'000);
  EXPECT_EQ(x.ask(begin + 2s, 10'000), 15u + loss_block_steps);
  EXPECT_THAT(x.hear({'x'}, 100), HasSubstr("block of losses"));
}

// given: steps that nobody has / expected: after many questions the record goes on behind, and says so once
TEST(recollection, goes_on_behind_what_nobody_knows) {
  recollection x({}, 8);
  auto now = begin;
  for (int i = 0; i < recollection::patience; ++i, now += 1s) {
    EXPECT_EQ(x.ask(now, 20), 0u);
    EXPECT_EQ(x.is_stuck(), i >= 2);
    x.hear(encode(steps(5, 15)), 20);
  }
  EXPECT_THAT(x.given_up(), IsEmpty());
  EXPECT_FALSE(x.ask(now, 20));
  EXPECT_EQ(x.complete(), 20u);
  EXPECT_THAT(x.given_up(), HasSubstr("steps 0 to 4 is not known"));
  EXPECT_THAT(x.given_up(), IsEmpty());
}

// given: nobody answers, then some know / expected: what is not known has no end, but what is known later counts
TEST(recollection, gives_nothing_up_while_nobody_answers) {
  recollection x({}, 8);
  for (int i = 0; i < 2 * recollection::patience; ++i)
    EXPECT_EQ(x.ask(begin + i * 1s, 20), 0u);
  x.hear(encode(steps(0, 20)), 20);
  EXPECT_EQ(x.complete(), 20u);
  EXPECT_THAT(x.given_up(), IsEmpty());
}

// given: a job at its end of which nobody knows steps 3 to 5 and the last / expected: one gap after the other
TEST(recollection, is_given_up_at_the_end) {
  recollection x({}, 8);
  x.hear(encode(steps(0, 3)), 20);
  x.hear(encode(steps(6, 2)), 20);
  x.give_up(10);
  EXPECT_EQ(x.complete(), 8u);
  EXPECT_THAT(x.given_up(), HasSubstr("steps 3 to 5 is not known"));
  x.give_up(10);
  EXPECT_EQ(x.complete(), 10u);
  EXPECT_EQ(x.known().steps(), 10u);
  EXPECT_FALSE(x.known().find(9));
}

// given: steps that are lost and computed again / expected: asked for again; other bits are said
TEST(recollection, goes_back) {
  recollection x({}, 8);
  x.hear(encode(steps(0, 20)), 20);
  x.go_back(10);
  EXPECT_EQ(x.complete(), 10u);
  EXPECT_EQ(x.ask(begin, 12), 10u);
  EXPECT_EQ(x.hear(encode(steps(10, 5)), 12), "");
  x.decide({12, 1.0 / 13, 2, 1, 3, false, false});
  EXPECT_EQ(x.complete(), 13u);
  x.go_back(10);
  auto other = steps(10, 5);
  other.all[1].loss += 1;
  EXPECT_THAT(x.hear(encode(other), 15), HasSubstr("step 11 came to another loss"));
  EXPECT_EQ(x.known().find(11)->loss, other.all[1].loss);
}

// given: steps that were learnt some time ago, just now, and go back / expected: who goes on gets what was learnt just
// now, and the step before, whose version may have been evaluated just now
TEST(recollection, hands_on_what_is_not_settled) {
  recollection x({}, 8);
  EXPECT_TRUE(x.newest(0).empty());
  x.hear(encode(steps(0, 20)), 20);
  const auto first = [&](std::uint64_t until) {
    const auto all = decode_loss_block(x.newest(until));
    EXPECT_EQ(all.end(), until);
    return all.first;
  };
  EXPECT_EQ(first(20), 0u);
  for (auto now = begin; now <= begin + 2 * recollection::settling; now += 1s)
    x.ask(now, 20);
  EXPECT_EQ(first(20), 19u);
  x.evaluate(20, 0.5);
  EXPECT_EQ(decode_loss_block(x.newest(20)).all.at(0).validation_loss, 0.5);
  x.hear(encode(steps(20, 5)), 25);
  EXPECT_EQ(first(25), 19u);
  x.go_back(18);
  x.hear(encode(steps(18, 2)), 20);
  EXPECT_EQ(first(20), 17u);
}

// given: evaluations before and after their step is known / expected: with the step
TEST(recollection, keeps_evaluations) {
  recollection x({}, 8);
  x.evaluate(0, 7);
  x.evaluate(4, 0.5);
  x.hear(encode(steps(0, 10)), 10);
  x.evaluate(10, 0.25);
  EXPECT_EQ(x.known().find(3)->validation_loss, 0.5);
  EXPECT_EQ(x.known().find(9)->validation_loss, 0.25);
}

// given: a step that is known by a decision alone, behind a version that was evaluated / expected: who knows what came
// of that is asked; if nobody does it is given up, and that is said; one that comes back asks for no older one
TEST(recollection, asks_for_the_evaluation_before_a_decided_step) {
  recollection x({}, 8, 4);
  x.hear(encode(steps(0, 4)), 4);
  EXPECT_EQ(x.complete(), 4u);
  x.decide({4, 1.0 / 5, 2, 1, 3, false, false});
  EXPECT_EQ(x.complete(), 4u);
  EXPECT_FALSE(x.has_all_of(4));
  EXPECT_EQ(recollection(x.known(), 8, 4).complete(), 4u);
  auto now = begin;
  EXPECT_EQ(x.ask(now, 5), 4u);
  auto answer = steps(3, 2);
  answer.all[0].validation_loss = 0.5;
  auto y = x;
  y.hear(encode(answer), 5);
  EXPECT_EQ(y.complete(), 5u);
  EXPECT_TRUE(y.has_all_of(4));
  for (int i = 0; i < recollection::patience; ++i)
    x.ask(now += 1s, 5);
  EXPECT_EQ(x.complete(), 5u);
  EXPECT_THAT(x.given_up(), HasSubstr("the evaluation of version 4 is not known"));
  x.hear(encode(steps(5, 3)), 8);
  EXPECT_EQ(x.complete(), 8u);
  EXPECT_FALSE(x.has_evaluation(8));
  EXPECT_EQ(recollection(x.known(), 8, 4).complete(), 4u) << "it may be known since";
  auto later = steps(7, 2);
  later.all[0].validation_loss = 0.25;
  x.hear(encode(later), 9);
  EXPECT_EQ(x.complete(), 9u);
  EXPECT_EQ(recollection(x.known(), 8, 4).complete(), 9u);
}

// given: keepers that were told something, one that began anew / expected: told what is new, or all
TEST(recollection, tells_keepers_what_they_do_not_know) {
  recollection x({}, 8);
  const slot_id a{"a", {1}, 0}, b{"b", {1}, 0};
  x.hear(encode(steps(0, 4096)), 5000);
  x.hear(encode(steps(4096, 10)), 5000);
  EXPECT_THAT(x.untold(a), SizeIs(2));
  EXPECT_THAT(x.untold(a), IsEmpty());
  x.hear(encode(steps(4106, 1)), 5000);
  const auto news = x.untold(a);
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(decode_loss_block(news[0]).end(), 4107u);
  EXPECT_EQ(decode_loss_block(news[0]).samples, 8u);
  EXPECT_THAT(x.untold(b), SizeIs(2));
  x.forget(a);
  EXPECT_THAT(x.untold(a), SizeIs(2));
}

// given: a job of two workers and a keeper; losses of workers, a change of generation / expected: each step once
TEST(recollection, of_a_job_is_complete) {
  dummy_cluster c(4, 1000, 10);
  c.add("k", true);
  c.add("a");
  c.add("b");
  c.advance(1s);
  for (int i = 0; i < 25; ++i) {
    c.step();
    c.advance(200ms);
  }
  c.lose("a");
  c.advance(1s);
  for (int i = 0; i < 25; ++i) {
    c.step();
    c.advance(200ms);
  }
  const auto done = c.machine().where().steps_done;
  ASSERT_GT(done, 40u);
  const auto& known = c.machine().losses();
  EXPECT_GE(known.steps() + 5, done) << "the last are heard half a second later";
  for (std::uint64_t step = 0; step < known.steps(); ++step)
    EXPECT_TRUE(known.find(step)) << step;
}

// given: steps that the manager has just heard of, and a change of generation / expected: who stops is to say them
// again, as the journal may not have them yet, and later not
TEST(recollection, what_the_journal_may_lack_is_said_again) {
  dummy_cluster c(4, 1000, 10);
  c.add_keeper_and_worker();
  c.step();
  c.advance(2s);
  ASSERT_EQ(c.machine().losses().steps(), 1u);
  c.add("b");
  c.advance(1s);
  EXPECT_EQ(c.all_told<stop>("a").back().recorded, 0u);
  c.advance_and_step(20, 1s);
  c.lose("b");
  const auto recorded = c.all_told<abort_generation>("a").back().recorded;
  EXPECT_GT(recorded, 5u);
  EXPECT_LT(recorded, 17u);
}

// given: a manager that heard a keeper's word of a version, and not the rank's of the steps that made it / expected: it
// asks the keeper what came of them, for the rank may go with what it knows
TEST(recollection, is_asked_of_a_keeper_that_alone_told_of_steps) {
  dummy_cluster c;
  c.add_keeper_and_worker();
  c.progress_is_lost = true;
  c.advance(2s); // so many steps can have been made
  c.train(5);
  ASSERT_EQ(c.machine().where().steps_done, 0u);
  ASSERT_EQ(c.machine().losses().steps(), 0u);
  const auto asked = c.all_told<recall>("k");
  ASSERT_FALSE(asked.empty());
  EXPECT_EQ(asked.back().from, 0u);
  loss_record known;
  for (std::uint64_t step = 0; step < 5; ++step)
    known.put(step, {1.5, 1, 0.1, {}, 1});
  c.say("k", recalled{{1}, 0, encode(known.part(0))});
  EXPECT_EQ(c.machine().losses().steps(), 5u);
}

// given: a job whose final version a keeper holds; what came of its steps was not heard / expected: it is not done
// before somebody has said that
TEST(recollection, is_complete_when_the_job_is_done) {
  dummy_cluster c(4, 3);
  c.mend = [](const std::string&, report x) {
    if (auto* s = std::get_if<stopped>(&x))
      s->losses.clear();
    return x;
  };
  c.keep_back<recalled>();
  c.add_keeper_and_worker();
  c.train(3);
  c.advance(1s);
  EXPECT_FALSE(c.ended());
  EXPECT_EQ(c.machine().losses().steps(), 0u);
  c.hold_back = nullptr;
  c.say("k", recalled{{1}, 0, {}});
  for (const auto& x : std::exchange(c.held_back, {}))
    c.say("a", x);
  EXPECT_TRUE(c.ended());
  EXPECT_EQ(c.machine().losses().steps(), 3u);
  EXPECT_TRUE(c.machine().losses().find(0));
}

} // namespace
} // namespace parcae::losses_of_conductor

// Checkpoints of versions that are evaluated, and the end of jobs at one.

#include "tests/actors/conductor/dummy_cluster.hpp"

namespace parcae {
namespace {

// given: a job that evaluates, whose final version a keeper has before its worker said what came of that / expected: it
// is written when the worker did, and the keeper is told that before
TEST(evaluated_checkpoints, have_what_came_of_the_final_version) {
  dummy_cluster d(4, [](job_specification& job) {
    job.steps = 8;
    job.checkpoint_every = job.evaluate_every = 4;
    job.data.validation = 4;
  });
  d.add_keeper_and_worker();
  d.keep_back<stopped>();
  d.train(4);
  d.train(4);
  EXPECT_EQ(d.all_told<checkpoint>("k").size(), 1u);
  ASSERT_EQ(d.held_back.size(), 1u);
  auto last = std::get<stopped>(d.held_back[0]);
  auto known = decode_loss_block(last.losses);
  ASSERT_EQ(known.first + known.all.size(), 8u);
  known.all.back().validation_loss = 0.5;
  last.losses = encode(known);
  d.hold_back = {};
  d.say("a", last);
  EXPECT_TRUE(d.ended());
  EXPECT_EQ(d.view().checkpoint.steps, 8u);
  std::optional<double> told;
  for (const auto& x : d.told("k")) {
    if (const auto* r = std::get_if<remember>(&x))
      told = decode_loss_block(r->losses).all.back().validation_loss;
    const auto* written = std::get_if<checkpoint>(&x);
    ASSERT_TRUE(!written || written->at.steps < 8 || told == 0.5);
  }
}

void ends_evaluated(job_specification& job) {
  job.steps = 4;
  job.evaluate_every = 4;
  job.data.validation = 4;
}

// given: a job that evaluates, whose final version the keepers have, and who made it is lost before it said what came
// of that / expected: another one begins there, and the job is done when that has said it
TEST(evaluated_checkpoints, a_final_version_is_evaluated_by_another) {
  dummy_cluster d(4, ends_evaluated);
  d.add_keeper_and_worker();
  d.keep_back<stopped>();
  d.train(4);
  ASSERT_EQ(d.held_back.size(), 1u);
  EXPECT_EQ(d.all_told<checkpoint>("k").size(), 0u) << "it waits for what comes of it";
  d.lose("a");
  EXPECT_EQ(d.all_told<checkpoint>("k").size(), 1u) << "nobody is left";
  d.add("b");
  d.advance(1s);
  EXPECT_FALSE(d.ended());
  EXPECT_EQ(d.view().current.value, 2u);
  ASSERT_EQ(d.held_back.size(), 2u);
  auto last = std::get<stopped>(d.held_back[1]);
  auto known = decode_loss_block(last.losses);
  ASSERT_EQ(known.end(), 4u);
  known.all.back().validation_loss = 0.5;
  last.losses = encode(known);
  d.hold_back = {};
  d.say("b", last);
  d.advance(1s);
  EXPECT_TRUE(d.ended());
}

// given: the same, and then its keeper is to go, the user asks, or the manager ends / expected: it is written at once;
// a job of a manager that ends is done
TEST(evaluated_checkpoints, a_final_version_is_written_before_who_has_it_goes) {
  for (const auto& what : {"notice", "wish", "end"}) {
    dummy_cluster d(4, ends_evaluated);
    d.add_keeper_and_worker();
    d.keep_back<stopped>();
    d.train(4);
    EXPECT_EQ(d.all_told<checkpoint>("k").size(), 0u) << what;
    if (what == std::string("notice"))
      d.notice("k", 20s);
    else if (what == std::string("wish"))
      d.event(checkpoint_wanted{});
    else {
      d.lose("a");
      d.event(manager_ends{d.now() + 20s});
    }
    EXPECT_EQ(d.all_told<checkpoint>("k").size(), 1u) << what;
    d.advance(1s);
    EXPECT_EQ(d.view().checkpoint.steps, 4u) << what;
    EXPECT_EQ(d.ended(), what == std::string("end")) << what;
    EXPECT_TRUE(!d.ended() || d.why_ended() == "done") << d.why_ended();
  }
}

// given: a job that may end early, of which a keeper has a version before its worker said what came of its evaluation /
// expected: it is written when the worker did, and the keeper is told that before
TEST(evaluated_checkpoints, have_what_came_of_a_version_that_may_be_the_last) {
  for (const std::uint32_t patience : {0u, 2u}) {
    std::uint32_t replicas = 0;
    dummy_cluster d(4, [&](job_specification& job) {
      job.checkpoint_every = job.evaluate_every = 4;
      job.data.validation = 4;
      job.patience = patience;
      replicas = job.virtual_replicas;
    });
    d.add_keeper_and_worker();
    d.train(4);
    EXPECT_EQ(d.all_told<checkpoint>("k").size(), patience > 0 ? 0u : 1u);
    d.say("a", evaluated{d.view().current, {4, d.view().current}, 0, std::vector<double>(replicas, 0.5)});
    d.advance(1s);
    d.step(); // who says something is asked what came of the steps
    EXPECT_EQ(d.view().checkpoint.steps, 4u) << patience;
    std::optional<double> told;
    for (const auto& x : d.told("k")) {
      if (const auto* r = std::get_if<remember>(&x))
        if (const auto known = decode_loss_block(r->losses).all; known.size() > 3)
          told = known[3].validation_loss;
      EXPECT_TRUE(!std::holds_alternative<checkpoint>(x) || patience == 0 || told) << "told before";
    }
    EXPECT_EQ(d.view().now, phase::running);
  }
}

} // namespace
} // namespace parcae

// What a worker knows of the steps that it committed, and when it says so.

#include "gpu/executor/worker_machine.hpp"

#include <gtest/gtest.h>

#include <map>
#include <optional>

namespace parcae::losses_of_worker {
namespace {

constexpr job_id job{1};
const slot_id self{"a", 0};

prepare plan(generation g, job_id of = job) {
  prepare x{g, {}, of, {}, {}, {1, 1, {0, 2}, {}}, {}};
  x.target.participants.push_back({self, "host", 1});
  return x;
}

double loss_of(std::uint64_t step) {
  return 1 / static_cast<double>(step + 1);
}

struct worker {
  void begin(generation g, std::uint64_t steps, job_id of = job) {
    const version from{steps, {0}};
    m.hear(plan(g, of));
    m.connected({of, g}, 0);
    m.take(activate{g, from});
    m.moved({of, g}, {{0, from}, {1, from}});
    state = {};
    state.at = from;
    m.begun(state);
  }

  worker_machine::effects ends(const abort_generation& x) {
    auto result = m.take(x);
    if (std::ranges::any_of(result, [](const auto& y) { return std::holds_alternative<worker_effects::settle>(y); }))
      std::ranges::move(m.settled(m.held()), std::back_inserter(result));
    return result;
  }

  worker_machine::effects commit(generation g, bool stop = false) {
    const auto step = state.at.steps;
    state.result = {step, loss_of(step), 2, 1, 3, stop, false};
    state.at = {step + 1, g};
    state.at_ms = 1'000 + static_cast<std::int64_t>(step);
    return m.committed(state);
  }

  void commit_until(generation g, std::uint64_t steps) {
    while (state.at.steps < steps)
      commit(g);
  }

  worker_machine::effects evaluate(double loss, const std::vector<double>& sums = {}) {
    return m.evaluated(state, 0, sums, loss);
  }

  loss_block recalled_from(std::uint64_t from, job_id of = job) {
    for (const auto& x : m.take(recall{of, from}))
      if (const auto* said = std::get_if<worker_effects::say>(&x))
        if (const auto* answer = std::get_if<recalled>(&said->what))
          return answer->losses.empty() ? loss_block{} : decode_loss_block(answer->losses);
    ADD_FAILURE() << "RECALL is not answered";
    return {};
  }

  worker_machine m{self};
  training_state state;
};

template <class T>
std::optional<T> said(const worker_machine::effects& all) {
  for (const auto& x : all)
    if (const auto* y = std::get_if<worker_effects::say>(&x))
      if (const auto* z = std::get_if<T>(&y->what))
        return *z;
  return std::nullopt;
}

// given: RECALL before, during, after generations, of another job, after FORGET / expected: what came of its steps from
// there on, of all generations that it had a part in, until the job is over
TEST(worker_losses, are_recalled) {
  worker w;
  EXPECT_TRUE(w.recalled_from(0).all.empty());
  w.begin({1}, 10);
  w.commit_until({1}, 13);
  auto all = w.recalled_from(0);
  EXPECT_EQ(all.first, 10u) << "it knows of none before";
  ASSERT_EQ(all.all.size(), 3u);
  EXPECT_TRUE(all.all[2].same({loss_of(12), 2, 3, {}, 1'012}));
  EXPECT_EQ(w.recalled_from(12).all.size(), 1u);
  EXPECT_TRUE(w.recalled_from(13).all.empty());
  EXPECT_TRUE(w.recalled_from(0, {2}).all.empty());
  w.ends(abort_generation{{1}});
  w.begin({2}, 13);
  w.commit_until({2}, 15);
  EXPECT_EQ(w.recalled_from(0).all.size(), 5u);
  w.m.take(forget{job});
  EXPECT_TRUE(w.recalled_from(0).all.empty());
}

// given: one that gets its layers, and what came of the steps before / expected: it says that, too, as far as it counts
TEST(worker_losses, come_with_layers) {
  worker w;
  w.m.hear(plan({2}));
  w.m.connected({job, {2}}, 0);
  loss_block before{8, 0, {}};
  for (std::uint64_t step = 8; step < 14; ++step)
    before.all.push_back({loss_of(step), 2, 3, {}, 1'000});
  w.m.take(activate{{2}, {12, {1}}, encode(before)});
  const auto known = w.recalled_from(0);
  EXPECT_EQ(known.first, 8u);
  EXPECT_EQ(known.end(), 12u);
  EXPECT_TRUE(known.all[3].same(before.all[3]));
}

std::map<std::uint64_t, double> evaluations_in(const loss_block& x) {
  std::map<std::uint64_t, double> result;
  for (std::size_t i = 0; i < x.all.size(); ++i)
    if (x.all[i].validation_loss)
      result[x.first + i + 1] = *x.all[i].validation_loss;
  return result;
}

using by_version = std::map<std::uint64_t, double>;

// given: evaluations in the last stage and in others, one behind what the conductor knows / expected: with the steps
// that made their versions, all of them; who knows of a step hears what came of its version with the next
TEST(worker_losses, have_all_evaluations) {
  worker w;
  w.begin({1}, 0);
  EXPECT_FALSE(said<evaluated>(w.evaluate(9))) << "of a stage that is not the last";
  w.commit_until({1}, 3);
  w.evaluate(0.5);
  w.commit_until({1}, 6);
  EXPECT_TRUE(said<evaluated>(w.evaluate(0.25, {1})));
  w.commit_until({1}, 8);
  EXPECT_EQ(evaluations_in(w.recalled_from(0)), (by_version{{3, 0.5}, {6, 0.25}}));
  EXPECT_EQ(w.recalled_from(3).first, 2u);
  EXPECT_EQ(w.recalled_from(4).first, 4u);
  w.m.hear(abort_generation{{1}});
  EXPECT_EQ(decode_loss_block(said<aborted>(w.ends(abort_generation{{1}, 6}))->losses).first, 5u);
  w.begin({2}, 6);
  w.commit_until({2}, 9);
  EXPECT_EQ(evaluations_in(w.recalled_from(0)), (by_version{{3, 0.5}, {6, 0.25}})) << "of versions before it";
  w.evaluate(0.125);
  w.m.hear(stop{{2}, false, 9});
  EXPECT_EQ(evaluations_in(decode_loss_block(said<stopped>(w.commit({2}, true))->losses)), (by_version{{9, 0.125}}));
}

// given: one that gets its layers with what came of the step before, and evaluates that version / expected: known
TEST(worker_losses, have_the_evaluation_of_a_version_that_came) {
  worker w;
  const version from{5, {1}};
  w.m.hear(plan({2}));
  w.m.connected({job, {2}}, 0);
  w.m.take(activate{{2}, from, encode(loss_block{4, 0, {{loss_of(4), 2, 3, {}, 1'000}}})});
  w.m.moved({job, {2}}, {{0, from}, {1, from}});
  w.state.at = from;
  w.m.begun(w.state);
  w.evaluate(0.5);
  w.commit_until({2}, 7);
  EXPECT_EQ(evaluations_in(w.recalled_from(0)), (by_version{{5, 0.5}}));
}

// given: a job that went back, and another job / expected: what is void is not said, nor what is another's
TEST(worker_losses, that_are_void_are_not_said) {
  worker w;
  w.begin({1}, 0);
  w.commit_until({1}, 20);
  w.begin({2}, 5);
  w.commit_until({2}, 7);
  EXPECT_EQ(w.recalled_from(0).end(), 7u);
  w.begin({3}, 0, {2});
  w.commit_until({3}, 2);
  EXPECT_TRUE(w.recalled_from(0).all.empty());
  EXPECT_EQ(w.recalled_from(0, {2}).all.size(), 2u);
}

// given: STOP and ABORT that name the steps that are known / expected: the last word brings the others
TEST(worker_losses, come_with_the_last_word) {
  worker w;
  w.begin({1}, 0);
  w.commit_until({1}, 10);
  w.m.hear(stop{{1}, false, 8});
  const auto stopped_at = said<stopped>(w.commit({1}, true));
  ASSERT_TRUE(stopped_at);
  const auto block = decode_loss_block(stopped_at->losses);
  EXPECT_EQ(block.first, 8u);
  EXPECT_EQ(block.end(), 11u);
  w.m.hear(abort_generation{{1}, 11});
  EXPECT_TRUE(said<aborted>(w.ends(abort_generation{{1}, 11}))->losses.empty());
  EXPECT_EQ(decode_loss_block(said<aborted>(w.ends(abort_generation{{1}, 3}))->losses).first, 3u);
  EXPECT_EQ(decode_loss_block(said<aborted>(w.ends(abort_generation{{}, 10}))->losses).first, 10u)
      << "also of one that has no part";
}

// given: a job that went back behind what its conductor said that it knows / expected: the last word, unasked, brings
// what was computed again
TEST(worker_losses, that_are_computed_again_come_with_the_last_word) {
  worker w;
  w.begin({1}, 0);
  w.commit_until({1}, 20);
  w.ends(abort_generation{{1}, 20});
  w.begin({2}, 5);
  w.commit_until({2}, 7);
  const auto last = said<stopped>(w.commit({2}, true));
  ASSERT_TRUE(last && !last->losses.empty());
  EXPECT_EQ(decode_loss_block(last->losses).first, 5u);
  EXPECT_EQ(decode_loss_block(last->losses).end(), 8u);
}

// given: a step that DECIDE has applied / expected: it is known
TEST(worker_losses, of_a_step_decided_on_are_known) {
  worker w;
  w.begin({1}, 0);
  w.commit_until({1}, 3);
  w.m.hear(abort_generation{{1}});
  w.state.complete = 3;
  w.m.interrupted(w.state);
  w.ends(abort_generation{{1}});
  const commit_result result{3, 0.25, 2, 1, 3, false, false};
  w.m.take(decide{{1}, result});
  w.state.result = result;
  w.state.at = {4, {1}};
  w.m.applied(w.state);
  EXPECT_EQ(w.recalled_from(3).all.at(0).loss, 0.25);
}

// given: more steps than it keeps / expected: the newest, a block at a time
TEST(worker_losses, are_bounded) {
  worker w;
  w.begin({1}, 0);
  const auto steps = losses_kept + 3 * loss_block_steps;
  w.commit_until({1}, steps);
  EXPECT_GE(w.m.losses().first_known(), 2 * loss_block_steps);
  EXPECT_LE(w.m.losses().first_known(), steps - losses_kept);
  const auto block = w.recalled_from(0);
  EXPECT_EQ(block.first, w.m.losses().first_known());
  EXPECT_EQ(block.all.size(), loss_block_steps);
  w.m.hear(abort_generation{{1}});
  const auto last = decode_loss_block(said<aborted>(w.ends(abort_generation{{1}}))->losses);
  EXPECT_EQ(last.end(), steps) << "the last word brings the newest";
}

} // namespace
} // namespace parcae::losses_of_worker

// Losses between the moment at which a rank computes and the one at which its moments are there, against real executors
// over real TCP. All end with the bits of the undisturbed run.

#include "protocols/model/model_description.hpp"
#include "tests/actors/conductor/failure_schedule.hpp"

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <variant>

namespace parcae {
namespace {

bool is_at(const fault_point& at, const char* phase, std::uint64_t g) {
  return std::string(at.phase) == phase && at.at.value == g;
}

class early_schedule : public failure_schedule {
protected:
  /// The keeper has a version of 1 to 4; w0 holds version 6 alone, and w1 joins it.
  void join(const fault_plan& first, const fault_plan& second, const job_specification& job = small_job()) {
    begin({{1, 1}, {2, 1}, {1, 1}}, job);
    train_alone(first);
    cluster_->add_worker("w1", second);
  }

  /// w0, which stops at version 6 when it is told to, and not before.
  void train_alone(const fault_plan& first) {
    cluster_->on_effect = [this](const effect& x) {
      const auto* told = std::get_if<tell>(&x);
      const auto* kept = told ? std::get_if<protect>(told->what.get()) : nullptr;
      knows_keepers_ = knows_keepers_ || (kept && !kept->keepers.empty());
      if (told && std::holds_alternative<stop>(*told->what))
        stopping_.reach();
      const auto* ended = told ? std::get_if<abort_generation>(told->what.get()) : nullptr;
      if (ended && ended->current.value == 2)
        aborting_.reach();
      return true;
    };
    cluster_->add_worker("w0", [this, first](const fault_point& at) {
      if (is_at(at, "forward", 1) && at.step == 1)
        protecting_.wait();
      if (is_at(at, "forward", 1) && at.step == 5) {
        in_step_5_.reach();
        stopping_.wait();
      }
      return first(at);
    });
    ASSERT_TRUE(cluster_->run_until([this] { return knows_keepers_; }));
    protecting_.reach();
    ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().protected_version.steps > 0; }));
    ASSERT_TRUE(cluster_->run_until([this] { return in_step_5_.reached(); }));
  }

  /// Of what it sends behind the first layer's moments nothing leaves before generation 2 is over.
  fault_plan holds_moments_back() {
    return [this](const fault_point& at) {
      if (is_at(at, "late_send", 2) && at.index == 1)
        aborting_.wait();
      return fault_action::none;
    };
  }

  /// w1, in its first step.
  void lose_destination(fault_action by) {
    join([](const fault_point&) { return fault_action::none; },
         [by](const fault_point& at) { return is_at(at, "forward", 2) ? by : fault_action::none; });
  }

  void expect_that_source_has_all() {
    expect_identical();
    EXPECT_TRUE(decided("generation 2 ends at 6"));
    EXPECT_FALSE(decided("go back to"));
  }

  void TearDown() override {
    cluster_.reset(); // before what its executors use
    failure_schedule::TearDown();
  }

  bool knows_keepers_ = false; ///< w0
  shared_moment protecting_, in_step_5_, stopping_, aborting_, whole_, returned_;
  std::atomic<bool> sends_ = false;
};

fault_action nothing(const fault_point&) {
  return fault_action::none;
}

// given: the only source dies when parameters are there, and of the moments one layer's / expected: what came counts
// for nothing
TEST_F(early_schedule, the_only_source_dies_after_its_early_parts) {
  join(
      [](const fault_point& at) {
        return is_at(at, "late_send", 2) && at.index == 1 ? fault_action::kill : fault_action::none;
      },
      nothing);
  expect_identical();
  EXPECT_TRUE(decided("generation 1 stopped at version 6@1"));
  EXPECT_TRUE(decided("go back to version"));
}

// given: it dies when the other is whole, in the first step / expected: no committed step is lost
TEST_F(early_schedule, the_only_source_dies_when_all_has_come) {
  join(
      [this](const fault_point& at) {
        if (!is_at(at, "reduced", 2)) // the other one takes its moments in behind its sums
          return fault_action::none;
        whole_.wait();
        return fault_action::kill;
      },
      [this](const fault_point& at) {
        if (is_at(at, "late_receive", 2) && at.index == describe(small_job().model).layers.size())
          whole_.reach();
        return fault_action::none;
      });
  expect_identical();
  EXPECT_TRUE(decided("generation 2 ends at 6"));
  EXPECT_FALSE(decided("go back to"));
}

// given: a destination that computes dies, or freezes, before it contributes / expected: the source has all
TEST_F(early_schedule, a_destination_dies_before_it_contributes) {
  lose_destination(fault_action::kill);
  expect_that_source_has_all();
}

TEST_F(early_schedule, a_destination_freezes_before_it_contributes) {
  lose_destination(fault_action::freeze);
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().current.value == 3; }));
  cluster_->thaw("w1");
  expect_that_source_has_all();
}

// given: two join, and one of them dies in the first step, before moments are there / expected: who has not all of a
// layer does not hold it, and nobody has a result
TEST_F(early_schedule, what_is_not_whole_is_not_held_behind_an_abort) {
  begin({{1, 1}, {3, 1}, {2, 1}});
  std::optional<aborted> said;
  cluster_->on_report = [&](const slot_id& from, const report& x) {
    const auto* a = std::get_if<aborted>(&x);
    if (a && from.instance == "w1" && a->current.value == 2)
      said = *a;
  };
  train_alone(holds_moments_back());
  cluster_->add_worker("w1");
  cluster_->add_worker(
      "w2", [](const fault_point& at) { return is_at(at, "forward", 2) ? fault_action::kill : fault_action::none; });
  expect_that_source_has_all();
  ASSERT_TRUE(said);
  EXPECT_EQ(said->result.step, no_step);
  EXPECT_LE(said->held.size(), 1u) << "the first layer's moments may have come";
}

// given: an evaluation is due where a rank joins, which dies in it, before moments are there / expected: it is done
// again, and recorded
TEST_F(early_schedule, a_loss_in_the_evaluation_that_is_due_first) {
  auto job = small_job();
  job.data.validation = 12;
  job.evaluate_every = 3;
  join(
      holds_moments_back(),
      [](const fault_point& at) { return is_at(at, "evaluate", 2) ? fault_action::kill : fault_action::none; }, job);
  ASSERT_TRUE(cluster_->run_until_ended());
  EXPECT_EQ(cluster_->final_digest(), undisturbed_digest(job));
  EXPECT_TRUE(decided("generation 2 ends at 6"));
  EXPECT_THAT(cluster_->view().validation_losses, testing::Contains(testing::Field(&loss_point::steps, 6)));
}

class leaving_source : public early_schedule, public testing::WithParamInterface<bool> {};

// given: a notice to the only worker, which another one replaces; it ends in the first step, before all moments have
// left, or when they have / expected: back to what the keeper has, or no step is lost
TEST_P(leaving_source, is_gone_in_the_first_step) {
  const bool has_all = GetParam();
  begin({{1, 1}});
  train_alone([has_all](const fault_point& at) {
    return !has_all && is_at(at, "late_send", 2) && at.index == 1 ? fault_action::kill : fault_action::none;
  });
  std::atomic<bool> whole = false;
  cluster_->add_worker("w1", [&](const fault_point& at) {
    if (is_at(at, "late_receive", 2) && at.index == describe(small_job().model).layers.size())
      whole = true;
    return has_all ? at_a_pace(at) : fault_action::none;
  });
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().known.slots == 2; }));
  cluster_->notice("w0", std::chrono::seconds(30));
  if (has_all) {
    ASSERT_TRUE(cluster_->run_until([&] { return whole.load(); }));
    cluster_->kill("w0");
  }
  expect_identical();
  EXPECT_TRUE(decided("generation 1 stopped at version 6@1"));
  EXPECT_EQ(decided("go back to version"), !has_all);
}

INSTANTIATE_TEST_SUITE_P(moments, leaving_source, testing::Bool(),
                         [](const auto& x) { return x.param ? "had_left" : "had_not_left"; });

/// Whether a worker leaves, or none; and how many are told ACTIVATE.
class dying_manager : public early_schedule, public testing::WithParamInterface<std::tuple<bool, int>> {};

// given: one more joins, or replaces the only one, which sends and is told first; the manager dies when the beginning
// is in the journal, and none, one, or both are told ACTIVATE / expected: the next one tells all; nothing is done again
TEST_P(dying_manager, leaves_a_generation_that_begins) {
  const bool leaves = std::get<0>(GetParam());
  const int told = std::get<1>(GetParam());
  if (leaves)
    begin({{1, 1}});
  else
    begin({{1, 1}, {2, 1}});
  train_alone(nothing);
  cluster_->on_effect = [this, told, before = cluster_->on_effect, count = -1](const effect& x) mutable {
    const auto* r = std::get_if<record>(&x);
    const auto* t = std::get_if<tell>(&x);
    const auto* a = t ? std::get_if<activate>(t->what.get()) : nullptr;
    if ((r && r->now.last.value == 2 && count < 0) || (a && a->next.value == 2))
      if (++count == told)
        cluster_->kill_manager(); // when it has done this
    return before(x);
  };
  cluster_->add_worker("w1");
  ASSERT_TRUE(cluster_->run_until([&] { return !leaves || cluster_->view().known.slots == 2; }));
  if (leaves)
    cluster_->notice("w0", std::chrono::seconds(30));
  ASSERT_TRUE(cluster_->run_until([&] { return !cluster_->has_manager(); }));
  cluster_->start_manager();
  expect_identical();
  EXPECT_EQ(cluster_->view().current.value, 2u);
  EXPECT_EQ(cluster_->view().replayed_steps, 0u);
}

INSTANTIATE_TEST_SUITE_P(begins, dying_manager, testing::Combine(testing::Bool(), testing::Values(0, 1, 2)),
                         [](const auto& x) {
                           return std::string(std::get<0>(x.param) ? "leaving_" : "joining_") +
                                  std::to_string(std::get<1>(x.param)) + "_told";
                         });

// given: the manager dies while moments are on their way, and another one comes before they arrive / expected: it finds
// the generation in its first step, which goes on
TEST_F(early_schedule, the_manager_dies_during_late_parts) {
  begin({{1, 1}, {2, 1}});
  train_alone([this](const fault_point& at) {
    if (is_at(at, "late_send", 2) && at.index == 1) {
      sends_ = true;
      returned_.wait();
    }
    return fault_action::none;
  });
  cluster_->add_worker("w1");
  ASSERT_TRUE(cluster_->run_until([&] { return sends_.load(); }));
  cluster_->kill_manager();
  cluster_->start_manager();
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().now == phase::running; }));
  returned_.reach();
  expect_identical();
  EXPECT_EQ(cluster_->view().current.value, 2u);
  EXPECT_EQ(cluster_->view().replayed_steps, 0u);
}

// given: the same, and the rank that waits for them is lost while there is no manager / expected: the source has all
TEST_F(early_schedule, the_manager_and_a_destination_die_during_late_parts) {
  join(
      [this, hold = holds_moments_back()](const fault_point& at) {
        sends_ = sends_ || (is_at(at, "late_send", 2) && at.index == 1);
        return hold(at);
      },
      nothing);
  ASSERT_TRUE(cluster_->run_until([&] { return sends_.load(); }));
  cluster_->kill_manager();
  cluster_->kill("w1");
  cluster_->start_manager();
  expect_that_source_has_all();
}

// given: all workers are lost; the keeper that sends to a new one dies between parameters and moments / expected: all
// begins anew, from the checkpoint that it wrote or from the seed
TEST_F(early_schedule, a_keeper_dies_between_early_and_late_parts) {
  begin({{1, 1}});
  cluster_->kill("keeper");
  cluster_->add_keeper("other", [](const fault_point& at) {
    return is_at(at, "late_send", 2) && at.index == 0 ? fault_action::kill : fault_action::none;
  });
  cluster_->add_worker("w0", [](const fault_point& at) {
    return is_at(at, "committed", 1) && at.step == 6 ? fault_action::kill : fault_action::none;
  });
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().now == phase::waiting; }));
  cluster_->add_worker("w1");
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().current.value == 2; }));
  cluster_->add_keeper("third");
  expect_identical();
  EXPECT_TRUE(decided("generation 2 ends at"));
}

// given: the same, but the keeper lives, and a bit of a moment is another one when it comes / expected: it is seen, and
// the generation is given up
TEST_F(early_schedule, a_late_part_is_damaged_on_its_way) {
  std::uint64_t parameters = 0;
  for (const auto& x : describe(small_job().model).layers)
    parameters += x.parameters();
  begin({{1, 1}});
  cluster_->kill("keeper");
  cluster_->add_keeper_behind("other", 1'000'000'000, 2 * parameters * sizeof(float)); // of three times as much
  cluster_->add_worker("w0", [](const fault_point& at) {
    return is_at(at, "committed", 1) && at.step == 6 ? fault_action::kill : fault_action::none;
  });
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().now == phase::waiting; }));
  cluster_->add_worker("w1");
  expect_identical();
  EXPECT_TRUE(decided("checksum of"));
  EXPECT_GE(cluster_->view().current.value, 3u);
}

} // namespace
} // namespace parcae

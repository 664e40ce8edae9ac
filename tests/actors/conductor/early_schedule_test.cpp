// Losses between the moment at which a rank computes and the one at which its moments are there, against real executors
// over real TCP. All end with the bits of the undisturbed run.

#include "protocols/model/model_description.hpp"
#include "tests/actors/conductor/failure_schedule.hpp"

namespace parcae {
namespace {

bool is_at(const fault_point& at, const char* phase, std::uint64_t g) {
  return std::string(at.phase) == phase && at.at.value == g;
}

class early_schedule : public failure_schedule {
protected:
  /// Version 4 is with the keeper; w0 holds version 6 alone, and w1 joins it.
  void join(const fault_plan& first, const fault_plan& second) {
    begin({{1, 1}, {2, 1}, {1, 1}});
    on_told<stop>([this] { stopping_.reach(); });
    cluster_->add_worker("w0", [this, first](const fault_point& at) {
      if (is_at(at, "forward", 1) && at.step == 5) {
        in_step_5_.reach();
        stopping_.wait();
      }
      return first(at);
    });
    ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().protected_version.steps == 4; }));
    in_step_5_.wait();
    cluster_->add_worker("w1", second);
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

  shared_moment in_step_5_, stopping_, whole_;
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
  EXPECT_TRUE(decided("go back to version 4@1"));
}

// given: it dies when the other is whole, in the first step / expected: no committed step is lost
TEST_F(early_schedule, the_only_source_dies_when_all_has_come) {
  join(
      [this](const fault_point& at) {
        if (!is_at(at, "backward", 2))
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

} // namespace
} // namespace parcae

// Layers that go ahead of a change, and what may happen meanwhile, against real executors over real TCP. All end with
// the bits of the undisturbed run.

#include "tests/actors/conductor/failure_schedule.hpp"
#include "tests/gpu/training/short_job.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace parcae {
namespace {

/// Steps of 20 ms at least, also of a rank that has no other.
fault_action in_steps(const fault_point& at) {
  if (std::string(at.phase) == "reduced")
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return fault_action::none;
}

class warm_schedule : public failure_schedule {
protected:
  /// As failure_schedule's; whatever little is to be moved goes ahead.
  void begin_warm(std::vector<std::pair<std::uint32_t, std::uint32_t>> shapes, job_specification job = small_job()) {
    job.steps = 30;
    job.feed = is_on_;
    conductor_options options;
    options.feed_from = std::chrono::milliseconds(0);
    begin(std::move(shapes), job, {}, options);
    cluster_->on_report = [this](const slot_id& from, const report& x) {
      if (const auto* w = std::get_if<warmed>(&x))
        warmed_[{w->next.value, from.instance}] = w->bytes;
    };
  }

  void train_until(std::uint64_t steps) {
    ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().steps_done >= steps; }));
  }

  /// Or ABORT.
  void reach_at_stop(shared_moment& moment) {
    cluster_->on_effect = [&moment](const effect& x) {
      const auto* t = std::get_if<tell>(&x);
      if (t && (std::holds_alternative<stop>(*t->what) || std::holds_alternative<abort_generation>(*t->what)))
        moment.reach();
      return true;
    };
  }

  void expect_bits() {
    ASSERT_TRUE(cluster_->run_until_ended()) << to_string(cluster_->view().now) << " " << cluster_->log().back();
    EXPECT_EQ(cluster_->final_digest(), undisturbed_digest(job_));
  }

  bool is_warm(std::uint64_t g, const std::string& name) const {
    const auto known = warmed_.find({g, name});
    return known != warmed_.end() && known->second > 0;
  }

  bool is_on_ = true;
  std::map<std::pair<std::uint64_t, std::string>, std::uint64_t> warmed_; ///< bytes
};

/// Such steps, and the fault.
fault_plan at_pace(fault_plan fault) {
  return [fault = std::move(fault)](const fault_point& at) {
    const auto result = fault(at);
    return result == fault_action::none ? in_steps(at) : result;
  };
}

/// The first time that the phase is reached.
fault_plan first(const std::string& phase, fault_action action) {
  auto done = std::make_shared<std::atomic<bool>>(false);
  return at_pace(
      [=](const fault_point& at) { return at.phase == phase && !done->exchange(true) ? action : fault_action::none; });
}

class each_job : public warm_schedule, public testing::WithParamInterface<const char*> {};

// given: jobs of all kinds; another worker joins, a stage each / expected: what it is to compute went ahead; almost
// nothing is moved after the stop
TEST_P(each_job, goes_ahead_of_a_join) {
  const std::string kind = GetParam();
  auto job = kind == "sgd" || kind == "bfloat16" ? small_job() : small_job_of(kind);
  if (kind == "sgd")
    job.optimizer.kind = "sgd";
  if (kind == "bfloat16")
    job.precision = job.gradient_sums = "bfloat16";
  if (kind == "patience") {
    job.data.validation = 12;
    job.evaluate_every = 3;
    job.patience = 10;
  }
  begin_warm({{1, 1}, {1, 2}, {2, 2}}, job);
  std::atomic<int> received = 0;
  const auto counts = at_pace([&](const fault_point& at) {
    received += std::string(at.phase) == "transfer_receive";
    return fault_action::none;
  });
  cluster_->add_worker("w0", in_steps);
  train_until(3);
  cluster_->add_worker("w1", counts);
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().current.value == 2; }));
  EXPECT_TRUE(is_warm(2, "w1"));
  EXPECT_TRUE(decided("generation 2 is warm"));
  const auto at = cluster_->view().steps_done;
  train_until(at + 3);
  cluster_->add_workers({"w2", "w3"}, in_steps); // each layer to one, or to two
  expect_bits();
  EXPECT_LE(received, 1) << "a layer, or none, grew cold";
}

INSTANTIATE_TEST_SUITE_P(kinds, each_job, testing::Values("gpt", "mlp", "resnet", "sgd", "bfloat16", "patience"));

// given: a notice to one of two stages, and a worker without a place / expected: that one follows the stage, and has it
// when the other stops
TEST_F(warm_schedule, goes_ahead_of_a_notice) {
  begin_warm({{1, 2}});
  cluster_->add_workers({"w0", "w1"}, in_steps);
  cluster_->add_worker("w2", in_steps);
  train_until(3);
  cluster_->notice("w1", std::chrono::seconds(30));
  expect_bits();
  EXPECT_TRUE(decided("is warm"));
}

// given: the key / expected: nothing goes ahead
TEST_F(warm_schedule, is_turned_off) {
  is_on_ = false;
  begin_warm({{1, 1}, {1, 2}});
  cluster_->add_worker("w0", in_steps);
  train_until(3);
  cluster_->add_worker("w1", in_steps);
  expect_bits();
  EXPECT_TRUE(warmed_.empty());
}

struct harm {
  const char* who;
  const char* phase;
  fault_action action;
};

class harmed : public warm_schedule, public testing::WithParamInterface<harm> {};

// given: who sends, or follows, dies or freezes in a base, in a gradient, while it applies, at the end of the feed
TEST_P(harmed, ends_with_the_same_bits) {
  const auto& x = GetParam();
  const auto of = [&](const std::string& name) -> fault_plan {
    return name == x.who ? first(x.phase, x.action) : fault_plan(in_steps);
  };
  begin_warm({{1, 2}, {1, 3}, {1, 2}});
  cluster_->add_worker("w0", of("w0"));
  cluster_->add_worker("w1", of("w1"));
  train_until(5);
  cluster_->add_worker("w2", of("w2"));
  const auto lost = [&] { return cluster_->view().known.slots < 3; };
  ASSERT_TRUE(cluster_->run_until(lost));
  if (x.action == fault_action::freeze) {
    const auto g = cluster_->view().current;
    ASSERT_TRUE(cluster_->run_until([&] { return cluster_->ended() || cluster_->view().steps_done > 12; }));
    cluster_->thaw(x.who);
    EXPECT_GE(cluster_->view().current, g);
  }
  if (std::string(x.who) != "w2")
    cluster_->add_worker("w3", in_steps);
  expect_bits();
}

INSTANTIATE_TEST_SUITE_P(
    moments, harmed,
    testing::Values(harm{"w1", "feed_base", fault_action::kill}, harm{"w1", "feed_gradient", fault_action::kill},
                    harm{"w1", "feed_end", fault_action::kill}, harm{"w2", "follow_base", fault_action::kill},
                    harm{"w2", "follow_gradient", fault_action::kill}, harm{"w2", "follow", fault_action::kill},
                    harm{"w2", "follow_base", fault_action::freeze}, harm{"w2", "follow", fault_action::freeze}),
    [](const auto& x) {
      return std::string(x.param.who) + "_" + x.param.phase +
             (x.param.action == fault_action::kill ? "_dies" : "_freezes");
    });

/// Where a rank reads what it is to follow it waits for `moment`.
fault_plan reads_behind(shared_moment& moment) {
  return at_pace([&moment](const fault_point& at) {
    if (std::string(at.phase) == "follow_base")
      moment.wait();
    return fault_action::none;
  });
}

class too_slow : public warm_schedule, public testing::WithParamInterface<std::chrono::milliseconds> {};

// given: a notice to one of two stages, longer or shorter than a feed may take; who is to follow it reads nothing until
// STOP, or ABORT / expected: nobody waits for that; what did not come ahead comes after the stop, or by another change
// if the notice is over before, or steps are so long that g must stop for it at once; nothing is done again
TEST_P(too_slow, is_not_waited_for) {
  shared_moment stopping;
  begin_warm({{1, 2}});
  reach_at_stop(stopping);
  cluster_->add_workers({"w0", "w1"}, in_steps);
  cluster_->add_worker("w2", reads_behind(stopping));
  train_until(3);
  cluster_->notice("w1", GetParam());
  expect_bits();
  const bool is_over = GetParam() < std::chrono::seconds(10) &&
                       (decided("change given up") || decided("stops, and the keepers take its state"));
  EXPECT_TRUE(decided("is not warm yet, and begins") || is_over);
  EXPECT_EQ(cluster_->view().replayed_steps, 0u);
  cluster_.reset(); // before the moment
}

INSTANTIATE_TEST_SUITE_P(notices, too_slow,
                         testing::Values(std::chrono::milliseconds(30'000), std::chrono::milliseconds(1'500)),
                         [](const auto& x) { return std::to_string(x.param.count()) + "_ms"; });

// given: gradients larger than sockets take, and who is to follow reads none until STOP / expected: layers grow cold,
// no step waits for it, and all is moved in the end
TEST_F(warm_schedule, a_destination_that_is_too_slow) {
  auto job = small_job();
  job.model = {"mlp", 3, 1024, 4, 4, 256, 0, false};
  job.data = {.kind = "synthetic"};
  shared_moment stopping;
  begin_warm({{1, 2}}, job);
  reach_at_stop(stopping);
  cluster_->add_workers({"w0", "w1"}, in_steps);
  cluster_->add_worker("w2", at_pace([&](const fault_point& at) {
                         if (std::string(at.phase) == "follow_gradient")
                           stopping.wait();
                         return fault_action::none;
                       }));
  train_until(3);
  cluster_->notice("w1", std::chrono::seconds(30));
  expect_bits();
  EXPECT_EQ(cluster_->view().replayed_steps, 0u);
  cluster_.reset(); // before the moment
}

// given: the manager dies when a worker that joins is told to follow, or when it has said that it does / expected: the
// next one knows nothing of that change; what trains goes on, and the worker has a place later
TEST_F(warm_schedule, the_manager_dies_when_it_begins) {
  begin_warm({{1, 1}, {1, 2}});
  on_told<warm>([this, done = false]() mutable {
    if (!std::exchange(done, true))
      cluster_->kill_manager();
  });
  cluster_->add_worker("w0", in_steps);
  train_until(3);
  cluster_->add_worker("w1", in_steps);
  ASSERT_TRUE(cluster_->run_until([&] { return !cluster_->has_manager(); }));
  cluster_->start_manager();
  expect_bits();
  EXPECT_EQ(cluster_->view().replayed_steps, 0u);
  EXPECT_GE(cluster_->view().current.value, 3u);
}

TEST_F(warm_schedule, the_manager_dies_when_all_is_followed) {
  begin_warm({{1, 1}, {1, 2}});
  bool done = false;
  cluster_->on_report = [&](const slot_id&, const report& x) {
    if (const auto* w = std::get_if<warmed>(&x); w && w->bytes > 0 && !std::exchange(done, true))
      cluster_->kill_manager();
  };
  cluster_->add_worker("w0", in_steps);
  train_until(3);
  cluster_->add_worker("w1", in_steps);
  ASSERT_TRUE(cluster_->run_until([&] { return !cluster_->has_manager(); }));
  cluster_->start_manager();
  expect_bits();
  EXPECT_EQ(cluster_->view().replayed_steps, 0u);
}

// given: the test's thread, on which the conductor runs, stands still when a worker is told to follow, and so do ranks
// expected: no limit passes meanwhile, and it follows all
TEST_F(warm_schedule, the_tests_own_thread_stands_still) {
  begin_warm({{1, 1}, {1, 2}});
  on_told<warm>([] { std::this_thread::sleep_for(milliseconds(500)); });
  cluster_->add_worker("w0", in_steps);
  train_until(3);
  cluster_->add_worker("w1", in_steps);
  expect_bits();
  EXPECT_TRUE(decided("generation 2 is warm"));
}

// given: another worker joins while one follows / expected: it has its turn after that
TEST_F(warm_schedule, a_worker_joins_meanwhile) {
  begin_warm({{1, 1}, {1, 2}, {1, 3}});
  bool joins = false;
  on_told<warm>([&] { joins = true; });
  cluster_->add_worker("w0", in_steps);
  train_until(3);
  cluster_->add_worker("w1", in_steps);
  ASSERT_TRUE(cluster_->run_until([&] { return joins; }));
  cluster_->add_worker("w2", in_steps);
  expect_bits();
  EXPECT_TRUE(decided("generation 2 is warm"));
  EXPECT_EQ(cluster_->view().current.value, 3u);
  EXPECT_EQ(cluster_->view().replayed_steps, 0u);
}

// given: an apply of what is followed throws / expected: the change is given up, g trains on, and others come later
TEST_F(warm_schedule, a_destination_that_cannot_follow) {
  std::atomic<std::uint64_t> committed = 0;
  std::atomic<bool> waited = false, done = false;
  begin_warm({{1, 1}, {1, 2}});
  cluster_->add_worker("w0", [&](const fault_point& at) {
    if (std::string(at.phase) == "committed")
      committed = at.step;
    return in_steps(at);
  });
  train_until(3);
  cluster_->add_worker("w1", [&](const fault_point& at) {
    const std::string phase = at.phase;
    if (phase == "follow_base" && !waited.exchange(true)) { // else it may be warm before there was a step to follow
      const auto before = committed.load();
      for (int ms = 0; ms < 5'000 && committed < before + 2; ++ms)
        std::this_thread::sleep_for(milliseconds(1));
    }
    if (phase == "follow" && !done.exchange(true))
      throw std::runtime_error("no memory for it");
    return in_steps(at);
  });
  expect_bits();
  EXPECT_TRUE(decided("no memory for it"));
  EXPECT_FALSE(decided("generation 1 ends"));
  cluster_.reset(); // before what its executors use
}

/// Of no other copy than what is followed is there one: keepers get the last version only.
job_specification without_snapshots() {
  auto job = small_job();
  job.keeper_every = 1'000'000;
  return job;
}

/// How far a destination follows.
class followed_so_far {
public:
  void note(const fault_point& at) {
    const std::string phase = at.phase;
    const std::lock_guard held(mutex_);
    if (phase == "follow_base")
      at_[at.index] = at.step;
    if (phase == "follow")
      at_.at(at.index) = at.step + 1;
    changed_.notify_all();
  }

  /// All layers to this version. Bounded.
  bool wait_for(std::uint64_t steps) {
    std::unique_lock held(mutex_);
    return changed_.wait_for(held, std::chrono::seconds(20), [&] {
      return !at_.empty() && std::ranges::all_of(at_, [&](const auto& x) { return x.second == steps; });
    });
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint32_t, std::uint64_t> at_; ///< steps, by layer
};

// given: of two stages, one each, a spare follows the one under notice to the version that the other one has; its rank
// dies in the next step / expected: the job goes on from that version
TEST_F(warm_schedule, a_source_without_a_replica_dies_when_all_is_followed) {
  begin_warm({{1, 2}}, without_snapshots());
  std::atomic<bool> warm = false, follows = false;
  followed_so_far so_far;
  cluster_->add_worker("w0", in_steps);
  cluster_->add_worker("w1", at_pace([&](const fault_point& at) {
                         if (!warm || std::string(at.phase) != "forward")
                           return fault_action::none;
                         follows = so_far.wait_for(at.step);
                         return fault_action::kill;
                       }));
  cluster_->add_worker("w2", [&](const fault_point& at) {
    so_far.note(at);
    return in_steps(at);
  });
  train_until(3);
  cluster_->on_report = [&](const slot_id& from, const report& x) {
    warm = warm || (from.instance == "w2" && std::holds_alternative<warmed>(x));
  };
  cluster_->on_effect = [&](const effect& x) { // or it stops before it dies
    const auto* t = std::get_if<tell>(&x);
    return !t || !std::holds_alternative<stop>(*t->what) || cluster_->view().known.slots < 3;
  };
  cluster_->notice("w1", std::chrono::seconds(30));
  expect_bits();
  EXPECT_TRUE(follows);
  EXPECT_EQ(cluster_->view().replayed_steps, 1u) << "the one in progress";
  cluster_.reset(); // before what its faults look at
}

// given: the only rank dies when the other follows all, and has not yet stopped / expected: on from what that follows
TEST_F(warm_schedule, the_only_source_dies_when_all_is_followed) {
  begin_warm({{1, 1}});
  std::atomic<bool> warm = false;
  cluster_->add_worker("w0", at_pace([&](const fault_point& at) {
                         return warm && std::string(at.phase) == "exchange_send" ? fault_action::kill
                                                                                 : fault_action::none;
                       }));
  train_until(3);
  cluster_->add_worker("w1", in_steps);
  cluster_->on_report = [&](const slot_id& from, const report& x) {
    warm = warm || (from.instance == "w1" && std::holds_alternative<warmed>(x));
  };
  cluster_->notice("w0", std::chrono::seconds(30));
  expect_bits();
}

} // namespace
} // namespace parcae

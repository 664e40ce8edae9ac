// Every model kind through a trace of at least ten changes: instances join, leave on notice and vanish at the worst
// moments, an evaluation among them. Losses, evaluations and final state have the bits of the undisturbed run.

#include "tests/gpu/training/short_job.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace parcae {
namespace {

/// What a run leaves behind.
struct outcome {
  std::string digest;
  std::map<std::uint64_t, double> losses;      ///< by step
  std::map<std::uint64_t, double> evaluations; ///< by steps committed; a short life of a version may hide one
};

/// Kills the first instance that comes to a phase, once; and lets no generation go on past a step until the test allows
/// it or the generation ends, so that a fast machine does not end the job before the trace did.
class director {
public:
  fault_action pass(const fault_point& at) {
    std::unique_lock lock(mutex_);
    if (at.phase == phase_ && at.step >= from_) {
      phase_ = "";
      return fault_action::kill;
    }
    if (std::string_view(at.phase) == "forward" && at.step >= last_)
      changed_.wait_for(lock, std::chrono::seconds(20), [&] { return at.step < last_ || at.at.value <= ending_; });
    return fault_action::none;
  }

  bool see(const effect& x) {
    if (const auto* t = std::get_if<tell>(&x)) {
      if (const auto* s = std::get_if<stop>(t->what.get()))
        end(s->current.value);
      if (const auto* a = std::get_if<abort_generation>(t->what.get()))
        end(a->current.value);
    }
    return true;
  }

  /// Steps below `last` may begin.
  void allow(std::uint64_t last) {
    set([&] { last_ = last; });
  }

  void kill_at(std::string_view phase, std::uint64_t from) {
    set([&] {
      phase_ = phase;
      from_ = from;
    });
  }

private:
  void set(auto&& change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }

  void end(std::uint64_t generation) {
    set([&] { ending_ = std::max(ending_, generation); });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string_view phase_;
  std::uint64_t from_ = 0, last_ = 0, ending_ = 0;
};

struct change {
  enum kind { join, kill, leave, reshape } what;
  std::string_view where = ""; ///< kill: the phase
};

constexpr change trace[] = {{change::join},         {change::kill, "forward"},
                            {change::join},         {change::kill, "evaluate"},
                            {change::reshape},      {change::join},
                            {change::leave},        {change::kill, "exchange_send"},
                            {change::join},         {change::kill, "backward"},
                            {change::reshape},      {change::join},
                            {change::kill, "apply"}};

/// Runs the job; over the trace if there is a director.
outcome run(const job_specification& job, director* directs) {
  outcome result;
  executor_cluster cluster(job);
  const auto faults = directs ? fault_plan([=](const fault_point& at) { return directs->pass(at); }) : fault_plan{};
  if (directs)
    cluster.on_effect = [=](const effect& x) { return directs->see(x); };
  // The next shape that there is room for, never the same twice.
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> shapes{{1, 2}, {3, 1}, {2, 2}, {1, 3}, {2, 1}, {4, 1}};
  cluster.planner = [&, next = std::size_t{0}](std::uint32_t slots, const auto&) mutable {
    if (!directs)
      return shape(job, 1, 1);
    for (std::size_t i = 0; i < shapes.size(); ++i)
      if (const auto [width, depth] = shapes[next++ % shapes.size()]; width * depth <= slots)
        return shape(job, width, depth);
    return shape(job, 1, 1);
  };
  std::uint32_t workers = 0;
  std::vector<std::string> present;
  auto add = [&] {
    present.push_back("w" + std::to_string(workers++));
    cluster.add_worker(present.back(), faults);
  };
  auto note_evaluation = [&](const job_view& x) {
    if (x.evaluated_steps >= 0)
      result.evaluations[static_cast<std::uint64_t>(x.evaluated_steps)] = x.validation_loss;
  };
  auto runs_on = [&](std::uint64_t generation, std::uint64_t steps) {
    return cluster.run_until([&] {
      const auto& view = cluster.view();
      note_evaluation(view);
      return view.current.value > generation && view.now == phase::running && view.steps_done > steps;
    });
  };
  cluster.add_keeper("keeper");
  add();
  if (directs) {
    directs->allow(2);
    add();
    add();
    EXPECT_TRUE(runs_on(0, 0)) << cluster.log().back();
    for (const auto& [what, where] : trace) {
      const auto generation = cluster.view().current.value;
      const auto steps = cluster.view().steps_done;
      switch (what) {
      case change::join:
        add();
        break;
      case change::kill:
        directs->kill_at(where, steps);
        break;
      case change::leave: {
        // Some rank of the running generation.
        const auto leaver = cluster.view().grid->participants[0].slot.instance;
        cluster.notice(leaver, std::chrono::seconds(30));
        break;
      }
      case change::reshape:
        cluster.send(plan_wanted{"the trace"});
        break;
      }
      directs->allow(steps + 4); // far enough for an evaluation
      EXPECT_TRUE(runs_on(generation, steps)) << "change " << &what - &trace[0].what << ": " << cluster.log().back();
    }
    EXPECT_GE(cluster.view().current.value, 11u);
    directs->allow(job.steps);
  }
  const auto ended = cluster.run_until(
      [&] {
        note_evaluation(cluster.view());
        return cluster.ended();
      },
      std::chrono::seconds(60));
  EXPECT_TRUE(ended && cluster.good()) << cluster.log().back();
  if (ended && cluster.good())
    result.digest = cluster.final_digest();
  result.losses = cluster.losses();
  return result;
}

job_specification job_of(const std::string& kind) {
  auto job = small_job_of(kind);
  job.steps = 48;
  job.evaluate_every = 2;
  job.data.validation = 10; // not a multiple of the micro-batch
  if (kind == "gpt_bfloat16")
    job.precision = "bfloat16";
  return job;
}

class model_kind : public ::testing::TestWithParam<const char*> {};

TEST_P(model_kind, keeps_its_bits_through_a_trace) {
  const auto job = job_of(GetParam());
  ASSERT_EQ(problem_of(job), "");
  director directs;
  const auto came = run(job, &directs);
  const auto expected = run(job, nullptr);
  EXPECT_EQ(came.digest, expected.digest);
  EXPECT_EQ(came.losses, expected.losses);
  std::size_t compared = 0;
  for (const auto& [steps, loss] : came.evaluations)
    if (const auto x = expected.evaluations.find(steps); x != expected.evaluations.end()) {
      EXPECT_EQ(loss, x->second) << "version " << steps;
      ++compared;
    }
  EXPECT_GE(compared, 10u);
}

INSTANTIATE_TEST_SUITE_P(kinds, model_kind, ::testing::Values("gpt", "mlp", "bert", "resnet", "vgg", "gpt_bfloat16"),
                         [](const auto& x) { return std::string(x.param); });

} // namespace
} // namespace parcae

// The registry's jobs: which runs when, and what is told of each.

#include "tests/actors/manager/registry_fixture.hpp"

#include <algorithm>

namespace parcae {
namespace {

// given: two jobs and an instance / expected: the slot is attached to the first, then, once that is cancelled, to the
// second
TEST_F(registry_test, runs_jobs_one_after_the_other) {
  join(greeting("a"));
  EXPECT_EQ(std::get<submitted_reply>(serve(submit_request{job()})).job, 1u);
  EXPECT_EQ(std::get<submitted_reply>(serve(submit_request{job()})).job, 2u);
  EXPECT_THAT(attached["a"], ElementsAre(job_id{1}));
  auto jobs = status().jobs;
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].state, "running");
  EXPECT_EQ(jobs[1].state, "queued");
  serve(cancel_request{1});
  // The dummy slot never answers: the conductor's limits end the wait.
  for (int i = 0; i < 200 && attached["a"].size() < 2; ++i)
    advance(1s);
  EXPECT_THAT(attached["a"], ElementsAre(job_id{1}, job_id{2}));
  EXPECT_EQ(status().jobs[0].state, "cancelled");
}

// given: jobs of two clients and one of nobody, cancelled by the other, by an operator, by whom they are of; a client
// that preempts / expected: each cancels its own, an operator all, and the others are told whose it is; only an
// operator preempts
TEST_F(registry_test, a_job_is_its_owners) {
  const requester ann{"ann", "1", false}, bob{"bob", "2", false}, chief{"chief", "3", true};
  for (const auto& who : {ann, bob})
    ASSERT_TRUE(std::holds_alternative<submitted_reply>(serve(who, submit_request{job()})));
  ASSERT_TRUE(std::holds_alternative<submitted_reply>(serve(submit_request{job()})));
  EXPECT_EQ(status().jobs[0].owner, "ann");
  EXPECT_EQ(status().jobs[2].owner, "");
  const auto refused = [&](const requester& who, const request& x) {
    const auto answer = serve(who, x);
    const auto* error = std::get_if<error_reply>(&answer);
    EXPECT_TRUE(!error || error->code == "not_permitted");
    return error ? error->text : std::string();
  };
  EXPECT_THAT(refused(bob, cancel_request{1}), HasSubstr("job 1 is ann's, not bob's: its owner can cancel it, or an"));
  EXPECT_THAT(refused(bob, cancel_request{3}), HasSubstr("job 3 is nobody's"));
  EXPECT_EQ(status().jobs[0].state, "queued");
  EXPECT_EQ(refused(ann, cancel_request{1}), "");
  EXPECT_EQ(refused(chief, cancel_request{2}), "");
  EXPECT_EQ(refused(chief, cancel_request{3}), "");
  for (const auto& x : status().jobs)
    EXPECT_EQ(x.state, "cancelled");
  join(greeting("a"));
  EXPECT_THAT(refused(ann, preempt_request{{"a"}, 0, 0, 0}), HasSubstr("needs an operator's certificate"));
  EXPECT_TRUE(told["a"].deaths_ms.empty());
  EXPECT_EQ(refused(chief, preempt_request{{"a"}, 0, 0, 0}), "");
}

// given: the manager's certificate ends soon / expected: `status` says so, and the news, once
TEST_F(registry_test, says_what_is_wrong_with_the_manager) {
  auto settings = in_virtual_time();
  std::string problem;
  settings.own_warning = [&] { return problem; };
  const auto warned = owned(system.spawn(parcae::registry, std::move(settings)));
  const auto heard = [&] {
    return std::get<status_reply>(
        decode_reply(ask<client_reply>(warned, client_request{encode(request{status_request{}})})->bytes));
  };
  EXPECT_EQ(heard().warning, "");
  problem = "it ends";
  advance(5s);
  EXPECT_EQ(heard().warning, "it ends");
  ASSERT_EQ(heard().news.size(), 1u);
  EXPECT_EQ(heard().news[0].text, "it ends");
}

// given: a job that needs two slots, one that needs one, and one slot; then two / expected: the second runs, the first
// says why it waits, is checked with the same answer, and runs when it can
TEST_F(registry_test, a_job_that_cannot_run_blocks_nobody) {
  auto deep = job();
  deep.min_depth = 2;
  serve(submit_request{deep});
  EXPECT_THAT(status().jobs[0].problem, HasSubstr("waits for workers"));
  serve(submit_request{job()});
  serve(submit_request{job(), 9});
  join(greeting("a"));
  auto jobs = status().jobs;
  EXPECT_EQ(jobs[0].state, "queued");
  EXPECT_THAT(jobs[0].problem, HasSubstr("1×2 needs 2"));
  EXPECT_EQ(jobs[1].state, "queued");
  EXPECT_EQ(jobs[1].problem, "waits for job 3 (job), which runs");
  EXPECT_EQ(jobs[2].state, "running") << "its priority is higher";
  EXPECT_EQ(jobs[2].priority, 9);
  const auto checked = std::get<checked_reply>(serve(check_request{deep}));
  EXPECT_THAT(checked.obstacle, HasSubstr("1×2 needs 2"));
  EXPECT_THAT(checked.before,
              ElementsAre("job 3 (job), which runs", "job 1 (job), if it can run by then", "job 2 (job)"));
  EXPECT_EQ(status().jobs.size(), 3u) << "nothing was queued";
  serve(cancel_request{2});
  join(greeting("b"));
  serve(cancel_request{3});
  advance(60s);
  EXPECT_EQ(status().jobs[0].state, "running");
  EXPECT_EQ(std::get<error_reply>(serve(submit_request{job(), 1001})).code, "malformed_request");
}

// given: a job with data and a place for checkpoints; no node, a worker and a keeper, one that says nothing /
// expected: each is asked once for its part, and what it says is in the answer, or that nobody was there, or was silent
TEST_F(registry_test, a_check_asks_one_node_of_each_role) {
  auto wants = job();
  wants.data.kind = "text";
  wants.data.path = "/data/x";
  wants.checkpoint = {"s3://b/c", "https://e", "r"};
  const auto check = [&] { return std::get<checked_reply>(serve(check_request{wants})); };
  auto x = check();
  EXPECT_THAT(x.problems, testing::IsEmpty());
  EXPECT_THAT(x.unknown,
              ElementsAre("there is no worker to look for /data/x", "there is no keeper to look for s3://b/c"));
  join(greeting("k", role::keeper));
  for (const auto* name : {"a", "b"})
    join(greeting(name));
  x = check();
  EXPECT_THAT(x.problems, ElementsAre("worker a: no s3://b/c/data/x", "keeper k: no s3://b/c/data/x"));
  EXPECT_THAT(x.unknown, testing::IsEmpty());
  EXPECT_THAT(told["a"].questions.at(0).read, ElementsAre("/data/x"));
  EXPECT_EQ(told["k"].questions.at(0).endpoint, "https://e");
  EXPECT_TRUE(told["b"].questions.empty());
  wants = job();
  wants.data.kind = "synthetic"; // nothing from outside
  wants.data.path.clear();
  EXPECT_THAT(check().problems, testing::IsEmpty());
  EXPECT_EQ(told["a"].questions.size(), 1u);
}

// given: a job that wants two instances and two slots of one, then a second instance, which is lost once the job has
// begun / expected: it waits and says for how many, begins with both, goes on with one
TEST_F(registry_test, a_job_begins_with_as_many_instances_as_it_asks_for) {
  auto patient = job();
  patient.min_instances = 2;
  auto wide = greeting("a");
  wide.slots = 2;
  join(wide);
  serve(submit_request{patient});
  EXPECT_EQ(status().jobs[0].state, "queued");
  EXPECT_EQ(status().jobs[0].problem, "waits for instances: 1 of 2 that job.min_instances asks for");
  EXPECT_EQ(status().jobs[0].min_instances, 2u);
  EXPECT_EQ(std::get<checked_reply>(serve(check_request{patient})).obstacle, status().jobs[0].problem);
  EXPECT_TRUE(attached["a"].empty());
  join(greeting("b"));
  EXPECT_EQ(status().jobs[0].state, "running");
  EXPECT_THAT(attached["b"], ElementsAre(job_id{1}));
  lose("b");
  advance(10s);
  EXPECT_EQ(status().jobs[0].state, "running");
}

// given: a job that lost a slot it needs before it began, and one behind it that could run / expected: after a moment
// the second runs; when that is over the first is tried again
TEST_F(registry_test, a_job_that_has_not_begun_gives_way) {
  auto deep = job();
  deep.min_depth = 2;
  join(greeting("a"));
  join(greeting("b"));
  serve(submit_request{deep});
  serve(submit_request{job()});
  EXPECT_EQ(status().jobs[0].state, "running");
  lose("b");
  advance(1s);
  EXPECT_EQ(status().jobs[0].state, "running") << "b may come back";
  for (int i = 0; i < 100 && status().jobs[1].state == "queued"; ++i)
    advance(1s);
  EXPECT_EQ(status().jobs[1].state, "running");
  EXPECT_EQ(status().jobs[0].state, "queued");
  EXPECT_THAT(attached["a"], ElementsAre(job_id{1}, job_id{2}));
  join(greeting("b"));
  serve(cancel_request{2});
  advance(60s);
  EXPECT_EQ(status().jobs[0].state, "running");
}

// given: an error of a node that it noticed while it worked for the job before / expected: it is of that job
TEST_F(registry_test, failures_are_of_the_job_they_name) {
  join(greeting("a"));
  serve(submit_request{job()});
  serve(submit_request{job()});
  lose("a");
  serve(cancel_request{1});
  advance(60s);
  join(greeting("a"));
  advance(100ms);
  ASSERT_EQ(status().jobs[1].state, "running");
  serve(report_request{"a", "of the first", {}, 1});
  serve(report_request{"b", "of one that there never was", {}, 77});
  const auto failures = status().failures;
  ASSERT_EQ(failures.size(), 2u);
  EXPECT_EQ(failures[0].job, 1u);
  EXPECT_EQ(failures[1].job, 2u);
}

// given: what ended instances, and after how many steps of the job / expected: the job fails with the third of a kind
// at one place, and names all three
TEST(crash_verdict, is_of_three_alike) {
  using crashes = std::vector<instance_crash>;
  const std::string fpe = "ended by SIGFPE", segv = "ended by SIGSEGV";
  const std::pair<crashes, bool> cases[] = {
      {{{"a", fpe, 0}, {"b", fpe, 0}}, false},
      {{{"a", fpe, 0}, {"b", fpe, 0}, {"c", fpe, 0}}, true},
      {{{"a", fpe, 0}, {"a", fpe, 0}, {"a", fpe, 0}}, true},   // the only one there is, started again each time
      {{{"a", fpe, 0}, {"b", fpe, 0}, {"c", segv, 0}}, false}, // another kind
      {{{"a", fpe, 7}, {"a", fpe, 8}, {"a", fpe, 9}}, false},  // a bad machine, while others train
      {{{"a", fpe, 7}, {"x", fpe, 3}, {"b", fpe, 7}, {"c", fpe, 7}}, true},
      {{{"a", fpe, 7}, {"b", fpe, 7}, {"c", fpe, 7}, {"d", fpe, 8}}, false},
  };
  for (const auto& [all, fails] : cases) {
    const auto why = verdict_on(all);
    EXPECT_EQ(!why.empty(), fails) << all.size() << " " << all.back().instance;
    if (fails) {
      EXPECT_THAT(why, testing::AllOf(HasSubstr(all.back().instance), HasSubstr("were " + all.back().what)));
    }
  }
}

// given: a job, on which one worker after the other says with its last words that a signal ended it, between reports of
// other failures, and what tells of no such end: of a name that never joined, of one that lives on, of a keeper, again
// of the same life, of another job / expected: with the third it fails, and says why; the next job begins with none
TEST_F(registry_test, a_job_that_ends_its_workers_fails) {
  serve(submit_request{job()});
  serve(submit_request{job()});
  const auto crash = [&](const std::string& name, const std::string& what, std::uint64_t of = 0) {
    join(greeting(name));
    advance(100ms);
    lose(name);
    serve(report_request{name, what, {"its last line"}, of, true});
    advance(60s);
  };
  crash("a", "ended by SIGFPE");
  join(greeting("k", role::keeper));
  for (int i = 0; i < 3; ++i) {
    serve(report_request{"nobody", "ended by SIGFPE", {}, 0, true});
    serve(report_request{"k", "ended by SIGFPE", {}, 0, true});
  }
  advance(1s);
  ASSERT_EQ(status().jobs[0].state, "running");
  crash("b", "the data is not there");
  crash("c", "ended by SIGFPE", 1);
  join(greeting("c"));
  for (int i = 0; i < 3; ++i)
    serve(report_request{"c", "ended by SIGFPE", {}, 0, false});
  lose("c");
  for (int i = 0; i < 3; ++i)
    serve(report_request{"c", "ended by SIGSEGV", {}, 1, true});
  run();
  EXPECT_EQ(status().jobs[0].state, "running");
  crash("d", "ended by SIGFPE");
  EXPECT_EQ(status().jobs[0].state, "failed");
  EXPECT_THAT(status().jobs[0].problem, HasSubstr("a, c, d were ended by SIGFPE after 0 steps"));
  for (const auto* late : {"e", "f", "g"})
    crash(late, "ended by SIGFPE", 1);
  crash("h", "ended by SIGFPE");
  EXPECT_EQ(status().jobs[1].state, "running");
}

// given: a job that has made no step / expected: no loss, rather than one of 0
TEST_F(registry_test, there_is_no_loss_before_the_first_step) {
  begin_job({greeting("a")});
  EXPECT_EQ(status().jobs[0].loss_steps, -1);
}

// given: a job and an instance / expected: PREPARE once joins were collected; after a loss a job without instances
// waits
TEST_F(registry_test, a_job_drives_its_slots) {
  begin_job({greeting("a")});
  ASSERT_FALSE(commands["a"].empty());
  auto first = std::ranges::find_if(commands["a"], [](const command& x) { return std::holds_alternative<prepare>(x); });
  ASSERT_NE(first, commands["a"].end());
  const auto& plan = std::get<prepare>(*first);
  EXPECT_EQ(plan.job, job_id{1});
  EXPECT_EQ(plan.target.ranks(), 1u);
  EXPECT_EQ(plan.target.participants.at(0).slot.instance, "a");
  lose("a");
  advance(100ms);
  EXPECT_EQ(status().jobs[0].phase, "waiting");
  EXPECT_FALSE(status().jobs[0].events.empty());
}

// given: one job after another, a failure in each / expected: of all jobs the one that runs is told in detail, and the
// last one when it has ended; another when it is asked for; a failure is of the job that ran
TEST_F(registry_test, one_job_is_told_in_detail) {
  const auto detailed = [](const status_reply& x) {
    std::vector<std::uint64_t> result;
    for (const auto& j : x.jobs)
      if (j.detailed && !j.events.empty())
        result.push_back(j.id);
    return result;
  };
  serve(report_request{"a", "before any job", {}});
  join(greeting("a"));
  serve(submit_request{job()});
  serve(submit_request{job()});
  advance(100ms);
  EXPECT_THAT(detailed(status()), ElementsAre(1));
  serve(report_request{"b", "while the first runs", {}});
  lose("a"); // nobody is left to wait for
  serve(cancel_request{1});
  advance(60s);
  join(greeting("a"));
  advance(100ms);
  serve(report_request{"c", "while the second runs", {}});
  EXPECT_THAT(detailed(status()), ElementsAre(2));
  EXPECT_THAT(detailed(std::get<status_reply>(serve(status_request{.job = 1}))), ElementsAre(1));
  lose("a");
  serve(cancel_request{2});
  advance(60s);
  const auto last = status();
  EXPECT_EQ(last.jobs[1].state, "cancelled");
  EXPECT_THAT(detailed(last), ElementsAre(2));
  ASSERT_EQ(last.failures.size(), 3u);
  EXPECT_EQ(last.failures[0].job, 0u);
  EXPECT_EQ(last.failures[1].job, 1u);
  EXPECT_EQ(last.failures[2].job, 2u);
}

// given: workers that came and went before the job, of two processors / expected: the job is planned for liveput, with
// the forecast of those like its first worker, and status shows the decision; a second one after the interval, without
// any event
TEST_F(registry_test, decisions_are_shown) {
  auto other = greeting("x");
  other.processor = "another cpu";
  join(other);
  join(greeting("a"));
  join(greeting("b"));
  lose("x");
  advance(100ms);
  lose("b");
  serve(submit_request{job()});
  advance(100ms);
  auto shown = status().jobs.at(0);
  ASSERT_EQ(shown.decision_count, 1u);
  const auto first = shown.decisions.at(0);
  EXPECT_EQ(first.policy, "liveput");
  EXPECT_EQ(first.chosen.configuration, "1×1");
  EXPECT_THAT(first.reason, HasSubstr("samples expected"));
  EXPECT_THAT(first.trigger, HasSubstr("join of a"));
  ASSERT_EQ(first.forecast.size(), 11u);
  EXPECT_LE(first.forecast[0].mean, 2);
  EXPECT_EQ(first.generation, 1u);
}

// given: three workers that join in one moment / expected: the decision, and the change that follows, name all of them
TEST_F(registry_test, a_change_names_all_its_causes) {
  for (const auto* name : {"a", "b", "c"})
    join(greeting(name));
  serve(submit_request{job()});
  advance(100ms);
  const auto shown = status().jobs.at(0);
  ASSERT_EQ(shown.decisions.size(), 1u);
  EXPECT_EQ(shown.decisions[0].trigger, "join of a/0; join of b/0; join of c/0");
}

// given: a reproducible job that began on one processor / expected: slots of another are not used, keepers are
TEST_F(registry_test, reproducible_jobs_stay_on_one_processor) {
  serve(submit_request{job()});
  join(greeting("a"));
  auto other = greeting("b");
  other.processor = "another cpu";
  join(other);
  auto keeper = greeting("k", role::keeper);
  keeper.processor = "a third cpu";
  join(keeper);
  EXPECT_EQ(attached["a"].size(), 1u);
  EXPECT_EQ(attached["b"].size(), 0u);
  EXPECT_EQ(attached["k"].size(), 1u);
  // What the job does not use may leave at once.
  tell(registry, leaving_notice{"b", other.life, 30'000});
  EXPECT_EQ(told["b"].released, 1);
}

} // namespace
} // namespace parcae

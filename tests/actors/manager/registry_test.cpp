// The registry with dummy instances and slots, in virtual time.

#include "actors/manager/front.hpp"
#include "actors/manager/registry.hpp"
#include "protocols/client/client.hpp"
#include "tests/support/actor_fixture.hpp"

#include <algorithm>

namespace parcae {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

/// What an instance was told.
struct instance_record_of {
  int released = 0;
  std::vector<std::uint64_t> deaths_ms;
};

struct registry_test : actor_test {
  std::map<std::string, instance_record_of> told;
  std::map<std::string, std::vector<job_id>> attached;
  std::map<std::string, std::vector<command>> commands;
  std::map<std::string, report_sink> conductors; ///< by instance: of the job that it serves
  std::map<std::string, incarnation> life_of;
  std::map<std::string, instance_actor> instances;
  std::uint64_t lives = 0;
  int ended = 0;

  registry_config in_virtual_time() {
    registry_config x;
    x.own_threads = false;
    x.manager_life = 77;
    x.silence = 24h; // most of these instances say HELLO once
    x.ended = [this] { ++ended; };
    return x;
  }

  registry_actor registry = owned(system.spawn(parcae::registry, in_virtual_time()));

  hello greeting(const std::string& name, role as = role::worker) {
    hello x;
    x.name = name;
    x.life = life_of[name] = {++lives};
    x.role = as;
    x.host = "127.0.0.1";
    x.port = 1;
    x.processor = "cpu";
    return x;
  }

  instance_actor dummy_instance(const std::string& name) {
    return owned(system.spawn([this, name](instance_actor::pointer) -> instance_actor::behavior_type {
      return {
          [=, this](die_atom, std::uint64_t ms) { told[name].deaths_ms.push_back(ms); },
          [=, this](released_atom) { ++told[name].released; },
          [](notice_atom, std::uint64_t) {},
          [](dial_atom, std::uint64_t) {},
          [](timer_atom) {},
          [](report_atom, const std::string&, const std::vector<std::string>&) {},
          [](report_atom) {},
      };
    }));
  }

  slot_actor dummy_slot(const std::string& name) {
    return owned(
        system.spawn([this, name](slot_actor::pointer) { return behavior_for(name, std::type_identity<command>{}); }));
  }

  template <class... Commands>
  slot_actor::behavior_type behavior_for(const std::string& name, std::type_identity<std::variant<Commands...>>) {
    return {[=, this](const addressee& to, const Commands& x) {
              EXPECT_EQ(to.slot.life, life_of[name]);
              obey(name, x);
            }...,
            [=, this](attach_atom, const addressee& to, const report_sink& sink) {
              attached[name].push_back(to.job);
              conductors[name] = sink;
            }};
  }

  /// Has the data, and says no more.
  template <class Command>
  void obey(const std::string& name, const Command& x) {
    commands[name].emplace_back(x);
    if constexpr (std::is_same_v<Command, load>)
      caf::anon_send(conductors[name], slot_id{name, life_of[name], 0}, loaded{x.job, "digest"});
  }

  caf::expected<welcome> join(const hello& x) {
    instances[x.name] = dummy_instance(x.name);
    std::vector<slot_actor> slots;
    for (std::uint32_t i = 0; i < x.slots; ++i)
      slots.push_back(dummy_slot(x.name));
    return ask<welcome>(registry, x, instances[x.name], slots);
  }

  void lose(const std::string& name) {
    caf::anon_send_exit(instances[name], caf::exit_reason::kill);
    run();
  }

  reply serve(const request& x) { return decode_reply(ask<client_reply>(registry, client_request{encode(x)})->bytes); }

  status_reply status() { return std::get<status_reply>(serve(status_request{})); }

  std::string state_of(const std::string& name) {
    std::string result = "gone";
    for (const auto& x : status().instances)
      if (x.name == name)
        result = x.state;
    return result;
  }

  job_specification job() {
    job_specification x;
    x.data.path = "/data";
    return x;
  }
};

// given: HELLO, its repetition, another life with the same name / expected: welcome, welcome, duplicate_name
TEST_F(registry_test, welcomes_and_refuses) {
  auto first = greeting("a");
  EXPECT_TRUE(join(first));
  EXPECT_TRUE(join(first));
  auto other = join(greeting("a"));
  ASSERT_FALSE(other);
  EXPECT_TRUE(other.error() == parcae_error::duplicate_name);
  auto wrong = greeting("b");
  wrong.protocol += 1;
  auto refused = join(wrong);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error() == parcae_error::wrong_protocol);
  EXPECT_THAT(render(refused.error()), HasSubstr("use the same build"));
}

// given: HELLO with fewer slot actors than slots / expected: malformed_request
TEST_F(registry_test, refuses_missing_slots) {
  auto x = greeting("a");
  x.slots = 2;
  auto answer = ask<welcome>(registry, x, dummy_instance("a"), std::vector<slot_actor>{dummy_slot("a")});
  ASSERT_FALSE(answer);
  EXPECT_TRUE(answer.error() == parcae_error::malformed_request);
}

// given: an instance whose process ends / expected: lost at once, listed for the lease
TEST_F(registry_test, declares_losses) {
  auto x = greeting("a");
  join(x);
  EXPECT_EQ(state_of("a"), "alive");
  lose("a");
  EXPECT_EQ(state_of("a"), "lost");
  advance(10s);
  EXPECT_EQ(state_of("a"), "gone");
  EXPECT_TRUE(join(greeting("a")));
}

// given: a life whose loss was declared, with a job / expected: taken back; the job has its slot again. Once another
// process has its name: refused for ever, also when that one is lost
TEST_F(registry_test, lost_lives_may_return_unless_replaced) {
  const auto x = greeting("a");
  join(x);
  serve(submit_request{job()});
  advance(100ms);
  lose("a");
  advance(20s);
  EXPECT_TRUE(join(x));
  EXPECT_EQ(state_of("a"), "alive");
  EXPECT_EQ(attached["a"].size(), 2u);
  ASSERT_FALSE(commands["a"].empty());
  EXPECT_TRUE(std::ranges::any_of(commands["a"], [](const command& c) {
    const auto* a = std::get_if<abort_generation>(&c);
    return a && a->current == generation{1};
  })) << "what it may still compute is ended";
  lose("a");
  EXPECT_TRUE(join(greeting("a")));
  const auto newer = instances["a"];
  for (bool gone : {false, true}) {
    if (gone)
      caf::anon_send_exit(newer, caf::exit_reason::kill);
    const auto again = join(x);
    ASSERT_FALSE(again);
    EXPECT_TRUE(again.error() == parcae_error::lost_incarnation);
  }
}

// given: the manager stands still for 3 s and all connections end; one instance is back after 1 s / expected: no loss
// is told, the job's slot is attached anew and nothing is planned; who does not come within 5 s is lost then;
// afterwards the end of a connection is a loss at once
TEST_F(registry_test, a_standstill_of_the_manager_loses_nobody_who_returns) {
  const auto a = greeting("a"), b = greeting("b");
  join(a);
  join(b);
  serve(submit_request{job()});
  advance(100ms);
  const auto told = commands["a"].size();
  stand_still(3s);
  lose("a");
  lose("b");
  EXPECT_EQ(state_of("a"), "alive");
  EXPECT_EQ(state_of("b"), "alive");
  advance(1s);
  EXPECT_TRUE(join(a));
  EXPECT_EQ(attached["a"].size(), 2u);
  EXPECT_GT(commands["a"].size(), told) << "what the phase waits for is asked again";
  EXPECT_FALSE(
      std::ranges::any_of(commands["a"], [](const command& c) { return std::holds_alternative<abort_generation>(c); }));
  EXPECT_EQ(state_of("b"), "alive");
  advance(3500ms);
  EXPECT_EQ(state_of("b"), "alive");
  advance(1s);
  EXPECT_EQ(state_of("b"), "lost");
  EXPECT_EQ(state_of("a"), "alive");
  advance(2s);
  lose("a");
  EXPECT_EQ(state_of("a"), "lost");
}

// given: after a standstill a HELLO over a new connection comes before the end of the old one, with which the handles
// that came with it end too / expected: the HELLO that is said once more brings it back; said where nothing is wrong it
// changes nothing
TEST_F(registry_test, a_greeting_that_overtook_the_end_of_the_old_connection_is_repeated) {
  const auto k = greeting("k", role::keeper);
  join(k);
  serve(submit_request{job()});
  join(greeting("a"));
  advance(100ms);
  stand_still(3s);
  join(k);
  lose("k");
  EXPECT_EQ(state_of("k"), "alive");
  advance(1s);
  EXPECT_TRUE(join(k));
  const auto times = attached["k"].size();
  EXPECT_TRUE(ask<welcome>(registry, k, instances["k"], std::vector<slot_actor>{dummy_slot("k")}));
  EXPECT_EQ(attached["k"].size(), times);
  advance(10s);
  EXPECT_EQ(state_of("k"), "alive");
}

// given: one instance says HELLO again each second, another no more, and no connection ends / expected: after 5 s the
// other is lost, and its slots with it; but not while the manager's own standstill may be why nothing was heard
TEST_F(registry_test, who_says_nothing_is_lost_whatever_its_connection_says) {
  auto config = in_virtual_time();
  config.silence = registry_config{}.silence;
  registry = owned(system.spawn(parcae::registry, std::move(config)));
  const auto a = greeting("a"), b = greeting("b");
  join(a);
  join(b);
  const std::vector<slot_actor> slots{dummy_slot("a")};
  const auto greet = [&] { EXPECT_TRUE(ask<welcome>(registry, a, instances["a"], slots)); };
  for (int i = 0; i < 5; ++i) {
    advance(1s);
    greet();
    EXPECT_EQ(state_of("b"), "alive");
  }
  advance(1s);
  EXPECT_EQ(state_of("b"), "lost");
  EXPECT_EQ(state_of("a"), "alive");
  stand_still(8s);
  advance(1s);
  EXPECT_EQ(state_of("a"), "alive");
  greet();
  advance(4500ms);
  EXPECT_EQ(state_of("a"), "alive");
  advance(1s);
  EXPECT_EQ(state_of("a"), "lost");
}

// given: a job cancelled while a worker and a keeper are away / expected: back, the worker is told to forget it
TEST_F(registry_test, who_returns_after_the_end_of_its_job_is_told) {
  const auto a = greeting("a"), k = greeting("k", role::keeper);
  join(a);
  join(k);
  serve(submit_request{job()});
  advance(100ms);
  stand_still(3s);
  lose("a");
  lose("k");
  serve(cancel_request{1});
  commands.clear();
  join(a);
  join(k);
  const auto forgets = [&](const std::string& name) {
    return std::ranges::count_if(commands[name], [](const command& c) { return std::holds_alternative<forget>(c); });
  };
  EXPECT_EQ(forgets("a"), 1);
  EXPECT_EQ(forgets("k"), 0);
}

// given: the wish to end, without a job / expected: at once; submissions are refused
// given: with a job and no keeper / expected: the job ends, saying that nothing is kept, and then the manager
TEST_F(registry_test, ends_when_its_job_has) {
  join(greeting("a"));
  serve(submit_request{job()});
  serve(submit_request{job()});
  advance(100ms);
  self->send(registry, end_atom_v);
  run();
  EXPECT_EQ(ended, 0) << "a change is under way";
  EXPECT_EQ(std::get<error_reply>(serve(submit_request{job()})).code, "unreachable_manager");
  advance(10s); // the dummy answers nothing
  EXPECT_EQ(ended, 1);
  const auto jobs = status().jobs;
  EXPECT_THAT(jobs.at(0).problem, HasSubstr("stopped at step 0"));
  EXPECT_EQ(jobs.at(1).state, "queued") << "no other job starts";
}

// given: submissions and status / expected: both name the manager's life, so that a number of another one is known
TEST_F(registry_test, replies_name_the_managers_life) {
  EXPECT_EQ(std::get<submitted_reply>(serve(submit_request{job()})).manager_life, 77u);
  EXPECT_EQ(status().manager_life, 77u);
}

// given: the front with a registry behind it; exits by anybody / expected: what it passes on is answered, and it lives
TEST_F(registry_test, the_front_survives_exits) {
  const auto front = system.spawn(parcae::front, manager_actor{registry},
                                  std::function<std::optional<identity>(const caf::node_id&)>());
  for (auto reason : {caf::exit_reason::user_shutdown, caf::exit_reason::unhandled_exception,
                      caf::exit_reason::remote_link_unreachable}) {
    caf::anon_send_exit(front, reason);
    run();
  }
  EXPECT_TRUE(ask<welcome>(front, greeting("a"), dummy_instance("a"), std::vector<slot_actor>{dummy_slot("a")}));
  const auto answer = ask<client_reply>(front, client_request{encode(request{status_request{}})});
  ASSERT_TRUE(answer);
  EXPECT_EQ(std::get<status_reply>(decode_reply(answer->bytes)).instances.size(), 1u);
  auto wrong = greeting("b");
  wrong.protocol += 1;
  const auto refused = ask<welcome>(front, wrong, dummy_instance("b"), std::vector<slot_actor>{dummy_slot("b")});
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error() == parcae_error::wrong_protocol);
  caf::anon_send_exit(front, caf::exit_reason::kill);
  run();
}

// given: a join, a notice, a loss as announced, a join and a loss without notice, a node's last words / expected: news
// of each, in order, and the last words as they came
TEST_F(registry_test, tells_what_happened) {
  auto x = greeting("a");
  join(x);
  self->send(registry, leaving_notice{"a", x.life, 30'000});
  run();
  lose("a");
  join(greeting("b"));
  lose("b");
  EXPECT_TRUE(std::holds_alternative<reported_reply>(serve(report_request{"b", "ended by SIGSEGV", {"line"}})));
  auto s = status();
  std::vector<std::string> texts;
  for (const auto& n : s.news)
    texts.push_back(n.level + ": " + n.text);
  EXPECT_THAT(texts,
              ElementsAre("information: instance a joined as worker with 1 slot at 127.0.0.1:1",
                          "warning: notice: instance a leaves in 30s", "information: instance a is gone, as announced",
                          "information: instance b joined as worker with 1 slot at 127.0.0.1:1",
                          HasSubstr("warning: instance b is lost: "), "error: instance b failed: ended by SIGSEGV"));
  ASSERT_EQ(s.failures.size(), 1u);
  EXPECT_EQ(s.failures[0].instance, "b");
  EXPECT_THAT(s.failures[0].lines, ElementsAre("line"));
}

// given: a notice while no job runs / expected: leaving, and released at once
TEST_F(registry_test, releases_leaving_instances_without_a_job) {
  auto x = greeting("a");
  join(x);
  self->send(registry, leaving_notice{"a", x.life, 30'000});
  run();
  EXPECT_EQ(state_of("a"), "leaving");
  EXPECT_EQ(told["a"].released, 1);
}

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

// given: a job that has made no step / expected: no loss, rather than one of 0
TEST_F(registry_test, there_is_no_loss_before_the_first_step) {
  join(greeting("a"));
  serve(submit_request{job()});
  advance(100ms);
  EXPECT_EQ(status().jobs[0].loss_steps, -1);
}

// given: a job and an instance / expected: PREPARE once joins were collected; after a loss a job without instances
// waits
TEST_F(registry_test, a_job_drives_its_slots) {
  join(greeting("a"));
  serve(submit_request{job()});
  advance(100ms);
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
  self->send(registry, leaving_notice{"b", other.life, 30'000});
  run();
  EXPECT_EQ(told["b"].released, 1);
}

// given: preemptions by name / expected: with notice the instance leaves and is told when to die; without, it is only
// told
TEST_F(registry_test, passes_preemptions_on) {
  join(greeting("a"));
  join(greeting("b"));
  auto done = std::get<preempted_reply>(serve(preempt_request{{"a"}, 0, 0, 2000}));
  EXPECT_THAT(done.names, ElementsAre("a"));
  EXPECT_THAT(told["a"].deaths_ms, ElementsAre(2000));
  EXPECT_EQ(state_of("a"), "leaving");
  serve(preempt_request{{"b"}, 0, 0, 0});
  EXPECT_THAT(told["b"].deaths_ms, ElementsAre(0));
  EXPECT_EQ(state_of("b"), "alive");
  auto refused = std::get<error_reply>(serve(preempt_request{{"c"}, 0, 0, 0}));
  EXPECT_EQ(refused.code, "unknown_instance");
}

// given: requests that cannot be served / expected: an error reply that says why
TEST_F(registry_test, refuses_bad_requests) {
  auto bad = job();
  bad.global_batch = 7;
  auto refused = std::get<error_reply>(serve(submit_request{bad}));
  EXPECT_EQ(refused.code, "malformed_request");
  EXPECT_THAT(refused.text, HasSubstr("batch.micro"));
  EXPECT_EQ(std::get<error_reply>(serve(cancel_request{5})).code, "unknown_job");
  EXPECT_EQ(std::get<error_reply>(serve(status_request{5, 0, 0})).code, "unknown_job");
  auto noise = ask<client_reply>(registry, client_request{{'n', 'o', 'i', 's', 'e'}});
  EXPECT_EQ(std::get<error_reply>(decode_reply(noise->bytes)).code, "malformed_request");
}

} // namespace
} // namespace parcae

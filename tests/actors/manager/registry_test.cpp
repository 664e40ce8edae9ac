// Who is a member, and what clients are answered.

#include "tests/actors/manager/registry_fixture.hpp"
#include "tests/support/other_node.hpp"

#include <algorithm>

namespace parcae {
namespace {

// given: HELLO, its repetition, another life with the same name / expected: welcome, welcome, duplicate_name
TEST_F(registry_test, welcomes_and_refuses) {
  auto first = greeting("a");
  EXPECT_TRUE(join(first));
  EXPECT_TRUE(join(first));
  expect_refused(join(greeting("a")), parcae_error::duplicate_name);
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
  expect_refused(ask<welcome>(registry, x, dummy_instance("a"), std::vector<slot_actor>{dummy_slot("a")}),
                 parcae_error::malformed_request);
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
  begin_job({x});
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
    expect_refused(join(x), parcae_error::lost_incarnation);
  }
}

// given: the manager stands still for 3 s and all connections end; one instance is back after 1 s / expected: no loss
// is told, the job's slot is attached anew and nothing is planned; who does not come within 5 s is lost then;
// afterwards the end of a connection is a loss at once
TEST_F(registry_test, a_standstill_of_the_manager_loses_nobody_who_returns) {
  const auto a = greeting("a"), b = greeting("b");
  begin_job({a, b});
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
  EXPECT_EQ(times_told<abort_generation>("a"), 0);
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
  begin_job({a, k});
  stand_still(3s);
  lose("a");
  lose("k");
  serve(cancel_request{1});
  commands.clear();
  join(a);
  join(k);
  EXPECT_EQ(times_told<forget>("a"), 1);
  EXPECT_EQ(times_told<forget>("k"), 0);
}

// given: a worker that was lost returns when the conductor has told the others that the job is cancelled, and before
// the registry knows / expected: it is told, too
TEST_F(registry_test, who_returns_at_the_end_of_its_job_is_told) {
  const auto a = greeting("a");
  begin_job({a, greeting("b")});
  lose("a");
  commands.clear();
  caf::anon_send(registry, client_request{encode(request{cancel_request{1}})});
  while (times_told<forget>("b") == 0)
    ASSERT_TRUE(scheduler.try_run_once());
  join(a);
  EXPECT_GT(times_told<forget>("a"), 0);
}

// given: a job is over; a worker comes that was a member of the manager before this one, which ran it / expected: told
TEST_F(registry_test, who_comes_from_the_manager_before_is_told_what_is_over) {
  begin_job({greeting("a")});
  serve(cancel_request{1});
  auto b = greeting("b");
  b.manager_life = 77;
  join(b);
  EXPECT_THAT(commands["b"], testing::Contains(testing::VariantWith<forget>(testing::_)));
}

// given: the wish to end, without a job / expected: at once; submissions are refused
// given: with a job and no keeper / expected: the job ends, saying that nothing is kept, and then the manager
TEST_F(registry_test, ends_when_its_job_has) {
  join(greeting("a"));
  serve(submit_request{job()});
  serve(submit_request{job()});
  advance(100ms);
  tell(registry, end_atom_v);
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
  start_front();
  for (auto reason : {caf::exit_reason::user_shutdown, caf::exit_reason::unhandled_exception,
                      caf::exit_reason::remote_link_unreachable}) {
    caf::anon_send_exit(front, reason);
    run();
  }
  EXPECT_TRUE(join(front, greeting("a")));
  const auto answer = ask<client_reply>(front, client_request{encode(request{status_request{}})});
  ASSERT_TRUE(answer);
  EXPECT_EQ(std::get<status_reply>(decode_reply(answer->bytes)).instances.size(), 1u);
  auto wrong = greeting("b");
  wrong.protocol += 1;
  expect_refused(join(front, wrong), parcae_error::wrong_protocol);
}

// given: a member's notice, said by another node; its HELLO, with the handle of another / expected: ignored, refused;
// its own are heard
TEST_F(registry_test, hears_of_a_life_only_from_its_own_node) {
  start_front();
  const auto x = greeting("a");
  ASSERT_TRUE(join(x));
  const leaving_notice forged{"a", x.life, 30'000};
  const auto other = on_another_node(system, owned(system.spawn(ignore_all)));
  caf::send_as(other, front, forged);
  caf::anon_send(front, forged);
  run();
  EXPECT_EQ(state_of("a"), "alive");
  expect_refused(ask<welcome>(registry, x, caf::actor_cast<instance_actor>(other),
                              std::vector<slot_actor>{caf::actor_cast<slot_actor>(other)}),
                 parcae_error::duplicate_name);
  tell(front, forged);
  EXPECT_EQ(state_of("a"), "leaving");
}

// given: a job; reports of failures by members with certificates, of their own and of others' names; three that its
// worker crashed, by a client and by an operator / expected: the first are told, all others refused; the job goes on
TEST_F(registry_test, members_report_only_their_own_failures) {
  join(greeting("a"));
  serve(submit_request{job()});
  identity who{membership::node, "a", "1"};
  start_front([&](const caf::node_id&) { return std::optional(who); });
  const auto report = [&](const std::string& name, const std::string& what) {
    return ask<client_reply>(front, client_request{encode(request{report_request{name, what, {}, 0, true}})});
  };
  EXPECT_TRUE(report("a", "why"));
  const auto refuses = [&](const std::string& name) {
    const auto answer = report(name, "ended by SIGFPE");
    return !answer && answer.error() == parcae_error::not_permitted;
  };
  EXPECT_TRUE(refuses("b"));
  for (auto role : {membership::client, membership::operator_}) {
    who = {role, "a", "1"};
    for (int i = 0; i < 3; ++i)
      EXPECT_TRUE(refuses("a")) << to_string(role);
    EXPECT_TRUE(ask<client_reply>(front, client_request{encode(request{status_request{}})}));
  }
  advance(1s);
  EXPECT_EQ(status().failures.size(), 1u);
  EXPECT_EQ(status().jobs[0].state, "running");
}

// given: a fleet with as many instances as it may have, of which more come with a bundle that was made anew / expected:
// refused; another fleet's are not
TEST_F(registry_test, a_certificate_made_anew_allows_no_more) {
  identity who{membership::node, "spot", "1", true};
  start_front([&](const caf::node_id&) { return std::optional(who); });
  const auto joins = [&](const std::string& name) { return !!join(front, greeting(name)); };
  for (std::size_t i = 0; i < instance_table::max_of_holder; ++i)
    ASSERT_TRUE(joins("spot-" + std::to_string(i)));
  who.serial = "2";
  EXPECT_FALSE(joins("spot-x"));
  who.name = "other";
  EXPECT_TRUE(joins("other-x"));
}

// given: a join, a notice, a loss as announced, a join and a loss without notice, a node's last words / expected: news
// of each, in order, and the last words as they came
TEST_F(registry_test, tells_what_happened) {
  auto x = greeting("a");
  join(x);
  tell(registry, leaving_notice{"a", x.life, 30'000});
  lose("a");
  join(greeting("b"));
  lose("b");
  EXPECT_TRUE(
      std::holds_alternative<reported_reply>(serve(report_request{"b", "ended by SIGSEGV", {"line"}, 0, true})));
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

// given: a worker of a job whose notice gets shorter a thousand times, by a millisecond or by seconds; a fleet that
// comes and goes under a thousand names / expected: each time some lines in the log and the news; the earliest end
// counts
TEST_F(registry_test, notices_and_names_do_not_fill_the_log) {
  auto x = greeting("a");
  join(x);
  serve(submit_request{job()});
  const auto told_by = [&](const std::function<void(std::uint64_t)>& act) {
    const auto before = status().news_count;
    for (std::uint64_t i = 0; i < 1'000; ++i)
      act(i);
    run();
    return status().news_count - before;
  };
  EXPECT_EQ(told_by([&](auto i) { self->send(registry, leaving_notice{"a", x.life, 80'000'000 - i}); }), 1u);
  EXPECT_LE(told_by([&](auto i) { self->send(registry, leaving_notice{"a", x.life, 70'000'000 - 2'000 * i}); }), 5u);
  EXPECT_EQ(status().instances.at(0).expires_in_ms, 68'002'000);
  EXPECT_LE(told_by([&](auto i) {
              const auto name = "spot-" + std::to_string(i);
              join(greeting(name));
              lose(name);
            }),
            100u);
}

// given: a risk that the cloud sees, as each HELLO says; none; another, and a notice with its reason / expected: news
// of each change, the status has the reason; who joins at risk says so after joining
TEST_F(registry_test, tells_what_clouds_say) {
  auto x = greeting("a");
  join(x);
  for (const auto* warning : {"rebalance", "rebalance", "", "maintenance"}) {
    x.warning = warning;
    join(x);
    EXPECT_EQ(status().instances.at(0).warning, warning);
  }
  tell(registry, leaving_notice{"a", x.life, 30'000, "AWS: terminate"});
  EXPECT_EQ(status().instances.at(0).warning, "AWS: terminate");
  auto y = greeting("b");
  y.warning = "rebalance";
  join(y);
  std::vector<std::string> texts;
  for (const auto& n : status().news)
    texts.push_back(n.level + ": " + n.text);
  EXPECT_THAT(texts,
              ElementsAre(HasSubstr("instance a joined"), "warning: instance a is at risk: rebalance",
                          "information: instance a is at risk no more", "warning: instance a is at risk: maintenance",
                          "warning: notice: instance a leaves in 30s: AWS: terminate", HasSubstr("instance b joined"),
                          "warning: instance b is at risk: rebalance"));
}

// given: a notice while no job runs / expected: leaving, and released at once
TEST_F(registry_test, releases_leaving_instances_without_a_job) {
  auto x = greeting("a");
  join(x);
  tell(registry, leaving_notice{"a", x.life, 30'000});
  EXPECT_EQ(state_of("a"), "leaving");
  EXPECT_EQ(told["a"].released, 1);
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

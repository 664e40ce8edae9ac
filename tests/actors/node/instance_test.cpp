// Instances with a dummy middleman and a dummy manager.

#include "protocols/client/client.hpp"
#include "tests/actors/node/node_fixture.hpp"

#include <caf/io/all.hpp>

namespace parcae {
namespace {

/// A manager that can be there, away, or refuse; behind a middleman that connects to it.
struct instance_test : node_test {
  std::vector<hello> greetings;
  std::vector<leaving_notice> notices;
  std::uint64_t manager_life = 1;
  std::set<std::uint64_t> managers = {1}; ///< the last is the one that is there
  std::optional<caf::error> refusal;      ///< of the next HELLO
  bool refuses_always = false;
  bool mute = false;                           ///< HELLO is not answered
  std::vector<caf::response_promise> promised; ///< those answers
  std::optional<caf::error> dial_error;
  std::vector<manager_place> managers_at{{"m1", 1}};
  std::vector<std::string> dialled; ///< which hosts
  int dials = 0;
  int died = 0;
  std::vector<std::string> ended; ///< with what failure
  bool released = false;          ///< when it ended
  manager_actor manager = start_manager();
  caf::io::middleman_actor dialler =
      owned(system.spawn([this](caf::io::middleman_actor::pointer) -> caf::io::middleman_actor::behavior_type {
        using caf::result;
        return {
            [](caf::publish_atom, std::uint16_t, const caf::strong_actor_ptr&, const std::set<std::string>&,
               const std::string&, bool) -> result<std::uint16_t> { return caf::sec::invalid_argument; },
            [](caf::open_atom, std::uint16_t, const std::string&, bool) -> result<std::uint16_t> {
              return caf::sec::invalid_argument;
            },
            [this](caf::connect_atom, const std::string& host,
                   std::uint16_t) -> result<caf::node_id, caf::strong_actor_ptr, std::set<std::string>> {
              ++dials;
              dialled.push_back(host);
              if (dial_error)
                return *dial_error;
              return {system.node(), caf::actor_cast<caf::strong_actor_ptr>(manager),
                      system.message_types<manager_actor>()};
            },
            [](caf::unpublish_atom, const caf::actor_addr&, std::uint16_t) {},
            [](caf::close_atom, std::uint16_t) {},
            [](caf::spawn_atom, const caf::node_id&, const std::string&, const caf::message&,
               const std::set<std::string>&) -> result<caf::strong_actor_ptr> { return caf::sec::invalid_argument; },
            [](caf::get_atom, const caf::node_id&) -> result<caf::node_id, std::string, std::uint16_t> {
              return caf::sec::invalid_argument;
            },
        };
      }));
  instance_actor instance;
  std::vector<request> client_requests;
  std::function<std::string()> own_warning;
  std::vector<gpu_state> gpus;
  instance_ages ages;
  std::vector<slot_actor> slots; ///< of the last HELLO

  manager_actor start_manager() {
    return owned(system.spawn([this](manager_actor::pointer self) -> manager_actor::behavior_type {
      return {
          [this](const client_request& x) {
            client_requests.push_back(decode_request(x.bytes));
            return client_reply{};
          },
          [this, self](const hello& x, const instance_actor&,
                       const std::vector<slot_actor>& with) -> caf::result<welcome> {
            greetings.push_back(x);
            slots = with;
            if (mute) {
              auto never = self->make_response_promise<welcome>();
              promised.push_back(never);
              return never;
            }
            if (refusal)
              return refuses_always ? *refusal : *std::exchange(refusal, std::nullopt);
            if (x.manager_life != 0 && x.manager_life != manager_life)
              return caf::make_error(parcae_error::lost_incarnation, x.name);
            if (x.manager != 0 && !managers.contains(x.manager))
              return caf::make_error(parcae_error::outdated_manager, x.name);
            return welcome{manager_life, *managers.rbegin()};
          },
          [this](const leaving_notice& x) { notices.push_back(x); },
      };
    }));
  }

  void replace_manager() {
    kill(manager);
    manager = start_manager();
  }

  void start() {
    instance_config x;
    x.introduction.name = "a";
    x.introduction.slots = 2;
    x.managers = managers_at;
    x.seed = 1;
    x.source = source();
    x.dialler = dialler;
    x.other_build = [] { return std::string("it is 9.9"); };
    x.die = [this] { ++died; };
    x.own_warning = own_warning;
    x.gpus = [this] { return gpus; };
    x.ages = [this] { return ages; };
    x.ended = [this](const instance_ending& how) {
      ended.push_back(how.failure);
      released = how.released;
    };
    instance = system.spawn(parcae::instance, std::move(x));
    run();
    advance(1ms);
  }

  void TearDown() override {
    kill(instance); // it ignores all other exits
    node_test::TearDown();
  }

  void notice(std::uint64_t grace_ms, const std::string& reason = "SIGTERM") {
    tell(instance, notice_atom_v, grace_ms, reason);
  }

  void risk(const std::string& reason) { tell(instance, risk_atom_v, reason); }
};

// given: a manager that is not there yet / expected: dialled again with back-off until it is
TEST_F(instance_test, dials_until_the_manager_is_there) {
  dial_error = caf::make_error(caf::sec::cannot_connect_to_node);
  start();
  EXPECT_EQ(dials, 1);
  advance(100ms);
  EXPECT_EQ(dials, 2);
  advance(150ms);
  EXPECT_EQ(dials, 2);
  advance(50ms);
  EXPECT_EQ(dials, 3);
  dial_error.reset();
  advance(400ms);
  ASSERT_EQ(greetings.size(), 1u);
  EXPECT_EQ(greetings[0].name, "a");
}

// given: a welcome / expected: HELLO of the same life each second
TEST_F(instance_test, says_hello_again_and_again) {
  start();
  ASSERT_EQ(greetings.size(), 1u);
  for (std::size_t n = 2; n < 100; ++n) {
    advance(1s);
    ASSERT_EQ(greetings.size(), n);
    EXPECT_EQ(greetings.back().life, greetings[0].life);
  }
  EXPECT_EQ(dials, 1);
}

// given: the manager answers HELLO no more, though its connection stands / expected: dialled again after 5 s
TEST_F(instance_test, dials_again_when_hello_is_not_answered) {
  start();
  mute = true;
  advance(1s);
  ASSERT_EQ(greetings.size(), 2u);
  advance(4900ms);
  EXPECT_EQ(dials, 1);
  mute = false;
  advance(200ms);
  advance(1ms);
  EXPECT_EQ(dials, 2);
  EXPECT_EQ(greetings.size(), 3u);
  EXPECT_EQ(greetings.back().life, greetings[0].life);
  EXPECT_TRUE(ended.empty());
}

// given: refusals / expected: lost_incarnation begins a new, empty life; others end the process with the reason
TEST_F(instance_test, obeys_refusals) {
  refusal = caf::make_error(parcae_error::lost_incarnation, std::string("a"));
  start();
  ASSERT_EQ(greetings.size(), 2u);
  EXPECT_NE(greetings[0].life, greetings[1].life);
  EXPECT_TRUE(ended.empty());
}

// given: exits and errors from elsewhere, also in its slots' name or its own / expected: it and its slots stay
TEST_F(instance_test, nobody_elsewhere_ends_it) {
  start();
  const auto here = caf::actor_cast<caf::strong_actor_ptr>(instance);
  say_the_end_to(here, {here, caf::actor_cast<caf::strong_actor_ptr>(slots.at(0))});
  advance(1s);
  EXPECT_EQ(greetings.size(), 2u);
  EXPECT_EQ(greetings[1].life, greetings[0].life);
  EXPECT_TRUE(ended.empty());
}

// given: a name that somebody has, who lives on / expected: it is waited for, as who has it may have died unnoticed,
// and then the process ends
TEST_F(instance_test, ends_when_its_name_is_taken_and_stays_so) {
  refusal = caf::make_error(parcae_error::duplicate_name, std::string("a"));
  refuses_always = true;
  start();
  for (int i = 0; i < 90; ++i) {
    advance(100ms);
    ASSERT_TRUE(ended.empty()) << i;
  }
  for (int i = 0; i < 40; ++i)
    advance(100ms);
  EXPECT_THAT(ended, ElementsAre(HasSubstr("a living instance has that name")));
}

TEST_F(instance_test, joins_once_its_name_is_free) {
  refusal = caf::make_error(parcae_error::duplicate_name, std::string("a"));
  start();
  EXPECT_TRUE(ended.empty());
  refusal.reset();
  advance(2s);
  EXPECT_GE(greetings.size(), 2u);
  advance(20s);
  EXPECT_TRUE(ended.empty());
}

// given: a member that was silent so long that another one took its name / expected: it goes on trying, and joins when
// the name is free
TEST_F(instance_test, does_not_end_when_its_name_was_taken_while_it_was_silent) {
  start();
  ASSERT_EQ(greetings.size(), 1u);
  manager_life = 2; // knows nothing of this life
  replace_manager();
  const auto taken = caf::make_error(parcae_error::duplicate_name, std::string("a"));
  refusal = taken;
  advance(200ms);
  refusal = taken;
  advance(2s);
  refusal = taken;
  advance(2s);
  EXPECT_TRUE(ended.empty());
  EXPECT_GE(greetings.size(), 4u);
  refusal.reset();
  advance(5s);
  const auto anew = std::ranges::find_if(greetings, [&](const hello& x) { return x.life != greetings.front().life; });
  ASSERT_NE(anew, greetings.end());
  EXPECT_EQ(anew->manager_life, 0u) << "a new life";
  const auto new_life = anew->life;
  EXPECT_EQ(greetings.back().life, new_life);
  EXPECT_EQ(greetings.back().manager_life, 2u) << "said again, as a member";
  const auto dialled = dials;
  advance(10s);
  EXPECT_EQ(dials, dialled) << "it is a member again";
  EXPECT_EQ(greetings.back().life, new_life);
  EXPECT_TRUE(ended.empty());
}

TEST_F(instance_test, ends_when_the_manager_is_another_build) {
  dial_error = caf::make_error(caf::sec::incompatible_application_ids);
  start();
  EXPECT_THAT(ended, ElementsAre(HasSubstr("another protocol version: it is 9.9")));
}

// given: the manager goes and comes back / expected: the same life if it is the same manager, a new one if not
TEST_F(instance_test, returns_to_the_manager) {
  start();
  auto life = greetings.at(0).life;
  auto lose_manager = [&] {
    replace_manager();
    advance(200ms);
  };
  lose_manager();
  ASSERT_EQ(greetings.size(), 2u);
  EXPECT_EQ(greetings[1].life, life);
  manager_life = 2;
  lose_manager();
  // A stranger refuses the old life, which says by whom it was welcomed.
  ASSERT_EQ(greetings.size(), 4u);
  EXPECT_EQ(greetings[2].life, life);
  EXPECT_EQ(greetings[2].manager_life, 1u);
  EXPECT_NE(greetings[3].life, life);
  EXPECT_EQ(greetings[3].manager_life, 0u);
}

// given: two managers, of which the second leads, and then the first / expected: they are dialled in turn
TEST_F(instance_test, dials_one_manager_after_the_other) {
  managers_at = {{"m1", 1}, {"m2", 2}};
  dial_error = caf::make_error(caf::sec::cannot_connect_to_node);
  start();
  advance(100ms);
  EXPECT_THAT(dialled, ElementsAre("m1", "m2"));
  dial_error.reset();
  advance(1s);
  ASSERT_EQ(greetings.size(), 1u);
  EXPECT_EQ(dialled.back(), "m1");
  replace_manager();
  advance(200ms);
  EXPECT_EQ(dialled.back(), "m2");
  EXPECT_EQ(greetings.back().life, greetings.front().life);
}

// given: a member, and then a manager with an older journal where its manager was / expected: it stays as it is, asks
// again and again, and is a member again once one that knows of the first is there
TEST_F(instance_test, has_nothing_to_do_with_an_outdated_manager) {
  managers = {6, 7};
  start();
  managers = {6};
  replace_manager();
  advance(20s);
  EXPECT_GT(greetings.size(), 3u);
  managers = {6, 7, 8};
  replace_manager();
  advance(20s);
  EXPECT_TRUE(ended.empty());
  for (const auto& x : greetings)
    EXPECT_EQ(x.life, greetings[0].life);
  EXPECT_EQ(greetings[1].manager, 7u);
  EXPECT_EQ(greetings.back().manager, 8u);
}

// given: SIGTERM / expected: the manager is told; ends when released, else when the grace is over
TEST_F(instance_test, leaves_when_released) {
  start();
  tell(instance, released_atom_v);
  EXPECT_TRUE(ended.empty());
  notice(5000);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0].notice_ms, 5000u);
  EXPECT_TRUE(ended.empty());
  EXPECT_EQ(notices[0].reason, "SIGTERM");
  tell(instance, released_atom_v);
  EXPECT_THAT(ended, ElementsAre(""));
  EXPECT_TRUE(released);
}

TEST_F(instance_test, leaves_when_the_grace_is_over) {
  start();
  notice(5000);
  advance(4999ms);
  EXPECT_TRUE(ended.empty());
  advance(1ms);
  EXPECT_THAT(ended, ElementsAre(""));
  EXPECT_FALSE(released) << "what it held was still needed";
}

// given: a risk that the cloud sees, sees no more, sees again, with a certificate that ends; then a notice, and no risk
// any more / expected: HELLO says the risk within a second, then nothing, then the risk, then the notice's reason,
// which stays; too long a text is cut; how its GPUs are by then
TEST_F(instance_test, says_what_its_cloud_says) {
  std::string own;
  own_warning = [&] { return own; };
  start();
  const auto said = [&] {
    advance(1s);
    return greetings.back().warning;
  };
  EXPECT_EQ(said(), "");
  risk("rebalance");
  EXPECT_EQ(said(), "rebalance");
  risk("");
  EXPECT_EQ(said(), "");
  own = "its certificate ends";
  EXPECT_EQ(said(), own);
  risk("rebalance");
  EXPECT_EQ(said(), "rebalance; " + own);
  risk(std::string(1000, 'x'));
  EXPECT_EQ(said(), std::string(hello::longest_warning, 'x'));
  gpus = {{.place = "cuda:0", .celsius = 60, .throttled = {}, .problem = {}}};
  ages = {7, 8};
  said();
  EXPECT_EQ(greetings.back().gpus, gpus);
  EXPECT_EQ(greetings.back().ages, ages);
  EXPECT_TRUE(notices.empty());
  notice(5000, "AWS: terminate");
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0].reason, "AWS: terminate");
  risk("");
  EXPECT_EQ(said(), "AWS: terminate");
}

// given: a notice, no manager for some seconds, then one / expected: meanwhile each second, and at once, what trains
// here is to send a snapshot to its keepers, and no more once there is a manager to see to it; before a job nothing
// happens
TEST_F(instance_test, looks_after_its_state_without_a_manager) {
  start();
  ASSERT_EQ(slots.size(), 2u);
  for (std::uint32_t i = 0; i < 2; ++i)
    self->send(slots[i], attach_atom_v, addressee{{"a", greetings[0].life, i}, {1}}, sink);
  run();
  notice(30'000);
  advance(3s);
  EXPECT_TRUE(seen.empty()) << "the manager knows";
  caf::anon_send_exit(manager, caf::exit_reason::kill);
  dial_error = caf::make_error(caf::sec::cannot_connect_to_node);
  run();
  advance(1s);
  const auto after_one = seen.size();
  EXPECT_EQ(after_one, 2u) << "of each slot one";
  advance(5s);
  EXPECT_EQ(seen.size(), 12u);
  EXPECT_THAT(seen, testing::Each("snapshot"));
  dial_error.reset();
  manager = start_manager();
  advance(3s);
  ASSERT_EQ(notices.size(), 2u);
  const auto then = seen.size();
  advance(5s);
  EXPECT_EQ(seen.size(), then);
}

// given: no manager, and a notice / expected: a snapshot at once
TEST_F(instance_test, a_notice_without_a_manager_asks_for_a_snapshot) {
  start();
  self->send(slots.at(0), attach_atom_v, addressee{{"a", greetings[0].life, 0}, {1}}, sink);
  caf::anon_send_exit(manager, caf::exit_reason::kill);
  dial_error = caf::make_error(caf::sec::cannot_connect_to_node);
  run();
  notice(500);
  EXPECT_THAT(seen, ElementsAre("snapshot"));
}

// given: a notice of more milliseconds than the clock can count / expected: the clock does not overflow
TEST_F(instance_test, a_notice_is_at_most_a_day_away) {
  start();
  notice(UINT64_MAX - 1);
  EXPECT_TRUE(ended.empty());
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0].notice_ms, 86'400'000u);
}

// given: a second SIGTERM, which shortens the grace to nothing / expected: ends at once
TEST_F(instance_test, the_earliest_notice_counts) {
  start();
  notice(5000);
  notice(0);
  advance(0ms);
  EXPECT_THAT(ended, ElementsAre(""));
  EXPECT_FALSE(released);
}

// given: SIGTERM before the manager was ever reached / expected: ends at once
TEST_F(instance_test, nobody_waits_for_a_stranger) {
  dial_error = caf::make_error(caf::sec::cannot_connect_to_node);
  start();
  notice(5000);
  EXPECT_THAT(ended, ElementsAre(""));
  EXPECT_TRUE(released);
}

// given: two errors at once, later one while the manager is away / expected: the first with the log up to the second,
// told once a moment later; the other when the manager is back
TEST_F(instance_test, tells_the_manager_of_failures) {
  using log = std::vector<std::string>;
  start();
  self->send(instance, report_atom_v, std::string("first"), log{"one"});
  tell(instance, report_atom_v, std::string("second"), log{"one", "two"});
  EXPECT_TRUE(client_requests.empty());
  advance(200ms);
  ASSERT_EQ(client_requests.size(), 1u);
  const auto told = std::get<report_request>(client_requests[0]);
  EXPECT_EQ(told.instance, "a");
  EXPECT_EQ(told.what, "first");
  EXPECT_THAT(told.lines, ElementsAre("one", "two"));
  dial_error = caf::make_error(caf::sec::cannot_connect_to_node);
  kill(manager);
  tell(instance, report_atom_v, std::string("third"), log{"three"});
  advance(1s);
  EXPECT_EQ(client_requests.size(), 1u);
  dial_error.reset();
  manager = start_manager();
  advance(2s);
  ASSERT_EQ(client_requests.size(), 2u);
  EXPECT_EQ(std::get<report_request>(client_requests[1]).what, "third");
}

// given: a preemption in 2 s / expected: dies then, not before
TEST_F(instance_test, dies_at_the_deadline) {
  start();
  tell(instance, die_atom_v, std::uint64_t{2000});
  advance(1999ms);
  EXPECT_EQ(died, 0);
  advance(1ms);
  EXPECT_EQ(died, 1);
}

// given: a preemption in more milliseconds than the clock can count / expected: within a day
TEST_F(instance_test, a_preemption_is_at_most_a_day_away) {
  start();
  tell(instance, die_atom_v, std::uint64_t{UINT64_MAX - 1});
  EXPECT_EQ(died, 0) << "the clock overflowed";
  advance(24h);
  EXPECT_EQ(died, 1);
}

} // namespace
} // namespace parcae

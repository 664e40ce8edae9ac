// The broker with a real registry: what it asks for, gives back, tells and keeps, whatever happens.

#include "actors/conductor/model_facts.hpp"
#include "actors/manager/broker.hpp"
#include "actors/manager/status.hpp"
#include "tests/actors/manager/registry_fixture.hpp"

namespace parcae {
namespace {

struct broker_test : registry_test {
  broker_test() { start({}); }

  void start(ledger_record past) {
    broker_config x;
    x.pools = {{"spot", "here", "k", true, 1, 1.0, 2, 10s, ""}, {"sure", "here", "k", false, 1, 3.0, 2, 10s, ""}};
    if (places > 1)
      x.pools.push_back({"far", "there", "k", true, 1, 2.0, 2, 10s, ""});
    if (kinds > 1)
      x.pools.push_back({"dear", "here", "dear", true, 1, 2.0, 2, 10s, ""});
    x.fixed_usd_per_h = 0.5;
    x.interval = 1s;
    x.registry = registry;
    x.journal = books = owned(system.spawn([this](journal_actor::pointer self) -> journal_actor::behavior_type {
      return {[this, self](const journal_entries& all) -> caf::result<void> {
        if (journal_is_slow) {
          owed.push_back(self->make_response_promise());
          return caf::delegated<void>();
        }
        for (auto& answer : std::exchange(owed, {}))
          answer.deliver(caf::unit);
        if (journal_fails)
          return caf::make_error(parcae_error::internal);
        for (const auto& entry : all.all)
          kept = decode_journal<ledger_record>(entry.bytes);
        return caf::unit;
      }};
    }));
    x.past = std::move(past);
    x.provide = [this](std::uint64_t number, const std::vector<pool_order>& pools) {
      orders.push_back(pools);
      request = number;
    };
    x.wall_us = [this] { return wall_clock_us() + microseconds_of(scheduler.clock().now()) - begun_us; };
    begun_us = begun_us == 0 ? microseconds_of(scheduler.clock().now()) : begun_us;
    renting = owned(system.spawn(broker, std::move(x)));
    run();
  }

  hello rented(const std::string& name, const std::string& pool) {
    auto x = greeting(name);
    x.pool = pool;
    return x;
  }

  job_specification with_budget() {
    auto x = job();
    x.budget.deadline_ms = 3'600'000;
    return x;
  }

  const pool_order& newest(const std::string& pool) {
    return *std::ranges::find(orders.back(), pool, &pool_order::name);
  }

  /// A registry that has only these facts.
  registry_actor stand_in(std::function<market_facts()> facts, give_back& given_back, std::string& why) {
    return owned(system.spawn([=, &given_back, &why](registry_actor::pointer) -> registry_actor::behavior_type {
      return {
          [](const client_request&) { return client_reply{}; },
          [](const hello&, const instance_actor&, const std::vector<slot_actor>&) { return welcome{}; },
          [](const leaving_notice&) {},
          [](const requester&, const client_request&) { return client_reply{}; },
          [](const requester&, const hello&, const instance_actor&, const std::vector<slot_actor>&) {
            return welcome{};
          },
          [](const job_outcome&) {},
          [](released_atom, const slot_id&) {},
          [](end_atom) {},
          [=](market_question) { return facts(); },
          [&given_back](const give_back& x) { given_back = x; },
          [](const train_with&) {},
          [&why](const market_picture& x) { why = x.what->why; },
          [](const stop_job&) {},
          [](timer_atom) {},
      };
    }));
  }

  /// From now on these, of spot, train a job that is measured, as `view` says, and nobody else is there.
  void trains(const std::vector<std::string>& names) {
    kill(renting);
    training.steps = 1'000'000;
    view.known.costs = facts_of(training).costs;
    view.known.measured = {{{1, 1}, 1'000, 0.01, 50, 1, false}};
    view.steps_done = 10;
    view.step_ms = 250;
    registry = stand_in(
        [this, names] {
          market_facts result;
          for (const auto& name : names)
            result.workers.push_back({.name = name,
                                      .pool = "spot",
                                      .joined = scheduler.clock().now(),
                                      .ages = {},
                                      .slots = 1,
                                      .leaving = leaving.contains(name)});
          result.job = std::make_shared<const rented_for>(
              rented_for{{1}, training, wall_clock_us() / 1000, {std::make_shared<const job_view>(view), 0, {}}});
          return result;
        },
        given_back, why);
    start({});
  }

  int places = 1, kinds = 1;
  job_specification training = with_budget(); ///< of trains()
  job_view view;                              ///< likewise
  std::set<std::string> leaving;              ///< likewise: those under notice
  give_back given_back;                       ///< the newest
  std::string why;                            ///< likewise, as status has it
  std::vector<std::vector<pool_order>> orders;
  ledger_record kept; ///< as a journal would have it
  journal_actor books;
  bool journal_fails = false;              ///< as if another manager led
  bool journal_is_slow = false;            ///< answers late
  std::vector<caf::response_promise> owed; ///< what a slow journal is to answer yet, with the next entries
  broker_actor renting;
  std::uint64_t request = 0; ///< the newest order's
  std::int64_t begun_us = 0;
};

// given: a job with a budget, then its end / expected: as few instances as it begins with are asked for; with the job
// they are given back, and named to the hook once they are gone
TEST_F(broker_test, rents_for_a_job_and_gives_back) {
  advance(2s);
  EXPECT_EQ(newest("spot").want, 0u) << "nobody needs any";
  serve(submit_request{with_budget()});
  advance(1s);
  EXPECT_EQ(newest("spot").want, 1u);
  EXPECT_EQ(newest("sure").want, 0u);
  auto large = rented("large", "spot");
  large.slots = 8;
  join(large);
  join(rented("a", "spot"));
  advance(2s);
  EXPECT_THAT(newest("spot").have, ElementsAre("a")) << "the other is not what the pool has";
  lose("large");
  const auto shown = status();
  EXPECT_EQ(shown.instances[0].pool, "spot");
  EXPECT_EQ(shown.market.job, 1u);
  EXPECT_EQ(shown.market.pools[0].have, 1u);
  EXPECT_GT(shown.market.deadline_us, wall_clock_us());
  serve(cancel_request{1});
  for (int i = 0; i < 200 && status().jobs[0].state != "cancelled"; ++i)
    advance(1s);
  advance(2s);
  EXPECT_THAT(newest("spot").have, ElementsAre("a")) << "the hook does not end it";
  ASSERT_FALSE(told["a"].deaths_ms.empty()) << "it is to end";
  EXPECT_EQ(told["a"].deaths_ms.back(), 0u) << "at once, as no job needs it";
  EXPECT_THAT(newest("spot").release, ElementsAre()) << "it is still there";
  lose("a");
  advance(2s);
  EXPECT_EQ(newest("spot").want, 0u);
  EXPECT_THAT(newest("spot").release, ElementsAre("a"));
}

// given: instances that were not rented, a job without a budget / expected: nobody is asked for, nobody given back
TEST_F(broker_test, leaves_alone_what_is_not_its_own) {
  join(greeting("mine"));
  join(rented("other", "elsewhere"));
  advance(3s);
  EXPECT_TRUE(told["mine"].deaths_ms.empty());
  EXPECT_TRUE(told["other"].deaths_ms.empty());
  serve(submit_request{job()});
  join(rented("a", "spot"));
  advance(3s);
  EXPECT_TRUE(told["a"].deaths_ms.empty());
  EXPECT_EQ(newest("spot").want, 1u);
  EXPECT_THAT(newest("spot").have, ElementsAre("a"));
  EXPECT_THAT(status().market.why, HasSubstr("no budget"));
}

// given: a hook that has no more, and says why / expected: another pool is asked, and status has the reason
TEST_F(broker_test, asks_elsewhere_for_what_the_hook_has_not) {
  serve(submit_request{with_budget()});
  advance(2s);
  ASSERT_EQ(newest("spot").want, 1u);
  tell(renting, hook_news{{{"spot", 0, "capacity-not-available"}, {"sure", 2, ""}}, "", request});
  advance(1s);
  EXPECT_EQ(newest("spot").want, 0u);
  EXPECT_EQ(newest("sure").want, 1u);
  EXPECT_EQ(status().market.pools[0].why, "capacity-not-available");
}

// given: a hook that fails, a feed that does, and tells another price / expected: said in status; training goes on; the
// last good price counts
TEST_F(broker_test, says_what_is_wrong_with_feed_and_hook) {
  tell(renting, feed_news{{{"spot", 0.25, {}}}, "the feed is silent for 15m"});
  tell(renting, hook_news{{}, "the hook ended with status 1", 0});
  advance(2s);
  const auto shown = status().market;
  EXPECT_EQ(shown.feed, "the feed is silent for 15m");
  EXPECT_EQ(shown.hook, "the hook ended with status 1");
  EXPECT_DOUBLE_EQ(shown.pools[0].usd_per_h, 0.25);
  EXPECT_DOUBLE_EQ(shown.pools[1].usd_per_h, 3.0);
}

// given: a broker that ends while a job trains, and one that finds its ledger half an hour later / expected: the bill
// goes on, the deadline is the same, nothing is bought twice
TEST_F(broker_test, goes_on_with_its_ledger) {
  serve(submit_request{with_budget()});
  advance(1s);
  join(rented("a", "spot"));
  advance(2s);
  const auto before = status().market;
  EXPECT_GT(before.job_usd, 0);
  kill(renting);
  advance(30min);
  start(kept);
  advance(1s);
  const auto after = status().market;
  EXPECT_EQ(after.deadline_us, before.deadline_us);
  EXPECT_NEAR(after.job_usd - before.job_usd, 0.5 * (1 + 0.5), 0.01) << "what ran meanwhile counts";
  EXPECT_EQ(newest("spot").want, 1u);
  EXPECT_THAT(newest("spot").have, ElementsAre("a"));
}

// given: an instance that joined since the last record of a broker that ends, and comes to its successor 100 s later /
// expected: it is billed from its process's begin, though nobody is waited for so long; one that joins the successor
// later and says that it is as old is not
TEST_F(broker_test, bills_what_its_predecessor_did_not_record) {
  advance(2s);
  const auto past = kept;
  kill(renting);
  advance(100s);
  start(past);
  auto x = rented("a", "spot");
  x.ages = {101'000, 1'000'000'000};
  join(x);
  advance(1s);
  const auto spent_on_spot = [this] { return status().market.pools.at(0).usd * 3'600; }; // a dollar an hour
  EXPECT_NEAR(spent_on_spot(), 102, 1.1);
  advance(20s);
  x.name = "b";
  x.ages = {1'000'000, 1'000'000'000};
  join(x);
  advance(1s);
  EXPECT_NEAR(spent_on_spot(), 102 + 21 + (2 * 10 + 1 + 1), 2.2);
}

// given: an instance that is in the ledger of a broker that ends, and there when its successor begins 100 s later; it
// is lost, and returns / expected: the 100 s are billed once
TEST_F(broker_test, bills_who_returns_twice_once) {
  auto x = rented("a", "spot");
  x.ages = {1'000, 1'000'000'000};
  join(x);
  advance(3s);
  kill(renting);
  advance(100s);
  start(kept);
  advance(2s);
  lose("a");
  advance(1s);
  x.ages.process_ms += 106'000;
  join(x);
  advance(2s);
  const auto spent_on_spot = status().market.pools.at(0).usd * 3'600; // a dollar an hour
  EXPECT_GT(spent_on_spot, 104);
  EXPECT_LT(spent_on_spot, 1 + 3 + 100 + 2 + 1 + 2 + 2) << "all of it, though it was away";
}

// given: an instance that is there for 3 s and is lost in the midst of an interval, and one that comes and goes within
// an interval, each with a process of 2 s / expected: each is billed from its process's begin to its end
TEST_F(broker_test, bills_from_start_to_end) {
  const auto spent_on_spot = [this] { return status().market.pools.at(0).usd * 3'600; }; // a dollar an hour
  auto x = rented("a", "spot");
  x.ages = {2'000, 1'000'000'000};
  advance(1'300ms);
  join(x);
  advance(3s);
  lose("a");
  advance(2s);
  EXPECT_NEAR(spent_on_spot(), 5, 0.05);
  x = rented("b", "spot");
  x.ages = {2'000, 1'000'000'000};
  join(x);
  advance(200ms);
  lose("b");
  advance(2s);
  EXPECT_NEAR(spent_on_spot(), 5 + 2.2, 0.1);
}

// given: an instance whose process is there for 20 s, and whose connection ends; a word of it from before comes behind
// that, so that it is back, and lost again at once / expected: it is billed once
TEST_F(broker_test, bills_who_is_lost_twice_once) {
  auto x = rented("a", "spot");
  x.ages = {15'000, 1'000'000'000};
  join(x);
  advance(5s);
  lose("a");
  x.ages.process_ms += 5'000;
  join(x);
  lose("a");
  advance(2s);
  EXPECT_NEAR(status().market.pools.at(0).usd * 3'600, 20, 0.1); // a dollar an hour
}

// given: a manager whose ledger cannot be written, as another one leads / expected: it asks for nothing, and says so;
// once it can be, it does
TEST_F(broker_test, asks_for_nothing_that_is_not_in_the_ledger) {
  advance(1s);
  journal_fails = true;
  orders.clear();
  serve(submit_request{with_budget()});
  advance(3s);
  EXPECT_THAT(orders, IsEmpty());
  EXPECT_THAT(status().market.why, HasSubstr("the ledger cannot be written"));
  journal_fails = false;
  advance(1s);
  EXPECT_EQ(newest("spot").want, 1u);
}

// given: a manager that begins again, to which one of two instances has not returned yet / expected: said, with what is
// there; nothing is asked for or given back; then it goes on
TEST_F(broker_test, says_that_it_waits_for_who_returns) {
  serve(submit_request{with_budget()});
  advance(1s);
  join(rented("a", "spot"));
  advance(2s);
  kill(renting);
  kept.running["b"] = "spot";
  orders.clear();
  start(kept);
  advance(1s);
  const auto shown = status().market;
  EXPECT_THAT(shown.why, HasSubstr("1 instance of 2"));
  EXPECT_EQ(shown.pools.at(0).have, 1u);
  EXPECT_GT(shown.deadline_us, 0);
  EXPECT_THAT(orders, IsEmpty());
  advance(10s);
  EXPECT_EQ(newest("spot").want, 1u);
}

// given: another pool is far cheaper than that of the only instance that trains, money for one alone, and no keeper /
// expected: it stays, and the reason is said; with a keeper it is given back, and stops as soon as step and state allow
TEST_F(broker_test, gives_nothing_back_without_a_keeper) {
  training.budget.hourly_usd = 50;
  trains({"a"});
  tell(renting, feed_news{{{"spot", 90, {}}}, ""});
  advance(3s);
  EXPECT_THAT(given_back.names, IsEmpty());
  EXPECT_THAT(why, HasSubstr("no keeper"));
  view.known.keepers = 1;
  advance(2s);
  EXPECT_THAT(given_back.names, Contains("a"));
  EXPECT_GE(given_back.notice_ms, 1'000 + 4 * 250u) << "four steps";
  EXPECT_LE(given_back.notice_ms, 2'100u);
  EXPECT_THAT(why, Not(HasSubstr("no keeper")));
}

// given: two instances of which one is given back and trains on, then the other one, too / expected: the first has a
// long notice, as somebody takes over what it holds; then both have a short one
TEST_F(broker_test, who_trains_alone_is_not_paid_for_long) {
  trains({"a", "b"});
  view.known.keepers = 1;
  training.budget.hourly_usd = 1;
  training.budget.deadline_ms = 0;
  advance(3s);
  ASSERT_THAT(given_back.names, ElementsAre("b"));
  EXPECT_EQ(given_back.notice_ms, 3'600'000u);
  leaving.insert("b");
  tell(renting, feed_news{{{"spot", 90, {}}}, ""});
  advance(3s);
  EXPECT_THAT(given_back.names, testing::UnorderedElementsAre("a", "b"));
  EXPECT_LE(given_back.notice_ms, 2'100u);
}

// given: pools in two places, an instance of each; one of the other place comes first, then the place has none /
// expected: the job has only what is in the place where it trains, and the other one waits; then it moves
TEST_F(broker_test, trains_in_one_place) {
  kill(renting);
  auto settings = in_virtual_time();
  settings.pools_that_wait = {"spot", "sure", "far"};
  registry = owned(system.spawn(parcae::registry, std::move(settings)));
  places = 2;
  start({});
  serve(submit_request{with_budget()});
  advance(1s);
  join(rented("there", "far"));
  advance(1s);
  EXPECT_EQ(status().jobs[0].state, "queued") << status().jobs[0].problem;
  EXPECT_THAT(attached["there"], IsEmpty());
  join(rented("a", "spot"));
  advance(2s);
  EXPECT_THAT(attached["a"], Not(IsEmpty()));
  EXPECT_EQ(kept.place, "here");
  lose("there");
  lose("a");
  tell(renting, hook_news{{{"spot", 0, "none"}, {"sure", 0, "none"}}, "", request});
  advance(1s);
  EXPECT_EQ(newest("far").want, 1u);
  join(rented("new", "far"));
  advance(3s);
  EXPECT_EQ(kept.place, "there");
  EXPECT_THAT(attached["new"], Not(IsEmpty()));
}

// given: a job that is not submitted yet / expected: what its budget cannot hold is said, and what nobody knows;
// without a broker, too
TEST_F(broker_test, says_beforehand_whether_a_budget_can_hold) {
  auto poor = with_budget();
  poor.budget.hourly_usd = 0.5;
  const auto checked = [&] { return std::get<checked_reply>(serve(check_request{poor, {}})); };
  EXPECT_THAT(checked().problems, Contains(HasSubstr("the cheapest, of spot, is $1.00 an hour")));
  EXPECT_THAT(checked().unknown, Contains(HasSubstr("budget.deadline: whether 1h are enough")));
  tell(renting, feed_news{{{"spot", 0.25, {}}}, ""});
  advance(2s);
  EXPECT_THAT(checked().problems, Not(Contains(HasSubstr("budget"))));
  kill(renting);
  EXPECT_THAT(checked().unknown, Contains(StartsWith("budget")));
}

// given: a job that was measured, then others: of the same work under another name, and of other work / expected: for
// the same work its speed is known at once
TEST_F(broker_test, knows_the_speed_of_the_same_work) {
  trains({"a"});
  advance(2s);
  EXPECT_THAT(why, HasSubstr("a sample is worth"));
  view.known.measured.clear();
  training.name = "another";
  training.steps *= 2;
  advance(2s);
  EXPECT_THAT(why, HasSubstr("a sample is worth"));
  training.global_batch *= 2;
  advance(2s);
  EXPECT_THAT(why, HasSubstr("until its speed is known"));
}

// given: a job that has trained on two kinds, of which the one that is twice as dear is no faster, and the broker's end
// / expected: the next one does not ask for that one, as the ledger says how fast it is; by its price alone it would
TEST_F(broker_test, knows_speeds_of_a_manager_before) {
  kinds = 2;
  view.known.keepers = 1;
  training.budget.deadline_ms *= 24;
  view.kind = "dear";
  trains({"a"});
  advance(2s);
  view.kind = "k";
  advance(2s);
  ASSERT_THAT(kept.rates, testing::SizeIs(2));
  const auto asks_for_dear_ones = [&](const ledger_record& past) {
    kill(renting);
    start(past);
    advance(20s);
    return newest("dear").want > 0;
  };
  EXPECT_FALSE(asks_for_dear_ones(kept)) << why;
  kept.rates["dear"].work = "another";
  EXPECT_TRUE(asks_for_dear_ones(kept)) << why;
}

// given: a journal that takes longer than some intervals, while an instance ends / expected: nothing is decided on
// what was seen before it ended, so it is billed once
TEST_F(broker_test, bills_once_though_the_journal_is_slow) {
  serve(submit_request{with_budget()});
  advance(1s);
  join(rented("a", "spot"));
  advance(3s);
  journal_is_slow = true;
  advance(1s);
  ASSERT_EQ(owed.size(), 1u);
  lose("a");
  advance(3s);
  ASSERT_EQ(owed.size(), 1u) << "one look after the other";
  journal_is_slow = false;
  tell(books, journal_entries{});
  advance(3s);
  EXPECT_LT(kept.pools.at("spot").hours, 6.0 / 3600);
  EXPECT_GT(kept.pools.at("spot").hours, 3.0 / 3600);
}

// given: the money comes first, and is spent / expected: the job ends, and says how to go on
TEST_F(broker_test, stops_a_job_whose_money_is_spent) {
  auto poor = with_budget();
  poor.budget.total_usd = 0.01;
  poor.budget.first = "total";
  serve(submit_request{poor});
  advance(1s);
  join(rented("a", "spot"));
  for (int i = 0; i < 400 && status().jobs[0].state != "failed"; ++i)
    advance(1s);
  EXPECT_EQ(status().jobs[0].state, "failed");
  EXPECT_THAT(status().jobs[0].problem, HasSubstr("parcae submit --resume"));
  advance(2s);
  EXPECT_FALSE(told["a"].deaths_ms.empty());
}

} // namespace
} // namespace parcae

// What the manager asks for and gives back, in worlds where instances come late, or not at all, or unasked.

#include "planner/market/ledger.hpp"
#include "planner/market/renting.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace parcae::market {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double between_s = 60, usual_s = 180, begin_s = 1'700'000'000;

std::vector<instance_pool> pools_of_one_place() {
  return {{"a-spot", "a", "k", true, 1, 1.0, 6, minutes(3), ""},
          {"a-sure", "a", "k", false, 1, 3.0, 6, minutes(3), ""}};
}

std::vector<instance_pool> pools_of_two_places() {
  auto result = pools_of_one_place();
  for (auto x : pools_of_one_place()) {
    x.place = "b";
    x.name[0] = 'b';
    result.push_back(std::move(x));
  }
  return result;
}

renting_job renting_job_of(double hours, double samples) {
  renting_job result;
  result.id = 1;
  result.budget.deadline = seconds(static_cast<long>(hours * 3600));
  result.submitted_s = begin_s;
  result.samples_left = samples;
  for (std::uint32_t n = 0; n <= 6; ++n)
    result.figures.samples_per_s.push_back(std::pow(n, 0.85));
  return result;
}

/// Of a job of so much, which begins at begin_s.
renting_facts facts_at(double now_s) {
  renting_facts result;
  result.now_s = now_s;
  result.job = renting_job_of(5, 30'000);
  return result;
}

const pool_order& order_for(const renting_order& x, const std::string& pool) {
  return *std::ranges::find(x.pools, pool, &pool_order::name);
}

/// A renter, and a job that begins now, whose speed nobody knows yet.
struct rented_world {
  rented_world() { x.job->figures = {}; }

  /// How many of each pool, so much later.
  std::vector<std::uint32_t> wants(double later_s = 0) {
    x.now_s += later_s;
    order = rents.decide(x);
    return {order_for(order, "a-spot").want, order_for(order, "a-sure").want};
  }

  renter rents{pools_of_one_place(), {}, between_s};
  renting_facts x = facts_at(begin_s);
  renting_order order; ///< the last
};

struct renting : rented_world, testing::Test {};

// What a cloud does: instances come some time after they are wanted, as long as there are any, and go when told.
struct cloud {
  struct life {
    std::string name, pool;
    double asked_s = 0, ready_s = 0;
    bool told_to_go = false;
  };

  void obey(const renting_order& x, double now_s) {
    for (const auto& pool : x.pools) {
      const auto mine = [&](const life& i) { return i.pool == pool.name && !i.told_to_go; };
      auto has = static_cast<std::uint32_t>(std::ranges::count_if(lives, mine));
      for (; has < std::min(pool.want, available[pool.name]); ++has)
        lives.push_back({pool.name + std::to_string(++started), pool.name, now_s, now_s + usual_s});
      while (has > pool.want) { // one that is starting and not wanted any more
        const auto last =
            std::find_if(lives.rbegin(), lives.rend(), [&](const life& i) { return mine(i) && i.ready_s > now_s; });
        if (last == lives.rend())
          break;
        end(std::next(last).base(), now_s);
        --has;
      }
    }
    for (auto& i : lives)
      i.told_to_go |= std::ranges::find(x.let_go, i.name) != x.let_go.end();
  }

  std::vector<life>::iterator end(std::vector<life>::iterator i, double now_s) {
    if (i->ready_s < now_s) // of others the manager does not know
      billed_s[i->pool] += now_s - i->asked_s;
    return lives.erase(i);
  }

  // Those told to go have gone; of those that are too many the oldest are taken away.
  void pass(double now_s) {
    for (auto i = lives.begin(); i != lives.end();)
      i = i->told_to_go ? end(i, now_s) : std::next(i);
    for (const auto& [pool, most] : available)
      while (std::ranges::count(lives, pool, &life::pool) > most)
        end(std::ranges::find(lives, pool, &life::pool), now_s);
  }

  std::vector<rented_instance> there(double now_s) const {
    std::vector<rented_instance> result;
    for (const auto& x : lives)
      if (x.ready_s <= now_s)
        result.push_back({x.name, x.pool, x.ready_s, x.told_to_go});
    return result;
  }

  std::map<std::string, std::uint32_t> available;
  std::vector<life> lives;
  std::map<std::string, double> billed_s;
  unsigned started = 0;
};

// What is there is seen, billed, decided on, and the decision carried out.
renting_order pass_interval(renting_facts& x, renter& rents, ledger& bill, cloud& cloud) {
  cloud.pass(x.now_s);
  x.instances = cloud.there(x.now_s);
  const auto result = rents.decide(x);
  bill.advance(x.now_s);
  std::map<std::string, std::string> living;
  for (const auto& i : x.instances) {
    living[i.name] = i.pool;
    if (!i.leaving)
      bill.begin(i.name, i.pool, *rents.paid_since_s(i.name));
  }
  bill.keep_only(living);
  cloud.obey(result, x.now_s);
  return result;
}

// given: random counts of spot instances, a hook that says what it can, or not, or lies / expected: in time, never more
// than a pool has, never asked for twice, and the ledger says what the cloud does
TEST_F(renting, is_in_time_and_buys_nothing_twice) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    std::mt19937_64 random(seed);
    renter rents(pools_of_one_place(), {}, between_s);
    ledger bill(0, {});
    bill.set_price("a-spot", 1);
    bill.set_price("a-sure", 3);
    cloud cloud;
    cloud.available = {{"a-spot", 3}, {"a-sure", 6}};
    renting_facts x;
    x.job = renting_job_of(4 + static_cast<double>(seed % 3), 30'000);
    const auto speed = x.job->figures.samples_per_s;
    double now_s = begin_s;
    for (; x.job->samples_left > 0 && now_s < begin_s + 10 * 3600; now_s += between_s) {
      if (random() % 10 == 0)
        cloud.available["a-spot"] = static_cast<std::uint32_t>(random() % 7);
      x.now_s = now_s;
      const auto order = pass_interval(x, rents, bill, cloud);
      x.words.clear();
      for (const auto& pool : order.pools) {
        EXPECT_LE(pool.want, 6u);
        EXPECT_LE(pool.have.size(), pool.want);
        if (random() % 3 == 0)
          x.words.push_back({pool.name, std::min(pool.want, cloud.available[pool.name]), ""});
        else if (random() % 20 == 0)
          x.words.push_back({pool.name, 1'000'000, "a lie"});
      }
      for (const auto* pool : {"a-spot", "a-sure"})
        ASSERT_LE(std::ranges::count(cloud.lives, pool, &cloud::life::pool), 6) << "seed " << seed;
      const auto n = std::ranges::count_if(x.instances, [](const auto& i) { return !i.leaving; });
      x.job->samples_left -= between_s * speed[std::min<std::size_t>(static_cast<std::size_t>(n), 6)];
    }
    EXPECT_LE(now_s, begin_s + std::chrono::duration<double>(*x.job->budget.deadline).count() + between_s)
        << "seed " << seed;
    x.job.reset();
    for (int i = 0; i < 3; ++i, now_s += between_s) {
      x.now_s = now_s;
      pass_interval(x, rents, bill, cloud);
    }
    EXPECT_TRUE(cloud.lives.empty()) << "seed " << seed << ": nothing is kept that no job needs";
    for (const auto& [pool, billed_s] : cloud.billed_s)
      EXPECT_NEAR(bill.record().pools.at(pool).hours * 3600, billed_s, 0.02 * billed_s + 4 * between_s)
          << "seed " << seed << ", " << pool;
  }
}

// given: two places with random counts, a price of the way between them / expected: in time; it trains in one place
// at a time, which it leaves when all that it rents elsewhere is there or nothing is left here; the way is paid once a
// move; in the end nothing is left anywhere
TEST_F(renting, moves_between_places) {
  unsigned moves = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    renter rents(pools_of_two_places(), {{"a", "b", 0.5}, {"b", "a", 0.25}}, between_s);
    ledger bill(0, {});
    cloud cloud;
    cloud.available = {{"a-spot", 3}, {"a-sure", 6}, {"b-spot", 3}, {"b-sure", 6}};
    renting_facts x;
    x.job = renting_job_of(4 + static_cast<double>(seed % 3), 30'000);
    x.job->state_gb = 2;
    x.job->has_begun = true;
    const auto speed = x.job->figures.samples_per_s;
    auto place = rents.place();
    bool has_trained = false;
    double now_s = begin_s;
    for (; x.job->samples_left > 0 && now_s < begin_s + 10 * 3600; now_s += between_s) {
      for (const auto* pool : {"a-spot", "b-spot"})
        if (random() % 20 == 0)
          cloud.available[pool] = static_cast<std::uint32_t>(random() % 7);
      x.now_s = now_s;
      const auto order = pass_interval(x, rents, bill, cloud);
      const auto stays = [&](const std::string& where) { // wanted or not, and not told to go
        return std::ranges::count_if(x.instances, [&](const auto& i) {
          return i.pool[0] == where[0] && !i.leaving && std::ranges::find(order.let_go, i.name) == order.let_go.end();
        });
      };
      if (order.place != place) {
        moves += has_trained ? 1 : 0;
        EXPECT_DOUBLE_EQ(order.way_usd, place == "a" ? 1 : 0.5) << "seed " << seed;
        const bool goes_back = order.decision && order.decision->what.place == (place == "a" ? 0u : 1u);
        EXPECT_TRUE(goes_back || stays(place) == 0) << "seed " << seed;
        EXPECT_GT(stays(order.place), 0) << "seed " << seed;
        place = order.place;
      } else {
        EXPECT_EQ(order.way_usd, 0);
      }
      const auto n = stays(place);
      has_trained |= n > 0;
      x.job->samples_left -= between_s * speed[std::min<std::size_t>(static_cast<std::size_t>(n), 6)];
    }
    EXPECT_LE(now_s, begin_s + std::chrono::duration<double>(*x.job->budget.deadline).count() + between_s)
        << "seed " << seed;
    x.job.reset();
    for (int i = 0; i < 3; ++i) {
      x.now_s = now_s += between_s;
      pass_interval(x, rents, bill, cloud);
    }
    EXPECT_TRUE(cloud.lives.empty()) << "seed " << seed;
  }
  EXPECT_GT(moves, 60u);
}

// given: a manager that begins again in the midst of a move / expected: it trains where it trained, though more have
// come elsewhere; where nothing is left of it, elsewhere
TEST_F(renting, goes_on_where_it_trained) {
  const auto find = [&](const std::string& trained_in, bool is_left) {
    renter rents(pools_of_two_places(), {}, between_s, 0, trained_in);
    x.job->has_begun = true;
    x.instances = {{"b1", "b-spot", begin_s - 500}, {"b2", "b-spot", begin_s - 500}};
    if (is_left)
      x.instances.push_back({"a1", "a-spot", begin_s - 900});
    return rents.decide(x).place;
  };
  EXPECT_EQ(find("a", true), "a");
  EXPECT_EQ(find("b", true), "b");
  EXPECT_EQ(find("a", false), "b");
  x.job->budget = {};
  EXPECT_EQ(find("a", false), "b") << "it takes what comes";
}

// given: nothing is known of the job's speed / expected: as few as it begins with, of the cheapest
TEST_F(renting, begins_with_few) {
  x.job->least = 2;
  EXPECT_THAT(wants(), ElementsAre(2, 0));
  EXPECT_THAT(order.why, HasSubstr("until its speed is known"));
}

// given: a job that begins with two, and a hook that has one, then none elsewhere / expected: the other one is asked
// for elsewhere; then what came is kept, said, and the rest asked for again some intervals later
TEST_F(renting, begins_with_what_there_is) {
  x.job->least = 2;
  EXPECT_THAT(wants(), ElementsAre(2, 0));
  x.words = {{"a-spot", 1, "capacity-not-available"}};
  x.instances = {{"i", "a-spot", begin_s + between_s, false}};
  EXPECT_THAT(wants(between_s), ElementsAre(1, 1));
  x.words = {{"a-sure", 0, "quota"}};
  EXPECT_THAT(wants(between_s), ElementsAre(1, 0));
  EXPECT_THAT(order.let_go, ElementsAre());
  EXPECT_THAT(order.why, HasSubstr("1 of the 2 instances that the job begins with"));
  x.words = {};
  EXPECT_EQ(wants(9 * between_s)[0], 2u);
}

// given: a manager that begins again, so that nothing is known of the job's speed, and more instances than it needs to
// begin / expected: they train on; nobody is let go
TEST_F(renting, keeps_what_trains_until_speed_is_known) {
  for (const auto* name : {"i", "j", "k"})
    x.instances.push_back({name, "a-spot", begin_s, false});
  EXPECT_EQ(wants()[0], 3u);
  EXPECT_THAT(order.let_go, ElementsAre());
}

// given: the same with one instance, on demand, as many as the job began with / expected: it trains on, though spot is
// cheaper
TEST_F(renting, keeps_the_only_one_that_trains) {
  x.job->has_begun = true;
  x.instances = {{"i", "a-sure", begin_s, false}};
  EXPECT_THAT(wants(), ElementsAre(0, 1));
  EXPECT_THAT(order.let_go, ElementsAre());
}

// given: spot comes to be had where an instance on demand has just come, as the job began with none / expected: that
// one trains on until the job's speed is known
TEST_F(renting, keeps_what_came_first_until_speed_is_known) {
  x.quotes = {{"a-spot", 1, 0}};
  EXPECT_THAT(wants(), ElementsAre(0, 1));
  x.instances = {{"i", "a-sure", begin_s + between_s, false}};
  x.quotes = {{"a-spot", 1, 6}};
  EXPECT_THAT(wants(between_s), ElementsAre(0, 1));
  EXPECT_THAT(order.let_go, ElementsAre());
  x.job->figures = renting_job_of(5, 30'000).figures;
  EXPECT_GT(wants(between_s)[0], 0u);
}

/// Its job trains on one on demand, and has no use for two.
struct replacing : renting {
  replacing() {
    x = facts_at(begin_s);
    x.job->has_begun = true;
    x.job->figures.samples_per_s = {0, 1};
    x.job->samples_left = 3'600;
    x.instances = {{"i", "a-sure", begin_s, false}};
  }
};

// given: spot that is refused, then asked for again, and comes / expected: what trains stays until then
TEST_F(replacing, waits_for_what_comes) {
  EXPECT_THAT(wants(), ElementsAre(1, 1));
  EXPECT_EQ(order.decision->what, (holding{0, 1, 0}));
  x.words = {{"a-spot", 0, "capacity-not-available"}};
  EXPECT_THAT(wants(between_s), ElementsAre(0, 1));
  x.words = {};
  EXPECT_THAT(wants(10 * between_s), ElementsAre(1, 1));
  EXPECT_THAT(wants(between_s), ElementsAre(1, 1)) << "it is yet to come";
  EXPECT_THAT(order.let_go, ElementsAre());
  x.instances.push_back({"j", "a-spot", x.now_s + 1, false});
  wants(between_s);
  EXPECT_THAT(order.let_go, ElementsAre("i"));
}

// given: money of an hour for no more than one, or a total that comes first / expected: it goes at once
TEST_F(replacing, costs_no_more_than_is_allowed) {
  x.job->budget.usd_per_h = 3;
  wants();
  EXPECT_THAT(order.let_go, ElementsAre("i"));
  renter other(pools_of_one_place(), {}, between_s);
  x.job->budget.usd_per_h.reset();
  x.job->budget.total_usd = 100;
  x.job->budget.total_first = true;
  EXPECT_THAT(other.decide(x).let_go, ElementsAre("i"));
}

// given: a job that begins with two, and whose speed is known from another one / expected: not fewer, whatever is worth
// it, before it has begun
TEST_F(renting, begins_with_enough_though_its_speed_is_known) {
  x.job->figures = renting_job_of(5, 30'000).figures;
  x.job->samples_left = 100;
  x.job->least = 2;
  EXPECT_THAT(wants(), ElementsAre(2, 0));
}

// given: a pool whose instances do not come / expected: after twice its start time another one is asked
TEST_F(renting, asks_elsewhere_for_what_does_not_come) {
  EXPECT_EQ(wants()[0], 1u);
  EXPECT_EQ(wants(2 * usual_s + between_s)[0], 1u);
  EXPECT_THAT(order.missing, testing::IsEmpty());
  EXPECT_THAT(wants(between_s), ElementsAre(0, 1));
  EXPECT_EQ(order.missing["a-spot"], "1 instance asked for did not come within 7m");
  x.instances = {{"late", "a-spot", x.now_s + 1, false}};
  wants(between_s);
  EXPECT_THAT(order.missing, testing::IsEmpty()) << "one has come";
}

// given: instances that say how long their process and machine have been there; one does not, one lies / expected: paid
// for since the machine was booted, if it was for us, else since the process began; else since it was asked for, for
// the usual time at most; for no longer than one is waited for
TEST_F(renting, pays_from_an_instances_own_start) {
  const double joined_s = begin_s + 100, year_s = 31e6;
  const auto began_s = [&](double process_s, double machine_s, std::optional<double> asked_s = begin_s,
                           double earlier_s = 0) {
    return rents.began_s({"i", "a-spot", joined_s, false, process_s, machine_s, earlier_s}, asked_s) - joined_s;
  };
  EXPECT_DOUBLE_EQ(began_s(20, 80), -80) << "its machine was started for us";
  EXPECT_DOUBLE_EQ(began_s(20, 120), -20) << "it stood there before";
  EXPECT_DOUBLE_EQ(began_s(20, year_s), -20);
  EXPECT_DOUBLE_EQ(began_s(20, 0), -20);
  EXPECT_DOUBLE_EQ(began_s(20, 120, {}), -120) << "nobody knows who asked for it: it is young";
  EXPECT_DOUBLE_EQ(began_s(20, year_s, {}), -20);
  EXPECT_DOUBLE_EQ(began_s(year_s, year_s), -(2 * usual_s + between_s)) << "a lie";
  EXPECT_DOUBLE_EQ(began_s(year_s, year_s, {}, 500), -(500 + 2 * usual_s + between_s)) << "another manager had it";
  EXPECT_DOUBLE_EQ(began_s(300, year_s, joined_s - 100, 500), -300) << "and was asked for by it";
  EXPECT_DOUBLE_EQ(began_s(0, 0), -100);
  EXPECT_DOUBLE_EQ(began_s(0, 0, joined_s - 1'000), -usual_s);
  EXPECT_DOUBLE_EQ(began_s(0, 0, {}), 0);
}

// given: more come than are wanted / expected: the newest are let go, and named to the hook once they are gone
TEST_F(renting, gives_back_what_was_not_asked_for) {
  wants();
  x.instances = {{"new", "a-spot", begin_s + 20, false}, {"old", "a-spot", begin_s + 10, false}};
  wants(between_s);
  EXPECT_THAT(order.let_go, ElementsAre("new"));
  EXPECT_THAT(order_for(order, "a-spot").have, ElementsAre("old", "new")) << "nobody ends it before it is released";
  EXPECT_THAT(order_for(order, "a-spot").release, ElementsAre()) << "it is still there";
  x.instances = {{"old", "a-spot", begin_s + 10, false}};
  wants();
  EXPECT_THAT(order_for(order, "a-spot").release, ElementsAre("new"));
}

// given: a job without a budget / expected: nothing is asked for, nothing given back
TEST_F(renting, leaves_a_job_without_budget_alone) {
  x = facts_at(0);
  x.job->budget = {};
  x.instances = {{"one", "a-spot", begin_s, false}};
  EXPECT_THAT(wants(), ElementsAre(1, 0));
  EXPECT_TRUE(order.let_go.empty());
}

// given: an hourly limit below every price, of a job that is yet to begin, and of one whose speed is known / expected:
// nothing is rented, and the reason is the limit
TEST_F(renting, says_that_the_hourly_limit_is_too_low) {
  for (const bool is_known : {false, true}) {
    rented_world w;
    if (is_known)
      w.x = facts_at(begin_s);
    w.x.job->budget.usd_per_h = 0.5;
    EXPECT_THAT(w.wants(), ElementsAre(0, 0));
    EXPECT_THAT(w.order.why, HasSubstr("budget.hourly: $0.50 allow no instance")) << is_known;
  }
}

// given: a deadline that has passed, with and without a known speed / expected: by how much it is late
TEST_F(renting, says_how_late_a_job_is) {
  for (const bool is_known : {false, true}) {
    rented_world w;
    if (is_known)
      w.x = facts_at(begin_s);
    EXPECT_GE(w.wants(6 * 3600)[0], 1u);
    EXPECT_GE(w.order.late_s, 3600);
    EXPECT_THAT(w.order.why, HasSubstr("; late by " + std::string(is_known ? "" : "1h at least"))) << is_known;
  }
}

// given: money and no deadline, or an hourly limit alone / expected: it is rented for; a total stops the job when it is
// spent
TEST_F(renting, rents_for_money_without_a_deadline) {
  x = facts_at(begin_s);
  x.job->budget = {};
  x.job->budget.usd_per_h = 4;
  EXPECT_EQ(wants()[0], 4u);
  x.job->id = 2;
  x.job->budget = {};
  x.job->budget.total_usd = 100;
  EXPECT_GE(wants()[0], 1u);
  x.job->spent_usd = 100;
  wants(between_s);
  EXPECT_TRUE(order.money_is_spent);
}

// given: the money comes first, and not enough is left for an interval / expected: the job is to stop
TEST_F(renting, says_when_the_money_is_spent) {
  x = facts_at(begin_s + 3600);
  x.job->budget.total_usd = 10;
  x.job->budget.total_first = true;
  x.job->spent_usd = 5;
  wants();
  EXPECT_FALSE(order.money_is_spent);
  x.job->spent_usd = 9.99;
  EXPECT_EQ(wants()[0], 0u);
  EXPECT_TRUE(order.money_is_spent);
}

// given: the same of a job that waits, and never began / expected: nothing is rented for it any more
TEST_F(renting, rents_nothing_for_a_job_that_waits_without_money) {
  x.job->budget.total_usd = 10;
  x.job->budget.total_first = true;
  EXPECT_EQ(wants()[0], 1u);
  x.job->spent_usd = 9.999;
  EXPECT_EQ(wants(between_s)[0], 0u);
  EXPECT_TRUE(order.money_is_spent);
}

} // namespace
} // namespace parcae::market

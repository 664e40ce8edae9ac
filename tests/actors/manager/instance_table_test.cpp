#include "actors/manager/instance_table.hpp"
#include "actors/manager/status.hpp"

#include <gmock/gmock.h>

namespace parcae {
namespace {

using namespace std::chrono_literals;

hello greeting(const std::string& name, std::uint64_t life) {
  hello x;
  x.name = name;
  x.life = {life};
  x.host = "127.0.0.1";
  x.port = 1;
  return x;
}

struct instance_table_test : testing::Test {
  instance_table table{10s, 5, {11, 12}};
  instance_table::time_point now{1h};

  std::optional<parcae_error> refusal(const hello& x) {
    const auto joined = table.join(x, now);
    return joined ? std::nullopt : std::optional(joined.error().code);
  }
};

// given: as many living instances of one certificate as it may have, and one more; others of another, and of none /
// expected: that one is refused, with what to do, until one of them is lost; a HELLO again counts no twice
TEST_F(instance_table_test, a_certificate_has_so_many) {
  for (std::uint64_t i = 1; i <= instance_table::max_of_holder; ++i)
    ASSERT_TRUE(table.join(greeting("spot-" + std::to_string(i), i), now, "1A"));
  EXPECT_TRUE(table.join(greeting("spot-1", 1), now, "1A"));
  const auto refused = table.join(greeting("spot-x", 9'000), now, "1A");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, parcae_error::not_permitted);
  EXPECT_THAT(refused.error().details, testing::HasSubstr("its certificate has 1024 instances here"));
  EXPECT_TRUE(table.join(greeting("other", 9'001), now, "1B"));
  EXPECT_TRUE(table.join(greeting("plain", 9'002), now));
  table.lose({"spot-1", {1}}, now);
  EXPECT_TRUE(table.join(greeting("spot-x", 9'000), now, "1A"));
}

// given: roles, and where a gateway says that it answers / expected: what is no role, or no address, is refused
TEST_F(instance_table_test, gateways) {
  auto x = greeting("g", 1);
  x.role = role::gateway;
  x.http = "http://127.0.0.1:8000";
  auto bad = x;
  bad.http = "http://a b";
  EXPECT_EQ(refusal(bad), parcae_error::malformed_request);
  bad.http = std::string(hello::longest_url + 1, 'x');
  EXPECT_EQ(refusal(bad), parcae_error::malformed_request);
  bad = x;
  bad.slots = 2;
  EXPECT_EQ(refusal(bad), parcae_error::malformed_request);
  bad = x;
  bad.role = static_cast<role>(4);
  EXPECT_EQ(refusal(bad), parcae_error::malformed_request);
  EXPECT_EQ(refusal(x), std::nullopt);
}

// given                                   / expected
// a new name                              / joins
// the same life again                     / accepted, not new
// another life of a living name           / duplicate_name
// the lost life                           / joins again, also after its lease
// another life once the first is lost     / joins
// the life it replaced                    / lost_incarnation, also once the other is lost
// a life that another manager welcomed    / lost_incarnation
TEST_F(instance_table_test, names_and_lives) {
  EXPECT_TRUE(table.join(greeting("a", 1), now).value().is_new);
  auto again = table.join(greeting("a", 1), now).value();
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(refusal(greeting("a", 2)), parcae_error::duplicate_name);
  for (auto later : {0h, 1h}) {
    EXPECT_TRUE(table.lose({"a", {1}}, now));
    now += later;
    table.expire(now);
    const auto back = table.join(greeting("a", 1), now).value();
    EXPECT_TRUE(back.is_new);
    EXPECT_TRUE(back.returned);
    EXPECT_EQ(table.find({"a", {1}})->state, instance_state::alive);
  }
  EXPECT_TRUE(table.lose({"a", {1}}, now));
  const auto other = table.join(greeting("a", 2), now).value();
  EXPECT_TRUE(other.is_new);
  EXPECT_FALSE(other.returned);
  EXPECT_EQ(refusal(greeting("a", 1)), parcae_error::lost_incarnation);
  EXPECT_TRUE(table.lose({"a", {2}}, now));
  EXPECT_EQ(refusal(greeting("a", 1)), parcae_error::lost_incarnation);
  auto elsewhere = greeting("b", 3);
  elsewhere.manager_life = 4;
  EXPECT_EQ(refusal(elsewhere), parcae_error::lost_incarnation);
  elsewhere.manager_life = 5;
  EXPECT_EQ(refusal(elsewhere), std::nullopt);
}

// given: lives that managers of the same journal welcomed / expected: those that this one knows of join; one that came
// from a manager which it does not know is not welcome
TEST_F(instance_table_test, who_comes_from_a_later_manager_is_not_for_this_one) {
  auto x = greeting("a", 1);
  x.manager_life = 5;
  x.manager = 13;
  EXPECT_EQ(refusal(x), parcae_error::outdated_manager);
  EXPECT_EQ(table.find({"a", {1}}), nullptr);
  x.manager = 12;
  EXPECT_EQ(refusal(x), std::nullopt);
  auto y = greeting("b", 2);
  y.manager_life = 5;
  y.manager = 11;
  EXPECT_EQ(refusal(y), std::nullopt);
}

// given / expected: what makes no sense is refused by its own error
TEST_F(instance_table_test, malformed_greetings) {
  auto x = greeting("a", 1);
  x.protocol = protocol_version + 1;
  EXPECT_EQ(refusal(x), parcae_error::wrong_protocol);
  for (const auto& name : {std::string(), std::string("a b"), std::string("a/b"), std::string(101, 'a')})
    EXPECT_EQ(refusal(greeting(name, 1)), parcae_error::malformed_request) << name;
  x = greeting("a", 1);
  x.slots = 0;
  EXPECT_EQ(refusal(x), parcae_error::malformed_request);
  x = greeting("a", 1);
  x.port = 0;
  EXPECT_EQ(refusal(x), parcae_error::malformed_request);
  x = greeting(std::string(10'000'000, 'a'), 1);
  x.protocol = protocol_version + 1;
  EXPECT_EQ(refusal(x), parcae_error::malformed_request) << "a name is not said before it was looked at";
}

// given: what a HELLO says of itself, which people read and nodes dial / expected: bounded, printable, and on loopback
TEST_F(instance_table_test, greetings_are_bounded) {
  auto x = greeting("a", 1);
  for (const auto& processor : {std::string(513, 'x'), std::string(20'000'000, 'x'), std::string("a\x1b[2J"),
                                std::string("a\nb"), std::string("\xe2\x80\xae")}) {
    x.processor = processor;
    EXPECT_EQ(refusal(x), parcae_error::malformed_request);
  }
  x = greeting("a", 1);
  x.memory.bytes = (std::uint64_t{1} << 50) + 1;
  EXPECT_EQ(refusal(x), parcae_error::malformed_request);
  x = greeting("a", 1);
  x.slots = 1025;
  EXPECT_EQ(refusal(x), parcae_error::malformed_request);
  x = greeting("a", 1);
  for (const auto* host : {"", "192.168.1.1", "0.0.0.0", "128.0.0.1", "localhost", "evil.example", "::", "127.0.0.1 ",
                           "::ffff:192.168.1.1", "127.1"}) {
    x.host = host;
    EXPECT_EQ(refusal(x), parcae_error::malformed_request) << host;
  }
  std::uint64_t life = 1;
  for (const auto* host : {"127.0.0.1", "127.1.2.3", "::1"}) {
    ++life;
    x = greeting("a" + std::to_string(life), life);
    x.host = host;
    x.processor = std::string(512, 'x');
    x.memory.bytes = std::uint64_t{1} << 50;
    EXPECT_EQ(refusal(x), std::nullopt) << host;
  }
}

// given: a table of a cluster with certificates / expected: whatever can be dialled, and nothing else
TEST_F(instance_table_test, with_certificates_hosts_are_anywhere) {
  instance_table anywhere(10s, 0, {}, true);
  std::uint64_t life = 0;
  const auto joins = [&](const std::string& host) {
    ++life;
    auto x = greeting("a" + std::to_string(life), life);
    x.host = host;
    return anywhere.join(x, now).has_value();
  };
  for (const auto& good : {std::string("192.168.1.1"), std::string("spot-7.example"), std::string("fd00::7"),
                           std::string("127.0.0.1"), std::string(253, 'a')})
    EXPECT_TRUE(joins(good)) << good;
  for (const auto& bad : {std::string(), std::string("0.0.0.0"), std::string("::"), std::string("a b"),
                          std::string("a\nb"), std::string("a:b"), std::string("a/b"), std::string(254, 'a')})
    EXPECT_FALSE(joins(bad)) << bad;
}

// given: a loss / expected: declared once, listed for the lease
TEST_F(instance_table_test, losses_are_edge_triggered) {
  table.join(greeting("a", 1), now);
  EXPECT_TRUE(table.lose({"a", {1}}, now));
  EXPECT_FALSE(table.lose({"a", {1}}, now));
  EXPECT_FALSE(table.lose({"b", {1}}, now));
  table.expire(now + 9999ms);
  ASSERT_NE(table.find({"a", {1}}), nullptr);
  EXPECT_EQ(table.find({"a", {1}})->state, instance_state::lost);
  table.expire(now + 10s);
  EXPECT_EQ(table.find({"a", {1}}), nullptr);
}

// given: several notices / expected: the earliest end counts, but not by less than a second; lost and unknown lives
// have none
TEST_F(instance_table_test, the_earliest_notice_counts) {
  table.join(greeting("a", 1), now);
  EXPECT_TRUE(table.leave({"a", {1}}, now + 10s));
  EXPECT_FALSE(table.leave({"a", {1}}, now + 20s));
  EXPECT_TRUE(table.leave({"a", {1}}, now + 5s));
  EXPECT_FALSE(table.leave({"a", {1}}, now + 4'001ms));
  EXPECT_EQ(table.find({"a", {1}})->expires, now + 5s);
  EXPECT_TRUE(table.leave({"a", {1}}, now + 4s));
  EXPECT_FALSE(table.leave({"a", {2}}, now));
  table.lose({"a", {1}}, now);
  EXPECT_FALSE(table.leave({"a", {1}}, now));
}

// given: HELLO with a warning, the same, another, none; then a notice with a reason, HELLO without a warning /
// expected: each change is told once, and the reason stays; one that is too long is refused
TEST_F(instance_table_test, warnings_are_edge_triggered) {
  auto x = greeting("a", 1);
  const auto said = [&](const std::string& warning) {
    x.warning = warning;
    return table.join(x, now)->warns;
  };
  const auto known = [&] { return table.find({"a", {1}})->facts.warning; };
  EXPECT_TRUE(said("rebalance"));
  EXPECT_FALSE(said("rebalance"));
  EXPECT_TRUE(said("maintenance"));
  EXPECT_EQ(known(), "maintenance");
  EXPECT_TRUE(said(""));
  EXPECT_EQ(known(), "");
  EXPECT_FALSE(said(""));
  EXPECT_TRUE(table.leave({"a", {1}}, now + 10s, "preempted by command"));
  EXPECT_FALSE(said(""));
  EXPECT_EQ(known(), "preempted by command");
  x.warning.assign(hello::longest_warning + 1, 'x');
  EXPECT_EQ(refusal(x), parcae_error::malformed_request);
}

// given: a life that says how its GPUs are, again and again / expected: the last is known, and nobody is warned; more
// than it has slots, or than a machine can have, and texts without end, each or all together, are refused
TEST_F(instance_table_test, knows_how_gpus_are) {
  auto x = greeting("a", 1);
  x.gpus = {{.place = "cuda:0", .celsius = 50, .throttled = {}, .problem = {}}};
  EXPECT_TRUE(table.join(x, now)->is_new);
  x.gpus[0].celsius = 60;
  EXPECT_FALSE(table.join(x, now)->warns);
  EXPECT_EQ(table.find({"a", {1}})->facts.gpus, x.gpus);
  EXPECT_EQ(status_of(*table.find({"a", {1}}), now).gpus, x.gpus);
  for (auto* text : {&x.gpus[0].place, &x.gpus[0].throttled, &x.gpus[0].problem}) {
    text->assign(gpu_state::longest_text + 1, 'x');
    EXPECT_EQ(refusal(x), parcae_error::malformed_request);
    text->pop_back();
    EXPECT_FALSE(refusal(x));
  }
  x.slots = 1024;
  x.gpus.assign(64, {.place = std::string(200, 'p'), .throttled = std::string(200, 't'), .problem = {}});
  EXPECT_FALSE(table.join(x, now)) << "of one instance as much as of a thousand";
  x.gpus.assign(129, {.place = "cuda:0", .throttled = {}, .problem = {}});
  EXPECT_FALSE(table.join(x, now)) << "no machine has so many";
  x.gpus.assign(128, {.place = "cuda:0", .throttled = "temperature, power, hardware", .problem = {}});
  EXPECT_TRUE(table.join(x, now));
  x.slots = 1;
  x.gpus.resize(x.slots + 1);
  EXPECT_EQ(refusal(x), parcae_error::malformed_request);
}

TEST_F(instance_table_test, refuses_machines_that_make_no_sense) {
  auto x = greeting("a", 1);
  x.machine = {std::string(machine_facts::longest_id, 'x'), 2};
  EXPECT_FALSE(refusal(x));
  x = greeting("b", 2);
  x.machine = {std::string(machine_facts::longest_id + 1, 'x'), 2};
  EXPECT_EQ(refusal(x), parcae_error::malformed_request);
  x.machine = {"x", 1'000'000};
  EXPECT_EQ(refusal(x), parcae_error::malformed_request);
}

} // namespace
} // namespace parcae

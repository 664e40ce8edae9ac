// The journal in real etcd servers, and who leads.

#include "protocols/base/digest.hpp"
#include "runtime/journal/etcd_journal.hpp"
#include "tests/support/etcd_servers.hpp"
#include "tests/support/names.hpp"
#include "tests/support/recorded.hpp"
#include "tests/support/thrown_by.hpp"

#include <csignal>
#include <future>

namespace parcae {
namespace {

/// One that leads, stands by, or failed to.
struct candidate {
  std::promise<void> elected;
  std::promise<std::string> failure;
  std::promise<std::string> obstacle;
  std::future<void> leads = elected.get_future();
  std::future<std::string> failed = failure.get_future();
  std::future<std::string> waits = obstacle.get_future(); ///< the first thing that keeps it from leading
  std::optional<etcd_leadership> leadership;

  candidate(const std::string& store, const std::string& who, bool standby, lead_limits limits = {}) :
      candidate(parse_etcd_place(store), who, standby, limits) {}

  candidate(const etcd_place& store, const std::string& who, bool standby, lead_limits limits = {}) {
    leadership.emplace(store, who, standby,
                       lead_listener{.leads = [this] { elected.set_value(); },
                                     .failed = [this](std::string why) { failure.set_value(std::move(why)); },
                                     .waits =
                                         [this, first = true](std::string why) mutable {
                                           if (std::exchange(first, false))
                                             obstacle.set_value(std::move(why));
                                         }},
                       limits);
  }
};

struct etcd_journal : testing::Test {
  static constexpr auto patience = 30s; ///< etcd is up after a second, on a quiet machine
  static constexpr lead_limits busy_machine{.lease = 20s, .step_down = 19s}; ///< where members elect for long

  static std::vector<char> bytes(const std::string& x) { return {x.begin(), x.end()}; }

  static std::map<std::string, std::string> content(journal_store& x) {
    std::map<std::string, std::string> result;
    for (const auto& e : x.read())
      result[e.name] = {e.bytes.begin(), e.bytes.end()};
    return result;
  }

  static bool happened(const auto& x, std::chrono::milliseconds limit = patience) {
    return x.wait_for(limit) == std::future_status::ready;
  }

  static std::string problem_of_write(journal_store& x) {
    return thrown_by([&] { x.write({{"a", bytes("not by this one")}}); });
  }

  void SetUp() override {
    if (!std::filesystem::exists(etcd_program))
      GTEST_SKIP() << "no " << etcd_program << ": ./deploy/setup unpacks it";
  }
};

// given: values written, replaced and taken out by a leader / expected: the next one, which leads as soon as the first
// has gone, finds what was written last; clusters of other names in the same etcd have nothing of it
TEST_F(etcd_journal, has_what_was_written_last) {
  const etcd_servers servers(1);
  candidate first(servers.store(), "first", true);
  ASSERT_TRUE(happened(first.leads));
  candidate other(servers.store("other"), "other", true);
  ASSERT_TRUE(happened(other.leads));
  const auto binary = std::string("\0\xff/+", 4) + std::string(300'000, 'x');
  const auto x = first.leadership->journal();
  x->write({{"a", bytes("1")}, {"b", bytes(binary)}, {"d", bytes("1")}});
  x->write({{"a", bytes("2")}, {"c", bytes("3")}, {"d", {}}});
  std::map<std::string, std::string> expected{{"a", "2"}, {"b", binary}, {"c", "3"}};
  EXPECT_EQ(content(*x), expected);
  std::vector<journal_entry> more; // more than a page, and than a transaction takes
  for (int i = 0; i < 300; ++i)
    more.push_back({(i % 2 ? "job/7/losses/" : "job/70/") + std::to_string(i), bytes(std::to_string(i))});
  for (std::size_t i = 0; i < more.size(); i += 100)
    x->write({more.begin() + static_cast<std::ptrdiff_t>(i), more.begin() + static_cast<std::ptrdiff_t>(i) + 100});
  for (const auto& y : more)
    if (y.name.starts_with("job/70/"))
      expected[y.name] = {y.bytes.begin(), y.bytes.end()};
  x->write(erased({7}));
  EXPECT_EQ(content(*x), expected);
  candidate second(servers.store(), "second", true);
  EXPECT_FALSE(happened(second.leads, 2s));
  first.leadership.reset();
  ASSERT_TRUE(happened(second.leads, 5s));
  EXPECT_EQ(content(*second.leadership->journal()), expected);
  EXPECT_TRUE(content(*other.leadership->journal()).empty());
}

// given: what every older build had in etcd / expected: all jobs, as they were
TEST_F(etcd_journal, of_older_builds_is_read) {
  const etcd_servers servers(1);
  for (const auto& from : recordings()) {
    SCOPED_TRACE(from);
    const auto name = "recorded" + from.filename().string();
    const auto place = parse_etcd_place(servers.store(name));
    etcd_client client(place);
    const auto was = json_in(from / "etcd_range.json");
    for (const auto& x : was.at("kvs").as_array()) {
      const auto key = from_base64(x.at("key").as_string()).value();
      ASSERT_TRUE(key.starts_with("/recorded/journal/"));
      const auto now = to_base64(place.prefix + key.substr(std::string_view("/recorded/").size()));
      client.ask("/v3/kv/put", {{"key", now}, {"value", x.at("value")}}, patience);
    }
    candidate leader(servers.store(name), "leader", true);
    ASSERT_TRUE(happened(leader.leads));
    expect_recorded_jobs(recovered_from(leader.leadership->journal()->read()), from / "etcd_status.json");
  }
}

// given: an etcd whose quota is used up / expected: a write says so and what to do, what was there stays; one that
// would lead says it too, as does one that stands by, which leads once there is room
TEST_F(etcd_journal, a_full_etcd_leaves_what_was) {
  etcd_servers servers(1, {}, {"--quota-backend-bytes", "4000000"});
  candidate leader(servers.store(), "leader", true);
  ASSERT_TRUE(happened(leader.leads));
  const auto x = leader.leadership->journal();
  x->write({{"b", bytes("1")}});
  std::string why;
  for (int i = 0; i < 10 && why.empty(); ++i)
    try {
      x->write({{"a", bytes(std::string(1'000'000, 'x'))}, {"b", bytes(std::to_string(i))}});
    } catch (const std::runtime_error& e) {
      why = e.what();
    }
  EXPECT_THAT(why, HasSubstr("database space exceeded"));
  EXPECT_THAT(why, HasSubstr("etcdctl alarm disarm"));
  const auto left = content(*x);
  EXPECT_EQ(left.at("a").size(), 1'000'000u);
  leader.leadership.reset();
  candidate impatient(servers.store(), "impatient", false);
  ASSERT_TRUE(happened(impatient.failed));
  EXPECT_THAT(impatient.failed.get(), HasSubstr("etcdctl alarm disarm"));
  candidate patient(servers.store(), "patient", true);
  ASSERT_TRUE(happened(patient.waits));
  EXPECT_THAT(patient.waits.get(), HasSubstr("etcdctl alarm disarm"));
  EXPECT_FALSE(happened(patient.leads, 0s));

  etcd_client client(parse_etcd_place(servers.store()));
  const auto now = client.ask("/v3/kv/range", {{"key", to_base64("any")}}, patience);
  client.ask("/v3/kv/compaction", {{"revision", now.at("header").at("revision")}, {"physical", true}}, patience);
  client.ask("/v3/maintenance/defragment", {}, patience);
  const auto alarms = client.ask("/v3/maintenance/alarm", {}, patience);
  const auto member = alarms.at("alarms").at(0).at("memberID");
  client.ask("/v3/maintenance/alarm", {{"action", "DEACTIVATE"}, {"memberID", member}, {"alarm", "NOSPACE"}}, patience);
  ASSERT_TRUE(happened(patient.leads));
  EXPECT_EQ(content(*patient.leadership->journal()), left);
}

// given: somebody leads / expected: one that is not to stand by is told who
TEST_F(etcd_journal, one_leads) {
  const etcd_servers servers(1);
  candidate first(servers.store(), "the first, on its host", true);
  ASSERT_TRUE(happened(first.leads));
  candidate second(servers.store(), "second", false);
  ASSERT_TRUE(happened(second.failed));
  EXPECT_THAT(second.failed.get(), HasSubstr("another manager leads (the first, on its host)"));
  EXPECT_FALSE(happened(first.failed, 0s));
}

// given: a leader that stands still, so that its lease ends / expected: the one that stands by leads once it has ended,
// not before; the former one can write nothing, and notices by itself
TEST_F(etcd_journal, a_stale_leader_writes_nothing) {
  const etcd_servers servers(1);
  candidate stale(servers.store(), "stale", true, {.lease = 2s, .step_down = 1s, .renewal = 4s});
  ASSERT_TRUE(happened(stale.leads));
  const auto written = stale.leadership->journal();
  written->write({{"a", bytes("1")}});
  const auto began = std::chrono::steady_clock::now();
  candidate next(servers.store(), "next", true);
  ASSERT_TRUE(happened(next.leads));
  EXPECT_GT(std::chrono::steady_clock::now() - began, 1s);
  next.leadership->journal()->write({{"a", bytes("2")}});
  EXPECT_THAT(problem_of_write(*written), HasSubstr("another manager leads"));
  EXPECT_EQ(content(*next.leadership->journal()).at("a"), "2");
  ASSERT_TRUE(happened(stale.failed));
  EXPECT_THAT(stale.failed.get(), HasSubstr("another manager may lead"));
}

// given: three members, each killed and started again in turn / expected: the same one leads, and what it writes is
// kept
TEST_F(etcd_journal, a_member_may_die) {
  etcd_servers servers(3);
  candidate leader(servers.store(), "leader", true, busy_machine);
  ASSERT_TRUE(happened(leader.leads));
  const auto x = leader.leadership->journal();
  x->write({{"a", bytes("0")}});
  for (int i = 0; i < 3; ++i) {
    servers.member(i).signal(SIGKILL);
    ASSERT_TRUE(servers.member(i).wait(5s));
    // The others may have to elect a leader of theirs: that is the time a write may take.
    x->write({{"a", bytes(std::to_string(i + 1))}});
    servers.start(i);
    etcd_client({{servers.where(i)}, "/"}).ask("/v3/kv/range", {{"key", to_base64("a")}}, patience);
    ASSERT_FALSE(happened(leader.failed, 0s)) << leader.failed.get();
  }
  EXPECT_EQ(content(*x).at("a"), "3");
}

// given: etcd is gone / expected: its leader steps down before its lease ends, and then asks it nothing more; one that
// stands by does so until etcd is back; one that is not to stand by says what is wrong
TEST_F(etcd_journal, etcd_may_be_away) {
  etcd_servers servers(1);
  candidate leader(servers.store(), "leader", true);
  ASSERT_TRUE(happened(leader.leads));
  const auto journal = leader.leadership->journal();
  servers.member(0).signal(SIGKILL);
  ASSERT_TRUE(servers.member(0).wait(5s));
  const auto gone = std::chrono::steady_clock::now();
  candidate patient(servers.store(), "patient", true);
  ASSERT_TRUE(happened(leader.failed, 10s));
  EXPECT_LT(std::chrono::steady_clock::now() - gone, lead_limits{}.lease);
  EXPECT_THAT(leader.failed.get(), HasSubstr("its lease could not be renewed (etcd at 127.0.0.1:"));
  EXPECT_THAT(problem_of_write(*journal), HasSubstr("term is over"));
  candidate impatient(servers.store(), "impatient", false);
  ASSERT_TRUE(happened(impatient.failed));
  EXPECT_THAT(impatient.failed.get(), HasSubstr("Connection refused"));
  EXPECT_FALSE(happened(patient.leads, 0s));
  servers.start(0);
  EXPECT_TRUE(happened(patient.leads));
}

// given: etcd with TLS, which asks for certificates; its authority and one of them / expected: leads, writes, also when
// a member dies; certificates that are replaced are read with the next connection given: no certificate, another
// authority, another name than the certificate's, no TLS / expected: refused, in a line
// given: files that are replaced / expected: read with the next connection
TEST_F(etcd_journal, speaks_tls) {
  const scratch_folder folder("etcd-tls");
  const auto good = make_etcd_certificates(folder.path() / "good"),
             other = make_etcd_certificates(folder.path() / "other");
  etcd_servers servers(3, good);
  auto place = parse_etcd_place(servers.store());
  place.authority = good.authority;
  place.identity = folder.path() / "identity.pem";
  std::filesystem::copy_file(good.client, place.identity);
  candidate leader(place, "leader", true, busy_machine);
  ASSERT_TRUE(happened(leader.leads));
  const auto x = leader.leadership->journal();
  x->write({{"a", bytes("1")}});
  servers.member(0).signal(SIGKILL);
  x->write({{"a", bytes("2")}});
  EXPECT_EQ(content(*x).at("a"), "2");
  EXPECT_FALSE(happened(leader.failed, 0s)) << leader.failed.get();

  const auto problem_with = [&](etcd_place changed) {
    return thrown_by([&] { etcd_client(std::move(changed)).ask("/v3/kv/range", {{"key", to_base64("a")}}, 1s); });
  };
  place.members = {servers.where(1)};
  EXPECT_EQ(problem_with(place), "");
  auto bare = place, foreign = place, misled = place, named = place, plain = place, missing = place;
  bare.identity.clear();
  EXPECT_THAT(problem_with(bare), HasSubstr("if it asks for a certificate: --store-identity"));
  foreign.identity = other.client;
  EXPECT_THAT(problem_with(foreign), HasSubstr("etcd at 127.0.0.1:"));
  misled.authority = other.authority;
  EXPECT_THAT(problem_with(misled), HasSubstr("certificate verify failed"));
  named.members[0].host = "127.1"; // a name of 127.0.0.1, for which the certificate is not
  EXPECT_THAT(problem_with(named), HasSubstr("certificate verify failed"));
  plain.tls = false;
  EXPECT_NE(problem_with(plain), "");
  missing.identity = folder.path() / "nothing.pem";
  EXPECT_THAT(problem_with(missing), HasSubstr("nothing.pem"));

  // A client that there is already reads what has been replaced.
  std::filesystem::copy_file(other.client, place.identity, std::filesystem::copy_options::overwrite_existing);
  etcd_client renewed(place);
  EXPECT_THROW(renewed.ask("/v3/kv/range", {{"key", to_base64("a")}}, 300ms), std::runtime_error);
  std::filesystem::copy_file(good.client, place.identity, std::filesystem::copy_options::overwrite_existing);
  EXPECT_NO_THROW(renewed.ask("/v3/kv/range", {{"key", to_base64("a")}}, 2s));
}

// given / expected: what --store takes, and what not
TEST(etcd_place, is_read_from_a_line) {
  const auto x = parse_etcd_place("etcd://10.0.0.2:2379,[::1]:2380,etcd.example:1/my-cluster");
  ASSERT_EQ(x.members.size(), 3u);
  EXPECT_EQ(x.members[1].host, "::1");
  EXPECT_EQ(x.members[2].port, 1);
  EXPECT_EQ(x.prefix, "/my-cluster/");
  EXPECT_EQ(parse_etcd_place("etcd://a:1").prefix, "/parcae/");
  EXPECT_FALSE(x.tls);
  for (const auto* same : {"etcds://10.0.0.2:2379,[::1]:2380/my-cluster", "etcd://a:1/b"})
    EXPECT_EQ(to_string(parse_etcd_place(same)), same);
  EXPECT_TRUE(parse_etcd_place("etcds://a:1").tls);
  for (const auto* bad : {"", "http://a:1", "etcd://", "etcd://a", "etcd://a:1,", "etcd://a:1/", "etcd://a:1/b/c",
                          "etcd://a:70000", "etcd://,a:1", "etcdss://a:1"})
    EXPECT_THROW(parse_etcd_place(bad), std::invalid_argument) << bad;
}

} // namespace
} // namespace parcae

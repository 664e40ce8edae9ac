// Where steps spend their time, measured on real processes: what is slow shows where it is slow.

#include "protocols/trust/authority.hpp"
#include "runtime/lab/stall_runs.hpp"
#include "tests/support/cluster.hpp"
#include "tests/support/host_network.hpp"

#include <boost/json.hpp>

#include <iostream>
#include <map>

namespace parcae {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

struct stalls_test : cluster_test {
  void SetUp() override {}

  /// Trains a quarter of a million parameters, in a few milliseconds.
  static job_specification job() {
    job_specification x;
    x.name = "stalls";
    x.model = {"gpt", 4, 64, 2, 16, 256, 0, false};
    x.data = {.kind = "synthetic"};
    x.global_batch = 8;
    x.micro_batch = 2;
    x.keeper_every = 1'000'000; // nothing else on the link
    return x;
  }

  static step_stall stall_of(const std::vector<stall_run>& runs, const std::string& kind) {
    for (const auto& x : stalls_of(runs))
      if (x.kind == kind)
        return x;
    ADD_FAILURE() << "no " << kind;
    return {};
  }

  static void expect_explained(const step_stall& x) {
    EXPECT_TRUE(x.explained) << x.kind << ": " << x.by_runs_ms << " ms by runs, " << total_ms(x.by_cause)
                             << " ms by causes";
  }

  /// The network stall of two replicas, as it is by the link's rate: in a reduction each sends all gradients once.
  static void expect_network_stall(const std::vector<stall_run>& runs, double bytes_per_ms) {
    const auto x = stall_of(runs, "network");
    const auto expected = static_cast<double>(runs.back().gradient_bytes) / bytes_per_ms;
    std::cout << "network: " << x.by_runs_ms << " ms by runs, " << x.by_cause.reduction_ms << " ms of reduction, "
              << expected << " ms by the link's rate\n";
    EXPECT_NEAR(x.by_runs_ms, expected, 0.2 * expected);
    EXPECT_NEAR(x.by_cause.reduction_ms, expected, 0.2 * expected);
    expect_explained(x);
  }
};

constexpr int link_mbit = 40;
constexpr double link_bytes_per_ms = link_mbit * 125.0;

// given: two replicas on one host, then on two whose links the kernel limits (tbf) / expected: the network stall is the
// gradients' bytes over the link's rate, and it is the reduction's
TEST_F(stalls_test, a_limited_link_is_network_stall) {
  host_network network(4);
  if (!network.problem().empty())
    GTEST_SKIP() << network.problem();
  const auto bundles = folder.path() / "certificates";
  make_authority(bundles, std::chrono::days(1));
  for (const auto& [role, name] :
       {std::pair(membership::manager, "manager"), std::pair(membership::operator_, "operator"),
        std::pair(membership::keeper, "keeper"), std::pair(membership::node, "n0"), std::pair(membership::node, "n1")})
    issue_bundle(bundles, role, name, std::chrono::days(1));
  const std::map<std::string, int> hosts{{"n0", 1}, {"n1", 2}, {"keeper", 3}};
  for (const auto& [name, host] : hosts)
    network.set_rate(host, link_mbit, 1s); // so that nothing is dropped
  network.enter(0);
  std::vector<stall_run> runs;
  for (const bool over_hosts : {false, true}) {
    stall_place place{.over_hosts = over_hosts, .ground = {}, .arguments = {}};
    place.ground.manager = {host_network::address(0), 4242};
    place.ground.bundles = bundles;
    place.ground.before = [&](const std::string& name) {
      return network.command_on(over_hosts && hosts.contains(name) ? hosts.at(name) : 0);
    };
    stall_cluster cluster(place, 2);
    runs.push_back(cluster.measure(job(), 2, 1, sample_origin::made_up, 2s));
  }
  network.enter(-1);
  expect_network_stall(runs, link_bytes_per_ms);
}

// given: two replicas on one host, then as if on hosts with links of that rate / expected: as above
TEST_F(stalls_test, a_link_made_up_is_like_a_real_one) {
  std::vector<stall_run> runs;
  for (const bool over_hosts : {false, true}) {
    stall_place place{.over_hosts = over_hosts, .ground = {}, .arguments = {}};
    if (over_hosts)
      place.arguments = {"--link", std::to_string(link_mbit) + "Mb/s"};
    stall_cluster cluster(place, 2);
    runs.push_back(cluster.measure(job(), 2, 1, sample_origin::made_up, 2s));
  }
  expect_network_stall(runs, link_bytes_per_ms);
}

// given: a disk that takes 20 ms for each read, as for samples that are cold, and one that does not / expected: the
// fetch stall is that of a step's reads, less what is computed meanwhile, and it is waiting for data
TEST_F(stalls_test, a_slow_disk_is_data_stall) {
  if (std::string_view(PARCAE_SLOW_DISK).empty())
    GTEST_SKIP() << "nothing can be preloaded before a sanitizer";
  constexpr double read_ms = 20;
  const auto disk = folder.path() / "disk";
  std::filesystem::create_directory(disk);
  std::ofstream{disk / "tokens"};
  std::filesystem::resize_file(disk / "tokens", 64 << 20); // more than is held in memory
  auto on_disk = job();
  on_disk.data = {.kind = "tokens", .path = disk / "tokens"};
  stall_place place;
  place.ground.before = [&](const std::string& name) {
    return name == "n0" ? std::vector<std::string>{"/usr/bin/env", "LD_PRELOAD=" PARCAE_SLOW_DISK,
                                                   "PARCAE_SLOW_DISK=" + disk.string()}
                        : std::vector<std::string>{};
  };
  stall_cluster cluster(place, 1);
  std::vector<stall_run> runs{cluster.measure(on_disk, 1, 1, sample_origin::cached, 1s)};
  std::ofstream{disk.string() + ".slow"};
  runs.push_back(cluster.measure(on_disk, 1, 1, sample_origin::cold, 2s));
  const auto x = stall_of(runs, "fetch");
  const auto expected = on_disk.global_batch * read_ms - runs.front().step_ms; // the next samples are read meanwhile
  std::cout << "fetch: " << x.by_runs_ms << " ms by runs, " << x.by_cause.data_ms << " ms of data, " << expected
            << " ms by the disk\n";
  EXPECT_NEAR(x.by_runs_ms, expected, 0.2 * expected);
  EXPECT_NEAR(x.by_cause.data_ms, expected, 0.2 * expected);
  expect_explained(x);
}

// given: the command, for a job whose samples are made up / expected: a run for each shape on one host and over hosts,
// stalls that causes explain; a table without --json; wrong usage in one line
TEST_F(stalls_test, the_command_tells_them) {
  const auto file = folder.path() / "job.toml";
  std::ofstream(file)
      << "[job]\nname = \"stalls\"\nsteps = 10\n[model]\nlayers = 3\nwidth = 32\n[data]\nkind = \"synthetic\"\n";
  const auto command = [&](std::vector<std::string> more) {
    std::vector<std::string> all{"profile", file, "--stalls", "--duration", "700ms"};
    all.insert(all.end(), more.begin(), more.end());
    return run(all, false);
  };
  const auto x = command({"--link", "100Mb/s", "--json"});
  ASSERT_EQ(x.status, 0) << x.error;
  const auto told = boost::json::parse(x.output);
  EXPECT_EQ(told.at("runs").as_array().size(), 7u);
  EXPECT_EQ(told.at("link_bytes_per_s"), 12.5e6);
  std::map<std::string, int> kinds;
  for (const auto& stall : told.at("stalls").as_array())
    ++kinds[std::string(stall.at("kind").as_string())];
  EXPECT_THAT(kinds, testing::ElementsAre(testing::Pair("interconnect", 3), testing::Pair("network", 3)));
  EXPECT_THAT(x.error, HasSubstr("measuring 2×2 as if over hosts, samples made up"));
  EXPECT_THAT(command({"--link", "fast"}).error, HasSubstr("must be like"));
  EXPECT_EQ(run({"profile", file, "--link", "1Gb/s"}, false).status, 2);
  EXPECT_THAT(run({"profile", file}, false).error, HasSubstr("--output or --stalls is required"));
}

} // namespace
} // namespace parcae

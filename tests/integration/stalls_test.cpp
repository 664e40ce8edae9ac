// Where steps spend their time, measured on real processes: what is slow shows where it is slow.

#include "protocols/trust/authority.hpp"
#include "runtime/lab/stall_runs.hpp"
#include "tests/support/cluster.hpp"
#include "tests/support/host_network.hpp"

#include <boost/json.hpp>

#include <linux/magic.h>
#include <sys/vfs.h>

#include <cmath>
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

  static std::map<std::string, int> kinds_in(const boost::json::value& told) {
    std::map<std::string, int> result;
    for (const auto& x : told.at("stalls").as_array())
      ++result[std::string(x.at("kind").as_string())];
    return result;
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

const boost::json::value& stall_in(const boost::json::value& told, const std::string& kind) {
  for (const auto& x : told.at("stalls").as_array())
    if (x.at("kind").as_string() == kind.c_str() && x.at("width") == 1 && x.at("depth") == 1)
      return x;
  throw std::runtime_error("no " + kind);
}

/// How that stall differs by more than a fifth from what the reads cost; empty if it does not.
std::string difference_of(const std::string& kind, const boost::json::value& told, double expected_ms) {
  const auto& stall = stall_in(told, kind);
  const auto by_runs = stall.at("by_runs_ms").to_number<double>(),
             by_data = stall.at("causes").at("data_ms").to_number<double>();
  std::cout << kind << ": " << by_runs << " ms by runs, " << by_data << " ms of data, " << expected_ms
            << " ms by the reads\n";
  const auto is_near = [&](double ms) { return std::abs(ms - expected_ms) <= 0.2 * expected_ms; };
  if (is_near(by_runs) && is_near(by_data) && stall.at("explained").as_bool())
    return {};
  return kind + ", " + std::to_string(expected_ms) + " ms by the reads: " + boost::json::serialize(stall) + "\n";
}

constexpr int link_mbit = 40;
constexpr double link_bytes_per_ms = link_mbit * 125.0;

// given: two replicas on one host, then as if on hosts with links of some rate, then on two whose links the kernel
// limits to it (tbf) / expected: the network stall is the gradients' bytes over that rate, and it is the reduction's
TEST_F(stalls_test, a_link_is_network_stall) {
  const auto bundles = folder.path() / "certificates";
  make_authority(bundles, std::chrono::days(1));
  for (const auto& [role, name] :
       {std::pair(membership::manager, "manager"), std::pair(membership::operator_, "operator"),
        std::pair(membership::keeper, "keeper"), std::pair(membership::node, "n0"), std::pair(membership::node, "n1")})
    issue_bundle(bundles, role, name, std::chrono::days(1));
  host_network network(4);
  const bool has_network = network.problem().empty();
  const std::map<std::string, int> hosts{{"n0", 1}, {"n1", 2}, {"keeper", 3}};
  if (has_network) {
    for (const auto& [name, host] : hosts)
      network.set_rate(host, link_mbit, 1s); // so that nothing is dropped
    network.enter(0);
  }
  const auto measured = [&](bool on_hosts, std::vector<std::string> arguments) {
    stall_place place{.over_hosts = on_hosts || !arguments.empty(), .ground = {}, .arguments = std::move(arguments)};
    place.ground.bundles = bundles;
    if (has_network) {
      place.ground.manager = {host_network::address(0), 4242};
      place.ground.before = [&, on_hosts](const std::string& name) {
        return network.command_on(on_hosts && hosts.contains(name) ? hosts.at(name) : 0);
      };
    }
    return stall_cluster(place, 2).measure(job(), 2, 1, sample_origin::made_up, 1s);
  };
  const auto on_one = measured(false, {});
  const auto made_up = measured(false, {"--link", std::to_string(link_mbit) + "Mb/s"});
  std::vector<stall_run> limited;
  if (has_network) {
    limited = {on_one, measured(true, {})};
    network.enter(-1);
  }
  expect_network_stall({on_one, made_up}, link_bytes_per_ms);
  if (!has_network)
    GTEST_SKIP() << network.problem();
  expect_network_stall(limited, link_bytes_per_ms);
}

// given: the command, for a job on a file; a read of what is in memory takes 6 ms, of what is not 12 ms /
// expected: a run for each shape with samples made up, cached and cold; what reads take longer than a step computes is
// preparation, what they take longer of a file that the kernel forgets is fetch, each of it waiting for data, and
// explained
TEST_F(stalls_test, the_command_tells_what_a_file_costs) {
  if (std::string_view(PARCAE_SLOW_DISK).empty())
    GTEST_SKIP() << "nothing can be preloaded before a sanitizer";
  struct statfs there {};
  ASSERT_EQ(::statfs(folder.path().c_str(), &there), 0);
  if (there.f_type == TMPFS_MAGIC)
    GTEST_SKIP() << "on a tmpfs nothing is ever cold: name another folder by TMPDIR";
  const auto disk = folder.path() / "disk";
  std::filesystem::create_directory(disk);
  std::ofstream{disk.string() + ".slow"};
  std::ofstream{disk / "tokens"};
  std::filesystem::resize_file(disk / "tokens", 33 << 20); // more than is held in memory
  ::setenv("LD_PRELOAD", PARCAE_SLOW_DISK, 1);
  ::setenv("PARCAE_SLOW_DISK", disk.c_str(), 1);
  ::setenv("PARCAE_SLOW_READS", "6000 12000", 1);
  const auto file =
      write("job.toml", "[job]\nname = \"stalls\"\nsteps = 10\n[model]\nlayers = 3\nwidth = 32\nsequence = 16\n"
                        "[batch]\nglobal = 4\nmicro = 2\n[data]\nkind = \"tokens\"\npath = \"" +
                            (disk / "tokens").string() + "\"\n");
  std::string differs = "unmeasured";
  // A machine may be slower in one run than in the next; time that is booked as something else is so each time.
  for (int i = 0; i < 3 && !differs.empty(); ++i) {
    const auto x = run({"profile", file, "--stalls", "--json", "--duration", "600ms"}, false);
    ASSERT_EQ(x.status, 0) << x.error;
    for (const auto* run :
         {"1×1 on one host, samples made up", "2×1 on one host, samples cached", "2×2 on one host, samples cold"})
      EXPECT_THAT(x.error, HasSubstr(std::string("measuring ") + run));
    const auto told = boost::json::parse(x.output);
    EXPECT_EQ(told.at("runs").as_array().size(), 12u);
    EXPECT_TRUE(told.at("link_bytes_per_s").is_null());
    EXPECT_TRUE(told.at("remarks").as_array().empty()) << told.at("remarks");
    EXPECT_THAT(kinds_in(told), testing::ElementsAre(testing::Pair("fetch", 4), testing::Pair("interconnect", 3),
                                                     testing::Pair("preparation", 4)));
    const auto alone_ms = told.at("runs").at(0).at("step_ms").to_number<double>();
    differs = difference_of("preparation", told, 4 * 6 - alone_ms) + // a step has 4 samples
              difference_of("fetch", told, 4 * (12 - 6));
    std::cout << differs;
  }
  for (const auto* name : {"LD_PRELOAD", "PARCAE_SLOW_DISK", "PARCAE_SLOW_READS"})
    ::unsetenv(name);
  EXPECT_EQ(differs, "");
}

} // namespace
} // namespace parcae

// Certificates that end while a cluster trains, and an authority that is made anew meanwhile.

#include "protocols/trust/authority.hpp"
#include "tests/support/cluster.hpp"
#include "tests/support/eventually.hpp"

#include <cstdlib>

namespace parcae {
namespace {

namespace fs = std::filesystem;
using std::chrono::days;

struct new_authority : cluster_test {
  void SetUp() override {
    for (const auto* of : {"bundles", "next"}) {
      make_authority(folder.path() / of, days(10));
      for (const auto role : {membership::manager, membership::operator_, membership::keeper})
        issue_bundle(folder.path() / of, role, std::string(to_string(role)), days(10));
      for (const auto* name : {"a", "b", "c"})
        issue_bundle(folder.path() / of, membership::node, name, days(10));
    }
    // Of the old authority something is revoked: its list is no part of the new one.
    issue_bundle(bundles, membership::node, "stolen", days(10));
    revoke_bundles(bundles, "stolen");
    fs::create_directory(logs);
    cluster.emplace(sibling_program(""), logs, cluster_ground{{"127.0.0.1", 0}, bundles, {}});
    ::setenv("PARCAE_BUNDLE", (bundles / "operator.pem").c_str(), 1);
  }

  void TearDown() override {
    ::unsetenv("PARCAE_BUNDLE");
    cluster_test::TearDown();
  }

  void give(const std::string& name) {
    fs::copy_file(folder.path() / "next" / (name + ".pem"), bundles / (name + ".pem"),
                  fs::copy_options::overwrite_existing);
  }

  /// It has a bundle of the new authority from now on.
  void replace(const std::string& name) {
    give(name);
    (name == "manager" ? cluster->manager() : cluster->node(name)).signal(SIGHUP);
    EXPECT_TRUE(eventually(
        [&] { return content(logs / (name + ".log")).find("certificates are read again") != std::string::npos; },
        limit))
        << name;
  }

  void wait_for_steps(std::uint64_t id, std::uint64_t more) {
    const auto from = job_of(cluster->client().status(), id).steps_done;
    wait_for_job(id, "steps", [&](const job_status& j) { return j.state != "running" || j.steps_done >= from + more; });
  }

  std::uint64_t on_two_workers(const job_specification& job) {
    const auto id = start_job(job, {"a", "b"});
    wait_for_training(id, 2);
    return id;
  }

  const fs::path bundles = folder.path() / "bundles", logs = folder.path() / "logs";
};

// given: a job on two workers; all get bundles of a new authority, one after the other; while one has still the old
// one a third worker comes, which it cannot speak to; then one is killed / expected: training stands for nobody, with
// all it goes on on all three, then on two; who asks with an old bundle is refused; the undisturbed run's bits
TEST_F(new_authority, is_taken_up_while_a_job_trains) {
  const auto job = endless_job();
  const auto id = on_two_workers(job);
  const auto old = folder.path() / "old.pem";
  fs::copy_file(bundles / "operator.pem", old);
  fs::remove(bundles / "revoked.pem");
  for (const auto* name : {"manager", "keeper", "a"}) {
    replace(name);
    wait_for_steps(id, 20);
  }
  const auto refused = run({"status", "--bundle", old});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.error, HasSubstr("another authority made it than ours"));
  give("operator");
  give("c");
  cluster->start_node("c");
  wait_for_workers(3);
  wait_for_steps(id, 50);
  replace("b");
  wait_for_training(id, 3);
  cluster->reconnect();
  EXPECT_EQ(job_of(cluster->client().status(), id).replayed_steps, 0u);
  cluster->node("a").signal(SIGKILL);
  wait_for_training(id, 2);
  expect_undisturbed_bits(id, job);
}

// given: a job on two workers, of which one's certificate ends; later another one is put in its place / expected: its
// process lives, and training goes on without it, then with it; the undisturbed run's bits
TEST_F(new_authority, a_certificate_ends_while_a_job_trains) {
  issue_bundle(bundles, membership::node, "a", std::chrono::seconds(20));
  const auto job = endless_job();
  const auto id = on_two_workers(job);
  const auto alone = wait_for_training(id, 1);
  EXPECT_EQ(alone.grid, std::vector<std::string>{"b/0"});
  EXPECT_THAT(content(logs / "manager.log"), HasSubstr("(node a): its certificate has ended"));
  wait_for_steps(id, 50);
  EXPECT_EQ(cluster->node("a").wait(std::chrono::seconds(0)), std::nullopt);
  issue_bundle(bundles, membership::node, "a", days(10));
  cluster->node("a").signal(SIGHUP);
  wait_for_training(id, 2);
  EXPECT_LE(expect_undisturbed_bits(id, job).replayed_steps, 1u);
}

} // namespace
} // namespace parcae

// Who is let in, and what strangers can do.

#include "protocols/wire/type_ids.hpp"
#include "runtime/link/link.hpp"
#include "runtime/process/system.hpp"
#include "tests/support/cluster.hpp"
#include "tests/support/dial.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/silent_instance.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <csignal>

namespace parcae::membership_tests {
namespace {

struct membership : cluster_test {
  std::string log_of(const std::string& name) { return content(folder.path() / "first" / (name + ".log")); }

  /// Another manager at the address of the one that ended.
  child_process next_manager() {
    return child_process({{sibling_program("parcae"), "manager", "--listen", to_string(cluster->where()), "--state",
                           (folder.path() / "next-state").string()},
                          folder.path() / "next",
                          folder.path() / "next.log"});
  }

  /// Until it holds. A manager that does not listen yet is no answer.
  template <class Condition>
  static bool eventually(Condition condition) {
    for (const auto deadline = std::chrono::steady_clock::now() + limit; std::chrono::steady_clock::now() < deadline;)
      try {
        if (condition())
          return true;
      } catch (const client_error&) {
      }
    return false;
  }
};

// given: a second node with a living node's name / expected: it exits with status 1 and says why; the first lives on
TEST_F(membership, duplicate_names_are_refused) {
  cluster->start_node("a");
  wait_for_workers(1);
  child_process second({{sibling_program("parcae-node"), "--manager", to_string(cluster->where()), "--name", "a"},
                        folder.path() / "second.log",
                        folder.path() / "second.log"});
  EXPECT_EQ(second.wait(limit), 1);
  EXPECT_THAT(content(folder.path() / "second.log"), HasSubstr("a living instance has that name"));
  EXPECT_EQ(living(cluster->client().status(), "worker"), 1u);
}

struct stranger_config : system_config {
  explicit stranger_config(const std::vector<std::string>& identifiers) {
    set("middleman.app-identifiers", identifiers);
  }
};

// given: a peer with another application identifier / expected: it refuses the manager by itself
// given: one with ours, whose HELLO has another version / expected: wrong_protocol
// expected of both: the manager goes on
TEST_F(membership, other_protocol_versions_are_refused) {
  {
    stranger_config config({"parcae-0"});
    network_side net;
    caf::actor_system system(config);
    caf_side end(system, net);
    auto manager = dial<manager_actor>(system, end.middleman(), cluster->where());
    ASSERT_FALSE(manager);
    EXPECT_TRUE(manager.error() == caf::sec::incompatible_application_ids);
  }
  {
    control_plane plane;
    auto& system = plane.system();
    caf::expected<manager_actor> manager{caf::make_error(caf::sec::connection_timeout)};
    for (int i = 0; i < 5 && !manager; ++i)
      manager = dial<manager_actor>(system, plane.middleman(), cluster->where());
    ASSERT_TRUE(manager);
    caf::scoped_actor self(system);
    auto never = spawn_silent_instance(system);
    hello x;
    x.protocol = protocol_version + 1;
    x.name = "stranger";
    x.host = "127.0.0.1";
    x.port = 1;
    x.slots = 0;
    caf::error refused;
    self->request(*manager, 10s, x, never, std::vector<slot_actor>{})
        .receive([](const welcome&) { ADD_FAILURE() << "welcome"; }, [&](caf::error& e) { refused = std::move(e); });
    EXPECT_TRUE(refused == parcae_error::wrong_protocol) << render(refused);
    caf::anon_send_exit(never, caf::exit_reason::user_shutdown);
  }
  EXPECT_TRUE(cluster->client().status().instances.empty());
}

// given: a manager of another protocol / expected: a node and a command end with both builds, and which package to
// install
TEST_F(membership, who_is_another_build_is_told_what_to_install) {
  stranger_config config({"parcae-999", "parcae-999 9.8.7 (build 0123, protocol 999, LibTorch 9.9.9)"});
  network_side net;
  caf::actor_system system(config);
  caf_side end(system, net);
  auto manager = system.spawn([](service_actor::pointer) -> service_actor::behavior_type {
    return {[](const client_request&) { return client_reply{}; }};
  });
  std::uint16_t port = 0;
  caf::scoped_actor self(system);
  self->request(end.middleman(), 10s, caf::publish_atom_v, port, caf::actor_cast<caf::strong_actor_ptr>(manager),
                system.message_types(manager), std::string("127.0.0.1"), true)
      .receive([&](std::uint16_t x) { port = x; }, [](const caf::error& e) { FAIL() << render(e); });
  const auto where = "127.0.0.1:" + std::to_string(port);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{sibling_program("parcae-node"), "--manager", where, "--cloud", "none"},
        std::vector<std::string>{sibling_program("parcae"), "status", "--manager", where}}) {
    const auto said = run_program(command);
    EXPECT_EQ(said.status, 1);
    EXPECT_THAT(said.error,
                testing::ContainsRegex("the manager is 9.8.7 \\(build 0123, protocol 999, LibTorch 9.9.9\\), "
                                       "this is [0-9.]+ \\(build .*`apt install ./parcae_9.8.7_amd64.deb`"));
  }
  caf::anon_send_exit(manager, caf::exit_reason::user_shutdown);
}

// given: no snapshot but the first; SIGTERM to the only worker, which trains on until its time is over; then another
// worker / expected: what it reached is with the keeper, and no step is computed again
TEST_F(membership, notice_to_the_only_worker_costs_no_step) {
  start_nodes({"a"}, {"--grace", "2s"});
  auto job = small_job(1'000'000);
  job.keeper_every = 1'000'000;
  const auto id = cluster->client().submit(job);
  wait_for_training(id, 1);
  cluster->node("a").signal(SIGTERM);
  const auto waiting =
      wait_for_job(id, "the end of its time", [](const job_status& j) { return j.phase == "waiting"; });
  cluster->start_node("b");
  const auto after = wait_for_training(id, 1);
  EXPECT_EQ(after.replayed_steps, 0u);
  EXPECT_GE(after.chain.back().base, waiting.steps_done);
}

// given: an instance lost and another with its name / expected: both listed until the lease is over, the new one works
TEST_F(membership, a_name_is_free_again_after_a_loss) {
  cluster->start_node("a");
  wait_for_workers(1);
  cluster->node("a").signal(SIGKILL);
  wait_for_workers(0);
  cluster->start_node("a");
  wait_for_workers(1);
  EXPECT_EQ(cluster->client().status().instances.size(), 2u);
  cluster->wait_for("the end of the lease", 20s, [](const status_reply& s) { return s.instances.size() == 1; });
}

// given: a node frozen until it is lost, another that takes its name, and goes again / expected: the frozen one does
// not end when it thaws, and is a member as soon as its name is free
TEST_F(membership, a_thawed_node_outlives_who_took_its_name) {
  cluster->start_node("a");
  wait_for_workers(1);
  cluster->node("a").signal(SIGSTOP);
  wait_for_workers(0);
  child_process other({{sibling_program("parcae-node"), "--manager", to_string(cluster->where()), "--name", "a"},
                       folder.path() / "other.log",
                       folder.path() / "other.log"});
  wait_for_workers(1);
  cluster->node("a").signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return log_of("a").find("a living instance has that name") != std::string::npos; }));
  EXPECT_EQ(cluster->node("a").wait(500ms), std::nullopt);
  other.signal(SIGKILL);
  ASSERT_TRUE(other.wait(limit));
  cluster->wait_for("the return of the first", limit, [](const status_reply& s) {
    return std::ranges::count_if(s.instances, [](const auto& i) { return i.state == "alive"; }) == 1;
  });
  EXPECT_EQ(cluster->node("a").wait(0ms), std::nullopt);
}

// given: signals that are not meant to end anything, to manager, keeper and worker while a job runs / expected: none
// does
TEST_F(membership, stray_signals_end_nothing) {
  start_nodes({"a"});
  const auto id = cluster->client().submit(endless_job());
  const auto before = wait_for_training(id, 1);
  for (const auto stray : {SIGPIPE, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM})
    for (auto* process : {&cluster->manager(), &cluster->node("keeper"), &cluster->node("a")})
      process->signal(stray);
  end_behind_checkpoint(id); // all three have a part in it
  EXPECT_EQ(job_of(cluster->client().status({.job = id}), id).generation, before.generation);
}

// given: a node that lets jobs read one folder, others that let them use all / expected: each says so when it starts; a
// job with data elsewhere fails on the first, and says where and why; one with data there runs
TEST_F(membership, data_may_be_limited_to_folders) {
  const auto data = folder.path() / "data";
  std::filesystem::create_directory(data);
  std::filesystem::copy_file("/usr/share/common-licenses/GPL-3", data / "text");
  start_nodes({"a"}, {"--data", "/no/such/folder", "--data", data.string()});
  auto job = small_job(10);
  cluster->start_node("b");
  const auto says = [&](const std::string& name, const std::string& what) {
    return eventually([&] { return log_of(name).find(what) != std::string::npos; });
  };
  EXPECT_TRUE(says("a", "info a: jobs may read what is below /no/such/folder, " + data.string() + "\n"));
  EXPECT_TRUE(says("b", "info b: jobs may read whatever this user may: --data says which folders and prefixes\n"));
  EXPECT_TRUE(says("keeper", "jobs may write checkpoints to whatever this user may"));
  cluster->node("b").signal(SIGKILL);
  const auto outside = cluster->client().submit(job);
  job.data.path = (data / "text").string();
  const auto inside = cluster->client().submit(job);
  const auto end = wait_for_end(outside);
  EXPECT_EQ(end.state, "failed");
  EXPECT_THAT(end.problem,
              HasSubstr("data /usr/share/common-licenses/GPL-3: is not below what this node lets jobs use"));
  EXPECT_THAT(end.problem, HasSubstr("--data /no/such/folder, " + data.string()));
  EXPECT_EQ(wait_for_end(inside).state, "done");
}

// given: the manager killed, another started at once at its address / expected: it listens, and the node joins it
TEST_F(membership, nodes_find_the_next_manager) {
  cluster->start_node("a");
  wait_for_workers(1);
  kill_manager();
  auto next = next_manager();
  EXPECT_TRUE(eventually([&] { return living(manager_client(cluster->where()).status(), "worker") == 1; }))
      << content(folder.path() / "next.log");
}

// given: submit --wait, the manager killed, another at its address that has another job of that number / expected: the
// client outlives that, and says that its job is gone instead of telling of the other's end
TEST_F(membership, who_waits_for_a_job_is_not_told_of_another) {
  const auto file = folder.path() / "first.toml";
  std::ofstream(file) << "job.steps = 5\nmodel.kind = 'mlp'\ndata.path = '/usr/share/common-licenses/GPL-3'\n";
  const auto err = folder.path() / "err";
  child_process waiting(
      {{sibling_program("parcae"), "submit", file, "--wait", "--manager", to_string(cluster->where())},
       folder.path() / "out",
       err});
  EXPECT_TRUE(eventually([&] { return content(err).find("job 1 waits for workers") != std::string::npos; }));
  kill_manager();
  auto next = next_manager();
  EXPECT_TRUE(eventually([&] { return manager_client(cluster->where()).submit(small_job(5)) == 1; }));
  EXPECT_EQ(waiting.wait(limit), 1);
  EXPECT_THAT(content(err), HasSubstr("job 1 is now another one, small"));
}

// given: the manager ends / expected: the node keeps dialling; SIGTERM twice ends it
TEST_F(membership, nodes_outlive_the_manager) {
  cluster->start_node("a");
  wait_for_workers(1);
  cluster->manager().signal(SIGTERM);
  EXPECT_EQ(cluster->manager().wait(10s), 0);
  EXPECT_EQ(cluster->node("a").wait(500ms), std::nullopt);
  cluster->node("a").signal(SIGTERM);
  EXPECT_EQ(cluster->node("a").wait(100ms), std::nullopt);
  cluster->node("a").signal(SIGTERM);
  EXPECT_EQ(cluster->node("a").wait(10s), 0);
}

} // namespace
} // namespace parcae::membership_tests

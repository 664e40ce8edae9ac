// The manager stands still, is asked to end, or is attacked; and nodes that stood still return.

#include "protocols/wire/type_ids.hpp"
#include "runtime/process/system.hpp"
#include "tests/support/cluster.hpp"
#include "tests/support/dial.hpp"
#include "tests/support/eventually.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <csignal>
#include <future>
#include <thread>

namespace parcae {
namespace {

struct manager : cluster_test {
  std::string log() const { return content(folder.path() / "first" / "manager.log"); }

  /// SIGSTOP and, after that time, SIGCONT.
  void stand_still(child_process& x, std::chrono::milliseconds how_long) {
    x.signal(SIGSTOP);
    std::this_thread::sleep_for(how_long); // the fault itself, not a wait
    x.signal(SIGCONT);
  }

  void freeze_manager(std::chrono::milliseconds how_long) {
    stand_still(cluster->manager(), how_long);
    // A handshake that meets the first moments afterwards may be lost, as for people: asked again.
    const auto answers = [&] {
      try {
        cluster->client().status();
        return true;
      } catch (const client_error&) {
        return false;
      }
    };
    EXPECT_TRUE(eventually(answers, limit));
  }

  std::vector<std::string> news() {
    std::vector<std::string> result;
    for (const auto& n : cluster->client().status().news)
      result.push_back(n.text);
    return result;
  }

  incarnation life_of(const std::string& name) {
    for (const auto& i : cluster->client().status().instances)
      if (i.name == name && i.state == "alive")
        return i.incarnation;
    return {};
  }

  /// With the folder that the manager named when it ended.
  void goes_on_from(const std::string& resume, const job_specification& job, std::uint64_t least) {
    start("second");
    start_nodes({"c"});
    run_well({"submit", "--resume", resume, "--set", "job.steps=" + std::to_string(job.steps), "--wait"});
    const auto end = job_of(cluster->client().status(), 1);
    ASSERT_FALSE(end.chain.empty());
    EXPECT_GE(end.chain[0].last, least);
    EXPECT_EQ(end.parameters_sha256, undisturbed(job).parameters_sha256);
  }
};

// given: the manager stands still for 1, 3 and 8 s while two workers train, with a keeper / expected: no loss is told,
// the generation goes on, no step is computed again, the same bits
TEST_F(manager, standing_still_costs_no_step) {
  const auto job = endless_job();
  const auto id = start_job(job, {"a", "b"});
  const auto before = wait_for_training(id, 2);
  for (auto how_long : {1s, 3s, 8s}) {
    freeze_manager(how_long);
    const auto steps = job_of(cluster->client().status(), id).steps_done;
    wait_for_job(id, "progress", [&](const job_status& j) { return j.steps_done > steps; });
  }
  EXPECT_THAT(news(), Not(Contains(HasSubstr("lost"))));
  const auto last = expect_undisturbed_bits(id, job);
  EXPECT_EQ(last.generation, before.generation);
  EXPECT_EQ(last.replayed_steps, 0u);
}

// given: no keeper, so that all steps would be lost with the workers / expected: none is
TEST_F(manager, standing_still_costs_no_step_without_a_keeper) {
  cluster->start_node("a");
  cluster->start_node("b");
  wait_for_workers(2);
  const auto id = cluster->client().submit(small_job(100'000));
  const auto before = wait_for_training(id, 2);
  freeze_manager(4s);
  const auto steps = job_of(cluster->client().status(), id).steps_done;
  const auto after = wait_for_job(id, "progress", [&](const job_status& j) { return j.steps_done > steps; });
  EXPECT_EQ(after.generation, before.generation);
  EXPECT_EQ(after.replayed_steps, 0u);
}

// given: a manager that stands still for so long that it and its client take each other for gone, before the client
// asks and while it does / expected: it is answered by another connection, long before its limit
TEST_F(manager, clients_outlive_their_connections) {
  manager_client client(cluster->access(), limit);
  client.status();
  const auto begun = std::chrono::steady_clock::now();
  freeze_manager(4s);
  EXPECT_EQ(client.submit(small_job(1)), 1u);
  cluster->manager().signal(SIGSTOP);
  auto asked = std::async(std::launch::async, [&] { return client.status().jobs.size(); });
  freeze_manager(4s);
  EXPECT_EQ(asked.get(), 1u);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, limit / 2);
  kill_manager();
  for (int i = 0; i < 2; ++i)
    EXPECT_THROW(client.status(), client_error);
  cluster->restart_manager();
  EXPECT_EQ(client.status().jobs.size(), 1u);
}

// given: a worker is killed while the manager stands still / expected: the other goes on, one step is computed again at
// most, the same bits
TEST_F(manager, a_worker_that_dies_meanwhile_is_noticed) {
  const auto job = endless_job();
  const auto id = start_job(job, {"a", "b"});
  wait_for_training(id, 2);
  cluster->manager().signal(SIGSTOP);
  kill_node("b");
  freeze_manager(3s);
  wait_for_training(id, 1);
  EXPECT_LE(expect_undisturbed_bits(id, job).replayed_steps, 1u);
}

// given: no keeper; of two replicas one stands still for 3 s and is declared lost, the other one is killed meanwhile
// expected: the first returns with its life and its state; the job goes on from there, and not from the start
TEST_F(manager, a_thawed_worker_returns_with_its_state) {
  constexpr std::uint64_t frozen_at = 60; // within the step behind it, so that the other one has that version, too
  const auto job = endless_job();
  cluster->start_node("a");
  cluster->start_node("b", {"--fault", "backward@" + std::to_string(frozen_at) + "=stop"});
  wait_for_workers(2);
  const auto life = life_of("b");
  const auto id = cluster->client().submit(job);
  wait_for_job(id, "the other one alone", [](const job_status& j) { return j.chain.size() > 1 && j.width == 1; });
  wait_for_training(id, 1);
  cluster->node("a").signal(SIGKILL);
  wait_for_job(id, "waiting", [](const job_status& j) { return j.phase == "waiting"; });
  std::this_thread::sleep_for(1s); // the fault goes on
  cluster->node("b").signal(SIGCONT);
  wait_for_training(id, 1);
  EXPECT_EQ(life_of("b"), life);
  cluster->start_keeper();
  EXPECT_EQ(expect_undisturbed_bits(id, job).chain.back().base, frozen_at);
}

// given: SIGTERM to the manager while a job trains, with a keeper / expected: it ends with status 0, and its log says
// at which step the job was stopped and how to go on; that leads to the same bits
TEST_F(manager, told_to_end_it_keeps_the_job) {
  auto job = small_job(1'000'000);
  start_nodes({"a", "b"});
  const auto id = cluster->client().submit(job);
  const auto before = wait_for_training(id, 2);
  cluster->manager().signal(SIGTERM);
  ASSERT_EQ(cluster->manager().wait(limit), 0);
  const auto text = log();
  const std::string at = "job 1 stopped at step ", how = "; go on with: parcae submit --resume ";
  ASSERT_THAT(text, HasSubstr(at));
  ASSERT_THAT(text, HasSubstr(how));
  job.steps = std::stoull(text.substr(text.find(at) + at.size())) + 20;
  const auto from = text.find(how) + how.size();
  goes_on_from(text.substr(from, text.find('\n', from) - from), job, before.steps_done);
}

// given: SIGTERM, and no keeper / expected: ends at once, saying that nothing is kept
TEST_F(manager, told_to_end_it_says_what_is_lost) {
  cluster->start_node("a");
  wait_for_workers(1);
  const auto id = cluster->client().submit(small_job(100'000));
  wait_for_training(id, 1);
  cluster->manager().signal(SIGTERM);
  ASSERT_EQ(cluster->manager().wait(10s), 0);
  EXPECT_THAT(log(), HasSubstr("nothing is kept: there is no keeper"));
}

// given: SIGTERM, and a keeper that does not answer; SIGTERM again / expected: waits, then ends
TEST_F(manager, told_twice_it_ends_at_once) {
  start_nodes({"a"});
  const auto id = cluster->client().submit(small_job(100'000));
  wait_for_training(id, 1);
  cluster->node("keeper").signal(SIGSTOP);
  cluster->manager().signal(SIGTERM);
  EXPECT_EQ(cluster->manager().wait(500ms), std::nullopt);
  cluster->manager().signal(SIGTERM);
  EXPECT_EQ(cluster->manager().wait(10s), 0);
}

/// Somebody on the network who knows only the port.
struct stranger {
  control_plane plane;
  caf::actor_system& system = plane.system();
  caf::expected<manager_actor> manager{caf::make_error(caf::sec::connection_timeout)};

  explicit stranger(const address& where) {
    for (int i = 0; i < 5 && !manager; ++i)
      manager = dial<manager_actor>(system, plane.middleman(), where);
  }
};

// given: exits from the network, to what is published and to who answers / expected: the manager does not even notice
// given: `kill`, which CAF lets nobody ignore / expected: the gate lets it not pass; manager and training go on
TEST_F(manager, exits_from_the_network_do_no_harm) {
  const auto job = small_job(100'000);
  const auto id = start_job(job, {"a"});
  wait_for_job(id, "a snapshot", [](const job_status& j) { return j.protected_steps >= 10; });
  stranger who(cluster->where());
  ASSERT_TRUE(who.manager) << render(who.manager.error());
  {
    caf::scoped_actor self(who.system);
    caf::strong_actor_ptr answers;
    self->request(*who.manager, 10s, client_request{encode(request{status_request{}})})
        .receive([&](const client_reply&) { answers = self->current_sender(); },
                 [](const caf::error& e) { ADD_FAILURE() << render(e); });
    for (auto reason : {caf::exit_reason::user_shutdown, caf::exit_reason::unhandled_exception}) {
      self->send_exit(*who.manager, reason);
      if (answers)
        self->send_exit(caf::actor_cast<caf::actor>(answers), reason);
    }
    if (answers) {
      EXPECT_EQ(answers->id(), who.manager->id()) << "somebody else answers, who has to defend himself as well";
    }
  }
  const auto steps = job_of(cluster->client().status(), id).steps_done;
  wait_for_job(id, "progress", [&](const job_status& j) { return j.steps_done > steps + 5; });
  EXPECT_EQ(living(cluster->client().status(), "worker"), 1u);

  const auto before = job_of(cluster->client().status(), id);
  caf::anon_send_exit(*who.manager, caf::exit_reason::kill);
  const auto after =
      wait_for_job(id, "progress", [&](const job_status& j) { return j.steps_done > before.steps_done + 5; });
  EXPECT_EQ(after.generation, before.generation) << "training was disturbed";
  EXPECT_EQ(after.replayed_steps, 0u);
  EXPECT_EQ(cluster->manager().wait(0s), std::nullopt);
}

} // namespace
} // namespace parcae

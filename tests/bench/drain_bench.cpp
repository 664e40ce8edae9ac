// How many steps are done a second time when instances leave with notice: the schedule of Ray Train's preemption
// benchmark (ray-project/ray, pull request 65047: 8 workers, 1,600 steps, a checkpoint each 400, 4 preemptions with
// notice; 517 steps done again, 91 with a checkpoint just in time), in real processes, with one loss without notice
// during the second drain. Its model is a ViT on GPUs, this one is small: what is counted does not depend on it. Prints
// its figures; fails if a step is done again, or a bit differs from a run that nothing disturbs.

#include "runtime/lab/local_cluster.hpp"
#include "tests/bench/figures.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>

namespace parcae {
namespace {

using namespace std::chrono_literals;

constexpr int workers = 8;
constexpr std::uint64_t notices_at[] = {696, 867, 1396, 1548}; ///< steps that Ray's workers resumed from
constexpr std::uint64_t steps_of_notice = 23;                  ///< what they did until they were gone: 91 / 4
constexpr std::uint64_t least_notice_ms = 1000;                ///< clouds give 30 s and more
constexpr int drain_with_loss = 1;
constexpr auto patience = 600s;

job_specification small_gpt() {
  job_specification job;
  job.name = "drain";
  job.steps = 1600;
  job.model = {"gpt", 4, 64, 4, 32, 256, 0, true};
  job.data = {"text", "/usr/share/common-licenses"};
  job.global_batch = workers;
  job.micro_batch = 1;
  job.optimizer.clip_norm = 1;
  job.keeper_every = 10;
  job.checkpoint_every = 400;
  return job;
}

class drained_job {
public:
  drained_job(const std::filesystem::path& logs, int workers) :
      cluster_(sibling_program("parcae").parent_path(), logs) {
    cluster_.start_keeper();
    for (int i = 0; i < workers; ++i)
      start();
    wait("all to join", [&](const auto& x) { return living(x, "worker") == static_cast<std::size_t>(workers); });
    id_ = cluster_.client().submit(small_gpt());
  }

  job_status wait_for_step(std::uint64_t step) {
    return wait("step " + std::to_string(step), [&](const auto& x) {
      const auto& job = job_of(x, id_);
      return job.state == "running" && job.phase == "running" && job.steps_done >= step;
    });
  }

  /// One that has a place is told to leave, and another comes; with a loss, one more is killed as soon as the manager
  /// has heard of the first.
  void drain(bool with_loss) {
    const auto now = wait_for_step(0);
    const auto name = [&](std::size_t i) { return now.grid.at(i).substr(0, now.grid.at(i).find('/')); };
    preempt_request x;
    x.names = {name(0)};
    x.notice_ms = std::max(least_notice_ms, static_cast<std::uint64_t>(steps_of_notice * now.step_ms));
    cluster_.client().preempt(x);
    if (with_loss) {
      wait("the notice", [&](const auto& s) {
        return std::ranges::any_of(s.instances,
                                   [&](const auto& i) { return i.name == x.names[0] && i.state == "leaving"; });
      });
      cluster_.node(name(now.grid.size() - 1)).signal(SIGKILL);
      start();
    }
    start();
  }

  job_status end() {
    const auto result = wait("the end", [&](const auto& x) {
      const auto& state = job_of(x, id_).state;
      return state != "running" && state != "queued";
    });
    if (result.state != "done")
      throw cluster_error("the job is " + result.state + ": " + result.problem);
    return result;
  }

private:
  void start() { cluster_.start_node("n" + std::to_string(started_++)); }

  template <class Condition>
  job_status wait(const std::string& what, Condition condition) {
    const auto x = cluster_.wait_for(what, patience, condition);
    return id_ == 0 ? job_status() : job_of(x, id_);
  }

  local_cluster cluster_;
  std::uint64_t id_ = 0;
  int started_ = 0;
};

} // namespace
} // namespace parcae

int main() {
  using namespace parcae;
  figures out;
  const scratch_folder logs("drain-bench"), logs_alone("drain-bench-alone");
  job_status disturbed;
  {
    drained_job job(logs.path(), workers);
    for (int i = 0; i < static_cast<int>(std::size(notices_at)); ++i) {
      job.wait_for_step(notices_at[i]);
      job.drain(i == drain_with_loss);
    }
    disturbed = job.end();
  }
  const auto alone = drained_job(logs_alone.path(), 1).end();
  std::uint64_t again = 0, dropped = 0;
  for (const auto& x : disturbed.changes) {
    const std::uint64_t under_way = x.decided_ms >= 0 ? 1 : 0; // when its generation was aborted: nobody had done it
    again += x.replayed_steps - std::min(x.replayed_steps, under_way);
    dropped += std::min(x.replayed_steps, under_way);
    std::cerr << x.configuration << " after " << x.trigger << ": " << x.replayed_steps << " steps again\n";
  }
  out.at_most("steps done again: 8 workers, 1600 steps, 4 drains, 1 loss", static_cast<double>(again), 0);
  out.only_shown("steps dropped under way, and begun anew", static_cast<double>(dropped));
  out.at_least("changes of the placement", static_cast<double>(disturbed.change_count), 6);
  out.at_least("the parameters are those of an undisturbed run (1: yes)",
               disturbed.parameters_sha256 == alone.parameters_sha256 ? 1 : 0, 1);
  return out.status();
}

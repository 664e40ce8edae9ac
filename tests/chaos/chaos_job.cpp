#include "tests/chaos/chaos_job.hpp"

#include "runtime/lab/local_cluster.hpp"
#include "tests/support/texts.hpp"

namespace parcae {

job_specification chaos_job(const options& x) {
  job_specification job;
  job.name = "chaos";
  job.steps = x.steps;
  job.seed = 11;
  job.model.layers = 3;
  job.model.width = x.feed ? 160 : 32;
  job.model.heads = 2;
  job.model.sequence = 16;
  job.model.dropout = 0.1;
  job.data.path = texts();
  job.data.validation = 16;
  job.evaluate_every = 250;
  job.global_batch = 12;
  job.micro_batch = 2;
  job.virtual_replicas = 6;
  job.optimizer.schedule = "cosine";
  job.optimizer.warmup_steps = 50;
  job.optimizer.clip_norm = 1;
  job.keeper_every = 5;
  job.checkpoint_every = 100;
  job.planning_interval_ms = 2000;
  return job;
}

job_specification drawn_job(const options& x, std::mt19937_64& random) {
  auto job = chaos_job(x);
  job.min_depth = 1 + static_cast<std::uint32_t>(random() % 2);
  job.max_depth = 2 + static_cast<std::uint32_t>(random() % 3);
  job.keeper_copies = 1 + static_cast<std::uint32_t>(random() % 2);
  job.policy = random() % 2 == 0 ? "liveput" : "throughput";
  return job;
}

std::string undisturbed(const options& x, const std::filesystem::path& logs) {
  local_cluster cluster(sibling_program(""), logs);
  cluster.start_keeper();
  cluster.start_node("alone", {"--device", x.device});
  auto job = chaos_job(x);
  const auto id = cluster.client().submit(job);
  const auto end = cluster.wait_for("the undisturbed job", std::chrono::hours(1), [&](const status_reply& s) {
    const auto& state = parcae::job_of(s, id).state;
    return state != "queued" && state != "running";
  });
  return parcae::job_of(end, id).parameters_sha256;
}

} // namespace parcae

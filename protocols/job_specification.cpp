#include "protocols/job_specification.hpp"

#include <cmath>
#include <initializer_list>
#include <string_view>

namespace parcae {

namespace {

struct checker {
  std::string problem;

  void require(bool good, std::string_view key, std::string_view right) {
    if (!good && problem.empty())
      problem = std::string(key) + " " + std::string(right);
  }

  void one_of(const std::string& value, std::string_view key, std::initializer_list<std::string_view> allowed) {
    std::string list;
    for (auto x : allowed) {
      if (value == x)
        return;
      list += (list.empty() ? "\"" : ", \"") + std::string(x) + "\"";
    }
    require(false, key, "is \"" + value + "\", must be one of " + list);
  }

  void number(double value, std::string_view key, double least, double below) {
    require(std::isfinite(value) && value >= least && value < below, key,
            "must be at least " + std::to_string(least) + " and below " + std::to_string(below));
  }

  void count(std::uint64_t value, std::string_view key, std::uint64_t least, std::uint64_t most) {
    require(value >= least && value <= most, key,
            "is " + std::to_string(value) + ", must be from " + std::to_string(least) + " to " + std::to_string(most));
  }
};

} // namespace

std::string problem_of(const job_specification& job) {
  checker c;
  c.require(!job.name.empty() && job.name.size() <= 100, "job.name", "must have 1 to 100 characters");
  c.count(job.steps, "job.steps", 1, 1'000'000'000);
  c.count(job.threads, "job.threads", 1, 256);
  const auto& m = job.model;
  c.one_of(m.kind, "model.kind", {"gpt", "mlp"});
  c.count(m.layers, "model.layers", 1, 1000);
  c.count(m.width, "model.width", 1, 100'000);
  c.count(m.heads, "model.heads", 1, 1000);
  c.count(m.sequence, "model.sequence", 1, 1'000'000);
  c.count(m.vocabulary, "model.vocabulary", 2, 10'000'000);
  c.number(m.dropout, "model.dropout", 0, 1);
  if (m.kind == "gpt" && m.heads > 0)
    c.require(m.width % m.heads == 0, "model.heads", "must divide model.width");
  c.one_of(job.data.kind, "data.kind", {"text"});
  c.require(!job.data.path.empty(), "data.path", "must name a file or folder");
  if (job.data.kind == "text")
    c.require(m.vocabulary >= 256, "model.vocabulary", "must be at least 256 for byte-level text");
  c.count(job.global_batch, "batch.global", 1, 1'000'000);
  c.count(job.micro_batch, "batch.micro", 1, job.global_batch);
  if (job.micro_batch > 0)
    c.require(job.global_batch % job.micro_batch == 0, "batch.micro", "must divide batch.global");
  const auto& o = job.optimizer;
  c.one_of(o.kind, "optimizer.kind", {"adamw", "sgd"});
  c.one_of(o.schedule, "optimizer.schedule", {"constant", "linear", "cosine"});
  c.number(o.learning_rate, "optimizer.learning_rate", 0, 1e6);
  c.count(o.warmup_steps, "optimizer.warmup_steps", 0, job.steps);
  c.number(o.weight_decay, "optimizer.weight_decay", 0, 1e3);
  c.number(o.momentum, "optimizer.momentum", 0, 1);
  c.number(o.beta1, "optimizer.beta1", 0, 1);
  c.number(o.beta2, "optimizer.beta2", 0, 1);
  c.number(o.epsilon, "optimizer.epsilon", 0, 1);
  c.number(o.clip_norm, "optimizer.clip_norm", 0, 1e9);
  c.count(job.min_depth, "parallel.min_depth", 1, job.max_depth);
  c.count(job.max_depth, "parallel.max_depth", 1, 10'000);
  c.count(job.min_width, "parallel.min_width", 1, job.max_width);
  c.count(job.max_width, "parallel.max_width", 1, 10'000);
  c.count(job.virtual_replicas, "parallel.virtual_replicas", 1, 10'000);
  if (job.micro_batch > 0 && job.virtual_replicas > 0)
    c.require(job.micro_batches() % job.virtual_replicas == 0, "parallel.virtual_replicas",
              "is " + std::to_string(job.virtual_replicas) + ", must divide the number of micro-batches, "
                + std::to_string(job.micro_batches()));
  c.require(job.min_width <= job.virtual_replicas, "parallel.min_width", "must not exceed parallel.virtual_replicas");
  c.count(job.keeper_every, "keepers.every", 1, 1'000'000);
  c.count(job.keeper_copies, "keepers.copies", 1, 100);
  c.one_of(job.policy, "planning.policy", {"liveput", "throughput"});
  c.count(job.planning_interval_ms, "planning.interval", 100, 86'400'000);
  c.count(job.look_ahead, "planning.look_ahead", 1, 1000);
  c.count(job.checkpoint_every, "job.checkpoint_every", 0, 1'000'000'000);
  c.count(job.checkpoints_kept, "job.checkpoints_kept", 2, 1000);
  c.require(job.resume.steps < job.steps, "job.steps",
            "is " + std::to_string(job.steps) + ", but the checkpoint already has " + std::to_string(job.resume.steps) +
                " steps; give a larger number to go on");
  c.require(job.resume.steps == 0 || !job.resume.folder.empty(), "resume", "must name the checkpoint's folder");
  return c.problem;
}

} // namespace parcae

#include "protocols/values/job_specification.hpp"

#include "protocols/base/text.hpp"

#include <algorithm>
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
            "must be at least " + text_of_quantity(least) + " and below " + text_of_quantity(below));
  }

  void count(std::uint64_t value, std::string_view key, std::uint64_t least, std::uint64_t most) {
    require(value >= least && value <= most, key,
            "is " + std::to_string(value) + ", must be from " + std::to_string(least) + " to " + std::to_string(most));
  }
};

/// A terminal would act on it.
bool is_control(char x) {
  return static_cast<unsigned char>(x) < 0x20 || x == 0x7f;
}

/// Whether He et al. describe one of so many layers: for ImageNet (table 1) or for CIFAR-10 (section 4.2).
bool is_resnet(std::uint32_t layers) {
  return layers == 18 || layers == 34 || layers == 50 || layers == 101 || layers == 152 ||
         (layers >= 8 && layers % 6 == 2);
}

void check_model(checker& c, const job_specification& job) {
  const auto& m = job.model;
  c.one_of(m.kind, "model.kind", {"gpt", "bert", "mlp", "resnet", "vgg"});
  c.count(m.layers, "model.layers", 1, 1000);
  c.count(m.width, "model.width", 1, 100'000);
  c.count(m.heads, "model.heads", 1, 1000);
  c.count(m.sequence, "model.sequence", 1, 1'000'000);
  c.count(m.vocabulary, "model.vocabulary", 2, 10'000'000);
  c.number(m.dropout, "model.dropout", 0, 1);
  c.count(m.image, "model.image", 1, 10'000);
  c.count(m.channels, "model.channels", 1, 1000);
  c.count(m.classes, "model.classes", 2, 1'000'000);
  if ((m.kind == "gpt" || m.kind == "bert") && m.heads > 0)
    c.require(m.width % m.heads == 0, "model.heads", "must divide model.width");
  if (m.kind == "bert")
    c.require(m.mask_token < m.vocabulary, "model.mask_token", "must be below model.vocabulary");
  if (m.kind == "resnet") {
    c.require(is_resnet(m.layers), "model.layers",
              "is " + std::to_string(m.layers) +
                  ", must be 18, 34, 50, 101, 152, or 6n + 2 (8, 14, 20, …) for ResNets "
                  "of small images");
    c.require(m.dropout == 0, "model.dropout", "must be 0: a resnet has none");
    c.require(job.micro_batch != 1, "batch.micro", "must be at least 2: BatchNorm has no variance over one sample");
  }
  if (m.kind == "vgg") {
    c.require(m.layers == 11 || m.layers == 13 || m.layers == 16 || m.layers == 19, "model.layers",
              "is " + std::to_string(m.layers) + ", must be 11, 13, 16 or 19");
    c.require(m.image % 32 == 0, "model.image", "must be a multiple of 32: a vgg halves it five times");
  }
}

void check_data(checker& c, const job_specification& job) {
  const auto& m = job.model;
  const auto& d = job.data;
  if (m.of_images())
    c.one_of(d.kind, "data.kind", {"images", "synthetic"});
  else
    c.one_of(d.kind, "data.kind", {"text", "tokens", "synthetic"});
  c.require(d.kind == "synthetic" || !d.path.empty(), "data.path", "must name a file or folder");
  c.require(d.path.find("://") == d.path.npos, "data.path", "is \"" + d.path + "\"; local paths only");
  if (d.kind == "text") {
    c.require(m.vocabulary >= 256, "model.vocabulary", "must be at least 256 for byte-level text");
    c.require(m.kind != "bert" || m.mask_token >= 256, "model.mask_token",
              "must be at least 256, and model.vocabulary 257: byte-level text uses the values below");
  }
  if (d.kind == "synthetic")
    c.count(d.samples, "data.samples", 1, 1'000'000'000);
  c.require(job.evaluate_every == 0 || d.validation > 0, "data.validation",
            "must be the number of samples to evaluate on, since job.evaluate_every is given");
}

void check_batch(checker& c, const job_specification& job) {
  c.count(job.global_batch, "batch.global", 1, 1'000'000);
  c.count(job.micro_batch, "batch.micro", 1, job.global_batch);
  if (job.micro_batch > 0)
    c.require(job.global_batch % job.micro_batch == 0, "batch.micro", "must divide batch.global");
}

void check_optimizer(checker& c, const job_specification& job) {
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
}

void check_parallel(checker& c, const job_specification& job) {
  c.count(job.min_depth, "parallel.min_depth", 1, job.max_depth);
  c.count(job.max_depth, "parallel.max_depth", 1, 10'000);
  c.count(job.min_width, "parallel.min_width", 1, job.max_width);
  c.count(job.max_width, "parallel.max_width", 1, 10'000);
  c.count(job.virtual_replicas, "parallel.virtual_replicas", 1, 10'000);
  if (job.micro_batch > 0 && job.virtual_replicas > 0)
    c.require(job.micro_batches() % job.virtual_replicas == 0, "parallel.virtual_replicas",
              "is " + std::to_string(job.virtual_replicas) + ", must divide the number of micro-batches, " +
                  std::to_string(job.micro_batches()));
  c.require(job.min_width <= job.virtual_replicas, "parallel.min_width", "must not exceed parallel.virtual_replicas");
}

} // namespace

std::string problem_of(const job_specification& job) {
  checker c;
  c.require(!job.name.empty() && job.name.size() <= 100 && std::ranges::none_of(job.name, is_control), "job.name",
            "must have 1 to 100 characters, none of them a control character");
  c.count(job.steps, "job.steps", 1, 1'000'000'000);
  c.count(job.threads, "job.threads", 1, 256);
  check_model(c, job);
  check_data(c, job);
  check_batch(c, job);
  check_optimizer(c, job);
  check_parallel(c, job);
  c.count(job.keeper_every, "keepers.every", 1, 1'000'000);
  c.count(job.keeper_copies, "keepers.copies", 1, 100);
  c.one_of(job.policy, "planning.policy", {"liveput", "throughput"});
  const auto interval = std::chrono::milliseconds(std::min<std::uint64_t>(job.planning_interval_ms, INT64_MAX));
  c.require(interval >= std::chrono::milliseconds(100) && interval <= std::chrono::hours(24), "planning.interval",
            "is " + text_of_duration(interval) + ", must be from 100ms to 24h");
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

#include "protocols/values/job_specification.hpp"

#include "protocols/base/duration.hpp"
#include "protocols/base/text.hpp"
#include "protocols/values/job_keys.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <tuple>
#include <variant>

namespace parcae {

namespace {

constexpr std::uint64_t max_data_sources = 1000;
constexpr std::uint64_t max_data_weight = 10'000; ///< of all sources: the order of as many samples is drawn

struct checker {
  std::string problem;

  void require(bool good, std::string_view key, std::string_view right) {
    if (!good && problem.empty())
      problem = std::string(key) + " " + std::string(right);
  }

  void name(const std::string& value, std::string_view key, std::string_view allowed) {
    std::string list;
    while (!allowed.empty()) {
      const auto x = allowed.substr(0, allowed.find(", "));
      if (value == x)
        return;
      list += (list.empty() ? "\"" : ", \"") + std::string(x) + "\"";
      allowed.remove_prefix(std::min(allowed.size(), x.size() + 2));
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

/// Of one key's value, whatever the others are.
struct range_check {
  checker& c;
  std::string path;
  std::string words; ///< the range

  void operator()(const whole_range& range, const std::uint32_t* x) const {
    c.count(*x, path, range.least, range.most);
  }
  void operator()(const whole_range& range, const std::uint64_t* x) const {
    c.count(*x, path, range.least, range.most);
  }
  void operator()(const real_range& range, const double* x) const { c.number(*x, path, range.least, range.below); }
  void operator()(const text_length& range, const std::string* x) const {
    c.require(x->size() >= range.least && x->size() <= range.most && std::ranges::none_of(*x, is_control), path,
              "must have " + words + ", none of them a control character");
  }
  void operator()(const one_of& range, const std::string* x) const { c.name(*x, path, range.names); }
  void operator()(const auto&, const auto*) const {} // in words
};

/// What is no URL is a path.
void check_url(checker& c, const std::string& place, std::string_view key) {
  if (place.find("://") == place.npos)
    return;
  c.require(place.starts_with("s3://") || place.starts_with("https://") || place.starts_with("http://"), key,
            "is \"" + place + "\"; URLs begin with s3:// or https:// (or http://, without encryption)");
  c.require(place.size() <= 4096 && std::ranges::none_of(place, is_control), key,
            "must have at most 4096 bytes, none of them a control character");
}

void check_sources(checker& c, const data_specification& d) {
  const auto check_path = [&](const std::string& path, std::string_view key) {
    c.require(!path.empty(), key, "must name a file or folder");
    check_url(c, path, key);
  };
  if (d.kind != "synthetic" && d.source.empty())
    check_path(d.path, "data.path");
  c.require(d.source.empty() || d.path.empty(), "data.path", "must be left out: there are [[data.source]]");
  c.require(d.source.empty() || d.kind != "synthetic", "data.source", "has no use for synthetic data");
  c.require(d.source.size() <= max_data_sources, "data.source",
            "has " + std::to_string(d.source.size()) + " entries, may have " + std::to_string(max_data_sources));
  std::uint64_t weights = 0;
  for (const auto& x : d.source) {
    check_path(x.path, "data.source.path");
    c.count(x.weight, "data.source.weight", 1, max_data_weight);
    weights += x.weight;
  }
  c.require(weights <= max_data_weight, "data.source.weight",
            "has a sum of " + std::to_string(weights) + ", at most " + std::to_string(max_data_weight) +
                "; 7 and 3 are as good as 700 and 300");
}

void check_data(checker& c, const job_specification& job) {
  const auto& m = job.model;
  const auto& d = job.data;
  if (m.of_images())
    c.name(d.kind, "data.kind", "images, image_folder, columns, synthetic");
  else
    c.name(d.kind, "data.kind", "text, tokens, columns, synthetic");
  check_sources(c, d);
  if (d.kind == "text") {
    c.require(m.vocabulary >= 256, "model.vocabulary", "must be at least 256 for byte-level text");
    c.require(!m.of_masked_tokens() || m.mask_token >= 256, "model.mask_token",
              "must be at least 256, and model.vocabulary 257: byte-level text uses the values below");
  }
  c.require(d.token_bytes == 2 || d.token_bytes == 4, "data.token_bytes", "must be 2 or 4");
  if (d.kind == "image_folder") {
    c.require(m.channels == 1 || m.channels == 3, "model.channels", "must be 1 (gray) or 3 (colours)");
    c.require(d.resize == 0 || d.resize >= m.image, "data.resize", "must be at least model.image");
  }
  for (const auto& [values, key, above] :
       {std::tuple(&d.mean, "data.mean", -1e-300), {&d.deviation, "data.deviation", 0.0}}) {
    c.require(values->empty() || values->size() == m.channels, key, "must have a number for each of model.channels");
    c.require(values->empty() || (m.of_images() && !m.is_own()), key,
              "is for resnet and vgg; other models have it in their first layer (parcae_model.Pixels)");
    for (auto x : *values)
      c.require(x > above && x <= 1, key, "is of pixels from 0 to 1" + std::string(above < 0 ? "" : ", and not 0"));
  }
}

/// Whether He et al. describe one with this number of layers: for ImageNet (table 1) or CIFAR-10 (section 4.2).
bool is_resnet(std::uint32_t layers) {
  return layers == 18 || layers == 34 || layers == 50 || layers == 101 || layers == 152 ||
         (layers >= 8 && layers % 6 == 2);
}

void check_model(checker& c, const job_specification& job) {
  const auto& m = job.model;
  if (m.kind == "gpt" || m.kind == "bert")
    c.require(m.width % m.heads == 0, "model.heads", "must divide model.width");
  if (m.kind == "exported")
    c.require(!m.path.empty() && !m.exported.empty(), "model.path", "must name the folder of an exported model");
  if (m.kind == "plugin")
    c.require(!m.path.empty() && !m.exported.empty() && m.plugin.size() == 64, "model.path",
              "must name what `parcae-node --describe` wrote");
  c.require(!m.is_own() || !job.in_bfloat16(), "job.precision",
            "must be \"float32\" for a model of kind \"" + m.kind + "\": its layers compute in the types they name");
  check_url(c, m.weights, "model.weights");
  if (m.of_masked_tokens())
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

/// Of when plans are made, and of threads.
void check_interval(checker& c, const job_specification& job) {
  c.require(job.threads > 0 || !job.reproducible, "job.threads",
            "is 0, the cores that each slot has, and bits depend on how many those are: give a number, or "
            "job.reproducible = false");
  const auto interval = std::chrono::milliseconds(std::min<std::uint64_t>(job.planning_interval_ms, INT64_MAX));
  c.require(interval >= std::chrono::milliseconds(100) && interval <= std::chrono::hours(24), "planning.interval",
            "is " + text_of_duration(interval) + ", must be from 100ms to 24h");
}

/// Of steps, and what is done between them.
void check_course(checker& c, const job_specification& job) {
  c.require(job.evaluate_every == 0 || job.data.validation > 0, "data.validation",
            "must be the number of samples to evaluate on, since job.evaluate_every is given");
  c.require(job.patience == 0 || job.evaluate_every > 0, "job.patience", "needs job.evaluate_every");
  c.require(job.patience > 0 || job.min_delta == 0, "job.patience", "must be given, since job.min_delta is");
  c.count(job.micro_batch, "batch.micro", 1, job.global_batch);
  if (job.micro_batch > 0)
    c.require(job.global_batch % job.micro_batch == 0, "batch.micro", "must divide batch.global");
  c.count(job.checkpoint_every, "job.checkpoint_every", 0, 1'000'000'000);
  c.require(job.checkpoint_every_ms == 0 ||
                (job.checkpoint_every_ms >= 1'000 && job.checkpoint_every_ms <= 3'600'000'000),
            "job.checkpoint_every", "must be steps, or from 1s to 1000h");
  c.count(job.optimizer.schedule_from, "optimizer.schedule_from", 0, job.steps);
  c.count(job.optimizer.warmup_steps, "optimizer.warmup_steps", 0, job.steps - job.optimizer.schedule_from);
}

/// Of what plans may choose.
void check_shape(checker& c, const job_specification& job) {
  c.count(job.min_depth, "parallel.min_depth", 1, job.max_depth);
  c.count(job.min_width, "parallel.min_width", 1, job.max_width);
  if (job.micro_batch > 0)
    c.require(job.micro_batches() % job.virtual_replicas == 0, "parallel.virtual_replicas",
              "is " + std::to_string(job.virtual_replicas) + ", must divide the number of micro-batches, " +
                  std::to_string(job.micro_batches()));
  c.require(job.min_width <= job.virtual_replicas, "parallel.min_width", "must not exceed parallel.virtual_replicas");
}

/// Of what may be spent.
void check_budget(checker& c, const job_specification& job) {
  const auto& x = job.budget;
  c.require(x.deadline_ms == 0 || (x.deadline_ms >= 10'000 && x.deadline_ms <= 36'000'000'000), "budget.deadline",
            "must be from 10s to 10000h");
  c.require(x.total_usd >= 0 && x.total_usd <= 1e8, "budget.total", "must be from 0 to 100000000");
  c.require(x.hourly_usd >= 0 && x.hourly_usd <= 1e6, "budget.hourly", "must be from 0 to 1000000");
  c.require(x.first == "deadline" || x.first == "total", "budget.first",
            "is \"" + x.first + "\", must be deadline or total");
  c.require(x.first == "deadline" || x.total_usd > 0, "budget.total", "must be given, since it is what comes first");
}

/// Of where checkpoints go, and of the one that the job begins with.
void check_checkpoint(checker& c, const job_specification& job) {
  const auto& to = job.checkpoint.to;
  c.require(to.empty() || to.starts_with("s3://") || to.starts_with('/'), "checkpoint.to",
            "is \"" + to + "\", must be s3://BUCKET/PREFIX, or a folder's absolute path");
  c.require(std::ranges::none_of(to + job.checkpoint.endpoint + job.checkpoint.region, is_control), "checkpoint",
            "must have no control characters");
  c.require(to.size() <= 600 && job.checkpoint.endpoint.size() <= 300 && job.checkpoint.region.size() <= 60,
            "checkpoint.to", "is longer than 600 characters, or its endpoint or region than 300 or 60");
  c.require(job.checkpoint.endpoint.empty() || job.checkpoint.endpoint.starts_with("https://") ||
                job.checkpoint.endpoint.starts_with("http://"),
            "checkpoint.endpoint", "must begin with https:// (or http://, without encryption)");
  c.require(job.resume.steps < job.steps, "job.steps",
            "is " + std::to_string(job.steps) + ", but the checkpoint already has " + std::to_string(job.resume.steps) +
                " steps; give a larger number to go on");
  c.require(job.resume.steps == 0 || !job.resume.folder.empty(), "resume", "must name the checkpoint's folder");
}

/// Of a job that serves. What it has of training is as it is by default.
void check_serving(checker& c, const job_specification& job) {
  const auto& x = job.serve;
  c.name(job.model.kind, "model.kind", "gpt, exported");
  c.require(!job.in_bfloat16(), "job.precision", "must be \"float32\" if job.kind is \"serve\"");
  c.require(job.transport != "nccl", "job.transport", "must be \"auto\" or \"tcp\" if job.kind is \"serve\"");
  c.require(job.optimizer.kind == "none", "optimizer.kind", "must be \"none\" if job.kind is \"serve\"");
  c.require(job.resume.steps == 0, "job.kind", "is \"serve\", and such a job goes on from no checkpoint");
  c.require(x.context <= job.model.sequence, "serve.context",
            "is " + std::to_string(x.context) + ", must be at most model.sequence, " +
                std::to_string(job.model.sequence));
  c.require(!x.tokenizer.empty() && x.tokenizer.size() <= 4096 && std::ranges::none_of(x.tokenizer, is_control),
            "serve.tokenizer", "must be \"auto\", \"bytes\", \"ids\", or the path of a tokenizer.json at the gateway");
  c.require(x.tokenizer != "bytes" || job.model.vocabulary >= 256, "serve.tokenizer",
            "is \"bytes\", and model.vocabulary is below 256");
  constexpr std::uint64_t least = std::uint64_t{1} << 20, most = std::uint64_t{1} << 44;
  c.require(x.cache_bytes >= least && x.cache_bytes <= most, "serve.cache",
            "is " + text_of_size(x.cache_bytes) + ", must be from 1MiB to 16TiB");
  c.require(x.wait_ms >= 100 && x.wait_ms <= 3'600'000, "serve.wait", "must be from 100ms to 1h");
  c.require(x.stop_tokens.size() <= 64, "serve.stop_tokens", "has more than 64 tokens");
  c.require(std::ranges::all_of(x.stop_tokens, [&](auto token) { return token < job.model.vocabulary; }),
            "serve.stop_tokens", "must be below model.vocabulary, " + std::to_string(job.model.vocabulary));
  c.count(job.min_depth, "parallel.min_depth", 1, job.max_depth);
  c.count(job.min_width, "parallel.min_width", 1, job.max_width);
}

} // namespace

std::string data_specification::where() const {
  auto result = path;
  for (const auto& x : source)
    result += (result.empty() ? "" : ", ") + x.path;
  return result;
}

std::string problem_of(const job_specification& job) {
  checker c;
  c.name(job.model.kind, "model.kind", "gpt, bert, mlp, resnet, vgg, exported, plugin");
  job_draft draft{.job = job};
  for (const auto& key : job_keys())
    if (job.serves() ? job_kind_of(key) != "train"
                     : key.kinds != "synthetic" || job.data.kind == "synthetic") // else it is not looked at
      std::visit(range_check{c, path_of(key), range_of(key)}, key.range, key.target(draft));
  if (!c.problem.empty())
    return c.problem;
  if (job.serves())
    check_serving(c, job);
  check_model(c, job);
  check_interval(c, job);
  if (job.serves())
    return c.problem;
  check_data(c, job);
  check_course(c, job);
  check_shape(c, job);
  check_budget(c, job);
  check_checkpoint(c, job);
  return c.problem;
}

} // namespace parcae

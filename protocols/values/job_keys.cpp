#include "protocols/values/job_keys.hpp"

#include "protocols/base/duration.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

namespace parcae {

namespace {

using enum on_resume;

template <auto Member>
job_field of_job(job_draft& x) {
  return &(x.job.*Member);
}

template <auto Member>
job_field of_model(job_draft& x) {
  return &(x.job.model.*Member);
}

template <auto Member>
job_field of_data(job_draft& x) {
  return &(x.job.data.*Member);
}

template <auto Member>
job_field of_optimizer(job_draft& x) {
  return &(x.job.optimizer.*Member);
}

template <auto Member>
job_field of_checkpoint(job_draft& x) {
  return &(x.job.checkpoint.*Member);
}

using job = job_specification;
using model = model_specification;
using data = data_specification;
using optimizer = optimizer_specification;
using place = checkpoint_specification;

constexpr std::string_view from_files = "text, tokens, images, image_folder, columns";

constexpr job_key keys[] = {
    {"job",
     "name",
     of_job<&job::name>,
     text_length{1, 100},
     "for people, and part of the names of checkpoints",
     {},
     "the file's name"},
    {"job", "steps", of_job<&job::steps>, whole_range{1, 1'000'000'000}, "optimizer steps", {}, "or samples"},
    {"job",
     "samples",
     [](job_draft& x) -> job_field { return &x.samples; },
     "1 or more",
     "instead of steps: rounded up to whole ones",
     {},
     "or epochs"},
    {"job",
     "epochs",
     [](job_draft& x) -> job_field { return &x.epochs; },
     "above 0",
     "instead of steps: passes over the training data, as found at submit",
     {},
     "or steps"},
    {"job", "seed", of_job<&job::seed>, "0 or more", "everything random follows from it", {}, {}, fixed},
    {"job",
     "threads",
     of_job<&job::threads>,
     whole_range{0, 256},
     "computing threads of each slot; 0: its cores, if not reproducible",
     {},
     {},
     fixed},
    {"job", "reproducible", of_job<&job::reproducible>, "", "the same bits whatever instances come and go", "", "",
     fixed},
    {"job", "precision", of_job<&job::precision>, one_of{"float32, bfloat16"},
     "of matrix products and attention; all else is float32", "", "", fixed},
    {"job", "gradient_sums", of_job<&job::gradient_sums>, one_of{"float32, bfloat16"},
     "over micro-batches, replicas; bfloat16: rounded, half the bytes sent", "", "", fixed},
    {"job", "transport", of_job<&job::transport>, one_of{"auto, tcp, nccl"}, "what moves tensors between slots"},
    {"job", "on_not_finite", of_job<&job::on_not_finite>, one_of{"stop, skip, go_on"},
     "loss or gradients: the job fails, or that step changes nothing"},
    {"job", "checkpoint_every", [](job_draft& x) -> job_field { return &x.checkpoint_every; }, "steps, or 1s to 1000h",
     "between checkpoints on disk; 0: only the final version"},
    {"job", "checkpoints_kept", of_job<&job::checkpoints_kept>, whole_range{2, 1000},
     "how many of the newest are kept"},
    {"job", "evaluate_every", of_job<&job::evaluate_every>, "0 or more",
     "steps between evaluations on data.validation, and both ends; 0: none"},
    {"job", "patience", of_job<&job::patience>, whole_range{0, 1'000'000},
     "evaluations without a better loss that end the job; 0: never"},
    {"job", "min_delta", of_job<&job::min_delta>, real_range{0, 1'000'000},
     "better is less than the best by more than this"},
    {"job", "min_instances", of_job<&job::min_instances>, whole_range{1, 10'000},
     "instances, before it begins; then it goes on with fewer"},
    {"model",
     "kind",
     of_model<&model::kind>,
     "a known one",
     "gpt, bert, mlp, resnet, vgg; of your own: exported, plugin",
     {},
     {},
     shape},
    {"model",
     "layers",
     of_model<&model::layers>,
     whole_range{1, 1000},
     "blocks, linear layers (mlp), or as in ResNet-50",
     built_in,
     {},
     shape},
    {"model",
     "width",
     of_model<&model::width>,
     whole_range{1, 100'000},
     "of blocks, of hidden layers, or channels of the first",
     built_in,
     {},
     shape},
    {"model",
     "heads",
     of_model<&model::heads>,
     whole_range{1, 1000},
     "of attention; divides width",
     "gpt, bert",
     {},
     shape},
    {"model",
     "sequence",
     of_model<&model::sequence>,
     whole_range{1, 1'000'000},
     "tokens of a sample",
     "gpt, bert, mlp",
     {},
     shape},
    {"model",
     "vocabulary",
     of_model<&model::vocabulary>,
     whole_range{2, 10'000'000},
     "values of a token; for text 256 or more",
     "gpt, bert, mlp",
     {},
     shape},
    {"model",
     "dropout",
     of_model<&model::dropout>,
     real_range{0, 1},
     "probability of zeroing",
     "gpt, bert, mlp, vgg",
     {},
     shape},
    {"model",
     "tied_embeddings",
     of_model<&model::tied_embeddings>,
     "",
     "the output projection is the token embedding",
     "gpt, bert",
     {},
     shape},
    {"model",
     "mask_token",
     of_model<&model::mask_token>,
     "below vocabulary",
     "stands for a masked token; of text 256 or more",
     "bert",
     {},
     shape},
    {"model",
     "image",
     of_model<&model::image>,
     whole_range{1, 10'000},
     "height and width in pixels; of vgg a multiple of 32",
     "resnet, vgg",
     {},
     shape},
    {"model",
     "channels",
     of_model<&model::channels>,
     whole_range{1, 1000},
     "values of a pixel",
     "resnet, vgg",
     {},
     shape},
    {"model", "classes", of_model<&model::classes>, whole_range{2, 1'000'000}, "labels", "resnet, vgg", {}, shape},
    {"model", "path", of_model<&model::path>, "a folder or file", "of parcae_model, on nodes too; of --describe",
     "exported, plugin", "must be given"},
    {"model",
     "weights",
     of_model<&model::weights>,
     "file, folder or URL",
     "version 0: safetensors, named as by the model's library; on nodes too",
     {},
     "drawn"},
    {"data",
     "kind",
     of_data<&data::kind>,
     "as below",
     "text, tokens, images, image_folder, columns or synthetic",
     {},
     {},
     fixed},
    {"data", "path", of_data<&data::path>, "seen from there, or a URL", "on the nodes", from_files, "this or source"},
    {"data",
     "validation",
     of_data<&data::validation>,
     "0 or more",
     "the last samples of each source that are not trained on",
     {},
     {},
     fixed},
    {"data",
     "token_bytes",
     of_data<&data::token_bytes>,
     "2 or 4",
     "of a number; *.npy files say it themselves",
     "tokens",
     {},
     fixed},
    {"data",
     "resize",
     of_data<&data::resize>,
     "0, or model.image to 10000",
     "shorter side, before image is cut out; 0: as image",
     "image_folder",
     {},
     fixed},
    {"data",
     "augment",
     of_data<&data::augment>,
     one_of{"none, crop, shift"},
     "training: a random part resized, or moved by 1/8",
     "image_folder",
     {},
     fixed},
    {"data",
     "flip",
     of_data<&data::flip>,
     "",
     "in training half of the images are mirrored",
     "image_folder",
     {},
     fixed},
    {"data",
     "mean",
     of_data<&data::mean>,
     "0 to 1, by channel",
     "of pixels; the first layer of resnet, vgg subtracts it",
     {},
     "0.5",
     fixed},
    {"data", "deviation", of_data<&data::deviation>, "above 0, to 1", "likewise: it divides by it", {}, "0.5", fixed},
    {"data",
     "samples",
     of_data<&data::samples>,
     whole_range{1, 1'000'000'000},
     "that are made up",
     "synthetic",
     {},
     fixed},
    {"data", "seed", of_data<&data::seed>, "0 or more", "that they are drawn from", "synthetic", {}, fixed},
    {data_sources,
     "path",
     [](job_draft& x) -> job_field { return &x.source.path; },
     "as data.path",
     "one such section for each of several",
     {},
     "must be given"},
    {data_sources,
     "weight",
     [](job_draft& x) -> job_field { return &x.source.weight; },
     "1 to 10000",
     "samples of it in each (sum of the weights)",
     {},
     {},
     fixed},
    {"batch",
     "global",
     of_job<&job::global_batch>,
     whole_range{1, 1'000'000},
     "samples of a step, however many instances there are",
     {},
     {},
     fixed},
    {"batch",
     "micro",
     of_job<&job::micro_batch>,
     "1 to global",
     "samples of a micro-batch; divides global",
     {},
     {},
     fixed},
    {"optimizer", "kind", of_optimizer<&optimizer::kind>, one_of{"adamw, sgd"}, "", {}, {}, shape},
    {"optimizer", "learning_rate", of_optimizer<&optimizer::learning_rate>, real_range{0, 1'000'000},
     "its highest value"},
    {"optimizer", "schedule", of_optimizer<&optimizer::schedule>, one_of{"constant, linear, cosine"},
     "the last two fall to 0 just after the last step"},
    {"optimizer", "schedule_from", of_optimizer<&optimizer::schedule_from>, "0 to job.steps",
     "where the schedule begins, its warm-up first"},
    {"optimizer", "warmup_steps", of_optimizer<&optimizer::warmup_steps>, "0 to job.steps",
     "the learning rate rises linearly over these steps"},
    {"optimizer", "weight_decay", of_optimizer<&optimizer::weight_decay>, real_range{0, 1000}, ""},
    {"optimizer", "decay_norms_and_biases", of_optimizer<&optimizer::decay_norms_and_biases>, "",
     "false: no weight decay on biases and tensors of one dimension"},
    {"optimizer", "rate_factors", of_optimizer<&optimizer::rate_factors>, "PATTERN=FACTOR, …",
     "times learning_rate by tensors' names: *.bias=2; the first that fits"},
    {"optimizer", "momentum", of_optimizer<&optimizer::momentum>, real_range{0, 1}, "", "sgd"},
    {"optimizer", "beta1", of_optimizer<&optimizer::beta1>, real_range{0, 1}, "", "adamw"},
    {"optimizer", "beta2", of_optimizer<&optimizer::beta2>, real_range{0, 1}, "", "adamw"},
    {"optimizer", "epsilon", of_optimizer<&optimizer::epsilon>, real_range{0, 1}, "", "adamw"},
    {"optimizer", "clip_norm", of_optimizer<&optimizer::clip_norm>, real_range{0, 1'000'000'000},
     "largest norm of all gradients; 0: no clipping"},
    {"parallel", "min_depth", of_job<&job::min_depth>, "1 to max_depth", "pipeline stages: at most one per layer"},
    {"parallel", "max_depth", of_job<&job::max_depth>, whole_range{1, 10'000}, ""},
    {"parallel", "min_width", of_job<&job::min_width>, "1 to max_width", "pipelines side by side"},
    {"parallel", "max_width", of_job<&job::max_width>, whole_range{1, 10'000}, ""},
    {"parallel",
     "virtual_replicas",
     of_job<&job::virtual_replicas>,
     whole_range{1, 10'000},
     "divides global / micro; most pipelines; the order of sums",
     {},
     "8, 4, 2 or 1",
     fixed},
    {"parallel", "recompute", of_job<&job::recompute>, "", "activations inside layers are computed again: less memory"},
    {"parallel", "feed", of_job<&job::feed>, "",
     "layers go ahead of changes while training goes on, if links have room"},
    {"keepers", "every", of_job<&job::keeper_every>, whole_range{0, 1'000'000},
     "steps between two snapshots; 0: as often as links allow"},
    {"keepers", "share_of_link", of_job<&job::keeper_share_of_link>, real_range{0.01, 1},
     "that snapshots take at most with every = 0"},
    {"keepers", "copies", of_job<&job::keeper_copies>, whole_range{1, 100}, "keepers that hold each layer"},
    {"checkpoint", "to", of_checkpoint<&place::to>, "s3://… or a folder",
     "where they are, if keepers' --data allows; their folders without it", "", "none"},
    {"checkpoint", "endpoint", of_checkpoint<&place::endpoint>, "https://HOST[:PORT]",
     "of what speaks S3; as AWS_ENDPOINT_URL of the keepers", "", "AWS"},
    {"checkpoint", "region", of_checkpoint<&place::region>, "", "of S3; as AWS_REGION of the keepers", "", "us-east-1"},
    {"planning", "policy", of_job<&job::policy>, one_of{"liveput, throughput"},
     "with a forecast, or the fastest of what is there"},
    {"planning", "interval", [](job_draft& x) -> job_field { return &x.planning_interval; }, "100ms to 24h",
     "the longest time from plan to plan"},
    {"planning", "look_ahead", of_job<&job::look_ahead>, whole_range{1, 1000}, "intervals", "", {}},
    {"budget", "deadline", [](job_draft& x) -> job_field { return &x.deadline; }, "10s to 10000h",
     "from submit; a manager with --market rents for it", "", "none"},
    {"budget", "total", [](job_draft& x) -> job_field { return &x.job.budget.total_usd; }, real_range{0, 100'000'000},
     "US-dollars; 0: no limit"},
    {"budget", "hourly", [](job_draft& x) -> job_field { return &x.job.budget.hourly_usd; }, real_range{0, 1'000'000},
     "likewise, of an hour"},
    {"budget", "first", [](job_draft& x) -> job_field { return &x.job.budget.first; }, one_of{"deadline, total"},
     "what holds if both cannot"},
};

constexpr std::string_view notes = R"(
A job file is TOML: sections, and "key = value" in them. Durations: 500ms, 30s, 2m, 24h.
* must be the same when a job goes on from a checkpoint, unless --allow-change says that it may differ; [model] and optimizer.kind always must.

A step that is skipped (job.on_not_finite) is counted like any other, by the schedule and by adamw.

Data, by data.kind. Of a folder all regular files below it count, sorted by relative path; links below it are not followed.
  text          bytes, each a token. Sample i is the tokens from i*sequence to (i + 1)*sequence, both included; targets are the inputs, one token on.
  tokens        the same of unsigned numbers of token_bytes, little-endian, each below model.vocabulary. Files named *.npy: whole numbers of any size, of one
                dimension, or of two: then a row is a sample, of sequence + 1 tokens.
  images        CIFAR-10's binary format: per image a byte with the label, then a byte per value, channel by channel, row by row. Of a folder only *.bin.
  image_folder  JPEG and PNG, in a folder for each label; labels are the numbers of the folders, sorted by name.
  columns       what parcae_model.export_dataset wrote: a folder with samples.json and samples.bin.
  synthetic     made up from data.seed, without a path, and learnable: tokens that mostly follow from the one before, images half a pattern of their class.
Several sources instead of data.path, of one kind; of each 10 samples 7 are from the first here and 3 from the second, in an order drawn from job.seed:
  [[data.source]]
  path = "/data/books"
  weight = 7
  [[data.source]]
  path = "/data/code"
  weight = 3
)";

struct type_name {
  const char* operator()(std::string*) const { return "string"; }
  const char* operator()(bool*) const { return "true or false"; }
  const char* operator()(double*) const { return "number"; }
  const char* operator()(std::vector<double>*) const { return "numbers"; }
  const char* operator()(std::uint32_t*) const { return "whole number"; }
  const char* operator()(std::uint64_t*) const { return "whole number"; }
  const char* operator()(std::chrono::milliseconds*) const { return "duration"; }
  const char* operator()(steps_or_time*) const { return "steps or time"; }
};

std::string digits(double x) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, x, std::chars_format::fixed).ptr};
}

struct value_text {
  std::string operator()(const std::vector<double>* x) const {
    std::string result;
    for (auto value : *x)
      result += (result.empty() ? "" : ", ") + digits(value);
    return "[" + result + "]";
  }
  std::string operator()(const std::string* x) const { return "\"" + *x + "\""; }
  std::string operator()(const bool* x) const { return *x ? "true" : "false"; }
  std::string operator()(const std::chrono::milliseconds* x) const { return "\"" + to_string(*x) + "\""; }
  std::string operator()(const steps_or_time* x) const {
    return x->time.count() > 0 ? (*this)(&x->time) : (*this)(&x->steps);
  }
  template <class Number>
  std::string operator()(const Number* x) const {
    char text[40];
    return {text, std::to_chars(text, text + sizeof text, *x).ptr};
  }
};

struct range_text {
  std::string operator()(std::string_view x) const { return std::string(x); }
  std::string operator()(const one_of& x) const { return std::string(x.names); }
  std::string operator()(const text_length& x) const {
    return (x.least > 0 ? std::to_string(x.least) + " to " : "at most ") + std::to_string(x.most) + " bytes";
  }
  std::string operator()(const real_range& x) const { return digits(x.least) + ", below " + digits(x.below); }
  std::string operator()(const whole_range& x) const {
    return std::to_string(x.least) + " to " + std::to_string(x.most);
  }
};

using row = std::array<std::string, 5>;

row row_of(const job_key& x) {
  auto meaning = std::string(x.meaning);
  if (!x.kinds.empty())
    meaning = std::string(x.kinds) + " only" + (meaning.empty() ? "" : ": " + meaning);
  return {std::string(x.name) + (x.resume == fixed ? " *" : ""), type_of(x),
          x.usual.empty() ? value_of(x, {}) : std::string(x.usual), range_of(x), meaning};
}

} // namespace

std::span<const job_key> job_keys() {
  return keys;
}

std::string path_of(const job_key& x) {
  return std::string(x.section) + "." + std::string(x.name);
}

std::string type_of(const job_key& x) {
  job_draft defaults;
  return std::visit(type_name{}, x.target(defaults));
}

std::string range_of(const job_key& x) {
  return std::visit(range_text{}, x.range);
}

std::string value_of(const job_key& x, job_draft job) {
  return std::visit(value_text{}, x.target(job));
}

std::string job_reference() {
  const row header{"", "type", "default", "range", "meaning"};
  std::array<std::size_t, 5> widths{};
  const auto measure = [&](const row& x) {
    for (std::size_t i = 0; i < x.size(); ++i)
      widths[i] = std::max(widths[i], x[i].size());
  };
  measure(header);
  for (const auto& x : keys)
    measure(row_of(x));
  std::string result;
  const auto add = [&](std::string first, const row& x) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      first += x[i];
      if (i + 1 < x.size())
        first.append(widths[i] + 2 - x[i].size(), ' ');
    }
    first.erase(first.find_last_not_of(' ') + 1);
    result += first + "\n";
  };
  add("  ", header);
  std::string_view section;
  for (const auto& x : keys) {
    if (x.section != section)
      result += (x.section == data_sources ? "[[" : "[") + std::string(section = x.section) +
                (x.section == data_sources ? "]]\n" : "]\n");
    add("  ", row_of(x));
  }
  return result + std::string(notes);
}

} // namespace parcae

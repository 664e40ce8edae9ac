#pragma once

// What a user asks for: the content of a job file, checked. Travels in PREPARE and, as Cap'n Proto, from the client.

#include "protocols/base/described.hpp"

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace parcae {

/// Sizes of a model; which of them count depends on `kind`.
struct model_specification {
  std::string kind = "gpt"; ///< "gpt", "bert", "mlp" (of tokens), "resnet", "vgg" (of images), "exported" or "plugin"
  std::uint32_t layers = 4; ///< transformer blocks (gpt, bert), linear layers (mlp), or as in the name: ResNet-50
  std::uint32_t width = 64; ///< of the model (gpt, bert), of hidden layers (mlp), channels of the first (images)
  std::uint32_t heads = 4;  ///< attention heads (gpt, bert); divides width
  std::uint32_t sequence = 64;    ///< tokens per sample
  std::uint32_t vocabulary = 256; ///< number of token values; 256 for byte-level text
  double dropout = 0.0;           ///< probability of zeroing, 0 ≤ p < 1; not resnet
  bool tied_embeddings = true;    ///< the output projection is the transposed token embedding (gpt, bert)
  std::uint32_t mask_token = 256; ///< stands for a masked token (bert)
  std::uint32_t image = 32;       ///< height and width of the images, pixels
  std::uint32_t channels = 3;     ///< values per pixel
  std::uint32_t classes = 10;     ///< number of labels of images
  /// exported: the folder with model.json and weights.safetensors, on the nodes too; plugin: what `parcae-node
  /// --describe` wrote, where the job is submitted
  std::string path{};
  std::string exported{}; ///< exported, plugin: what was there; sizes, `images` and `masked` follow from it
  bool images = false;    ///< exported, plugin: of images, not of tokens
  bool masked = false;    ///< exported, plugin: trained to fill in masked tokens
  std::string weights{};  ///< version 0: safetensors, a file or a folder, on the nodes too; empty: none given
  std::vector<std::string> weights_digests{}; ///< of it, by layer; see initial_weights
  std::string plugin{};                       ///< plugin: SHA-256 of the library that has the layers

  bool is_own() const { return kind == "exported" || kind == "plugin"; } ///< of the user's
  bool of_images() const { return kind == "resnet" || kind == "vgg" || (is_own() && images); }
  bool of_masked_tokens() const { return kind == "bert" || (is_own() && masked); }

  friend auto operator<=>(const model_specification&, const model_specification&) = default;
};
BOOST_DESCRIBE_STRUCT(model_specification, (),
                      (kind, layers, width, heads, sequence, vocabulary, dropout, tied_embeddings, mask_token, image,
                       channels, classes, path, exported, images, masked, weights, weights_digests, plugin))

/// One of several places that samples come from.
struct data_source {
  std::string path;         ///< as data_specification::path
  std::uint32_t weight = 1; ///< how many of each W samples are from here; W is the sum of all weights

  friend auto operator<=>(const data_source&, const data_source&) = default;
};
BOOST_DESCRIBE_STRUCT(data_source, (), (path, weight))

/// Where the samples come from.
struct data_specification {
  std::string kind = "text";         ///< "text", "tokens", "images", "image_folder", "columns" or "synthetic"
  std::string path{};                ///< a file, or a folder of files; looked up on the nodes. Not for synthetic data
  std::uint64_t samples = 65'536;    ///< synthetic only
  std::uint64_t seed = 1;            ///< synthetic only
  std::uint64_t validation = 0;      ///< how many samples, the last ones of each source, are not trained on
  std::vector<data_source> source{}; ///< instead of `path`: at least one
  std::uint32_t token_bytes = 2;     ///< tokens only: 2 or 4; files of NumPy say it themselves
  std::uint32_t resize = 0;          ///< image_folder only: of the shorter side, before the crop; 0: model.image
  std::string augment = "none";      ///< image_folder only: "none", "crop" or "shift"
  bool flip = false;                 ///< image_folder only: in training half of the images, drawn, are mirrored
  std::vector<double> mean{};        ///< of pixels, from 0 to 1, by channel; none: 0.5
  std::vector<double> deviation{};   ///< likewise

  /// All paths, for messages.
  std::string where() const;
  /// Of all sources.
  std::uint64_t validation_samples() const { return validation * (source.empty() ? 1 : source.size()); }

  friend auto operator<=>(const data_specification&, const data_specification&) = default;
};
BOOST_DESCRIBE_STRUCT(data_specification, (),
                      (kind, path, samples, seed, validation, source, token_bytes, resize, augment, flip, mean,
                       deviation))

/// The optimizer and its schedule. Moments start at 0; step count and first-step flag are derived from the version.
struct optimizer_specification {
  std::string kind = "adamw"; ///< "adamw" (two moments), "sgd" (one momentum buffer), or "none": the job serves
  double learning_rate = 1e-3;
  std::string schedule = "constant";  ///< "constant", "linear" or "cosine" (decay to 0 just after the last step)
  std::uint64_t schedule_from = 0;    ///< step at which the schedule begins, its warm-up first
  std::uint64_t warmup_steps = 0;     ///< the rate rises linearly over these steps
  double weight_decay = 0.0;          ///< on all tensors alike, unless decay_norms_and_biases says otherwise
  double momentum = 0.9;              ///< sgd only
  double beta1 = 0.9;                 ///< adamw only
  double beta2 = 0.999;               ///< adamw only
  double epsilon = 1e-8;              ///< adamw only
  double clip_norm = 0.0;             ///< largest global gradient norm; 0: no clipping
  bool decay_norms_and_biases = true; ///< false: no weight decay on them; see parameter_runs
  std::string rate_factors{};         ///< "PATTERN=FACTOR, …" on names of tensors: learning rates of their own
};
BOOST_DESCRIBE_STRUCT(optimizer_specification, (),
                      (kind, learning_rate, schedule, schedule_from, warmup_steps, weight_decay, momentum, beta1, beta2,
                       epsilon, clip_norm, decay_norms_and_biases, rate_factors))

/// Where a job's checkpoints are.
struct checkpoint_specification {
  std::string to{}; ///< "s3://BUCKET/PREFIX", or a folder's absolute path on the keepers; empty: their own folders
  std::string endpoint{}; ///< of S3; empty: as the keepers' environment says, or AWS
  std::string region{};   ///< of S3; empty: likewise
};
BOOST_DESCRIBE_STRUCT(checkpoint_specification, (), (to, endpoint, region))

/// What a job may take and cost whose instances the manager rents.
struct budget_specification {
  std::uint64_t deadline_ms = 0;  ///< from its submission; 0: none
  double total_usd = 0;           ///< 0: no limit
  double hourly_usd = 0;          ///< likewise
  std::string first = "deadline"; ///< of "deadline" and "total": what holds if both cannot

  /// Else the job takes what comes, and nothing is rented for it.
  bool is_set() const { return deadline_ms > 0 || total_usd > 0 || hourly_usd > 0; }
};
BOOST_DESCRIBE_STRUCT(budget_specification, (), (deadline_ms, total_usd, hourly_usd, first))

/// How a job that serves answers requests.
struct serving_specification {
  std::string model{}; ///< the name that requests ask for; empty: the job's
  std::string tokenizer =
      "auto";                ///< "bytes", "ids" (requests have tokens, no text), or a tokenizer.json at the gateway
  std::string chat = "none"; ///< how a chat becomes a prompt: "none" (chats are refused), "plain", "chatml", "llama3"
  std::uint32_t context = 0; ///< most positions of a request, prompt and answer; 0: model.sequence
  std::uint64_t cache_bytes = std::uint64_t{1} << 30; ///< of a slot's memory, for keys and values
  std::uint32_t batch = 64;                           ///< requests that a pipeline computes at once, at most
  std::uint32_t chunk = 64;                           ///< rows of prompts in a pass, at most
  std::uint32_t queue = 1000;                         ///< requests that wait for a pipeline; more are refused
  std::uint64_t wait_ms = 60'000;                     ///< that they wait at most
  std::vector<std::uint32_t> stop_tokens{};           ///< an answer ends before one of these
};
BOOST_DESCRIBE_STRUCT(serving_specification, (),
                      (model, tokenizer, chat, context, cache_bytes, batch, chunk, queue, wait_ms, stop_tokens))

/// The checkpoint that a job goes on from.
struct resume_point {
  std::uint64_t steps = 0; ///< committed in it; 0: the job starts anew
  std::string folder;      ///< of the checkpoint, or its URL; looked up by the keepers
  std::string data_digest; ///< of the data that those steps were trained on
};
BOOST_DESCRIBE_STRUCT(resume_point, (), (steps, folder, data_digest))
// Large: what a user asks for, flat as in a job file and the schema.
struct job_specification {
  std::string name = "job";
  std::string kind = "train"; ///< "train" or "serve": answers requests, at version 0, until it is cancelled
  std::uint64_t steps = 100;
  std::uint64_t seed = 1;
  std::uint32_t threads = 1;             ///< intra-op threads of every executor; part of the exactness contract
  bool reproducible = true;              ///< false: plain all-reduce
  std::string precision = "float32";     ///< of matrix products: "float32" or "bfloat16"
  std::string gradient_sums = "float32"; ///< over micro-batches and replicas: "float32", "bfloat16" rounds each
  std::string transport = "auto";        ///< of tensors between slots: "auto", "tcp" or "nccl"; no bit depends on it
  std::string on_not_finite =
      "stop";                       ///< loss or gradients of a step: the job fails, "skip": it changes nothing, "go_on"
  std::uint64_t evaluate_every = 0; ///< steps between evaluations on the validation samples, also at both ends; 0: none
  model_specification model;
  data_specification data;
  std::uint32_t global_batch = 16; ///< samples per step; never changes with (D, P)
  std::uint32_t micro_batch = 4;   ///< samples per micro-batch; divides global_batch
  optimizer_specification optimizer;
  std::uint32_t min_depth = 1; ///< pipeline stages, inclusive bounds
  std::uint32_t max_depth = 64;
  std::uint32_t min_width = 1; ///< pipelines (data parallel), inclusive bounds
  std::uint32_t max_width = 64;
  std::uint32_t virtual_replicas = 4; ///< V: divides the number of micro-batches; D ≤ V
  bool recompute = false;             ///< activations inside layers are computed again for the backward pass
  bool feed = true;                   ///< layers go ahead of changes, while training goes on, where links have room
  std::uint64_t keeper_every = 0;     ///< steps between snapshots to the keepers; 0: as often as links allow
  double keeper_share_of_link = 0.5;  ///< that those take at most which come as often as links allow
  std::uint32_t keeper_copies = 1;    ///< keepers that hold each layer
  std::string policy = "liveput";     ///< planning policy: "liveput" or "throughput"
  std::uint64_t planning_interval_ms = 60'000;
  std::uint32_t look_ahead = 12;
  std::uint64_t checkpoint_every = 0;    ///< least steps between checkpoints; 0: none for their number
  std::uint64_t checkpoint_every_ms = 0; ///< least time between checkpoints; 0: none for the time
  std::uint32_t checkpoints_kept = 2;    ///< how many checkpoints stay on disk: the newest
  std::uint32_t min_instances = 1;       ///< usable ones that it waits for before it begins
  std::uint32_t patience = 0;            ///< evaluations in a row without a better loss, after which it ends; 0: never
  double min_delta = 0;                  ///< a loss is better if it is less than the best by more than this
  checkpoint_specification checkpoint;
  budget_specification budget;
  resume_point resume; ///< not in job files: `parcae submit --resume`
  serving_specification serve;

  bool serves() const { return kind == "serve"; }
  /// Positions that a request of a served model has at most.
  std::uint32_t context() const { return serve.context > 0 ? serve.context : model.sequence; }
  /// The name that requests for it have.
  const std::string& served_name() const { return serve.model.empty() ? name : serve.model; }
  /// M, micro-batches per step.
  std::uint32_t micro_batches() const { return global_batch / micro_batch; }
  /// Whether products of matrices and attention are computed in bfloat16; all else is float32 anyway.
  bool in_bfloat16() const { return precision == "bfloat16"; }
  /// Whether each sum of the tree over virtual replicas is rounded to bfloat16.
  bool sums_in_bfloat16() const { return gradient_sums == "bfloat16"; }
  /// Bytes of such a sum of what has `float32_bytes` in float32.
  std::uint64_t sum_bytes(std::uint64_t float32_bytes) const {
    return sums_in_bfloat16() ? float32_bytes / 2 : float32_bytes;
  }
  /// Snapshots take what is left of links, and no more than their share; else they come by their number.
  bool paces_snapshots() const { return keeper_every == 0; }
  /// Whether the version after these steps is to go to the keepers, once no earlier one is on its way.
  bool snapshot_is_due(std::uint64_t steps) const { return paces_snapshots() || steps % keeper_every == 0; }
};
BOOST_DESCRIBE_STRUCT(job_specification, (),
                      (name, steps, seed, threads, reproducible, model, data, global_batch, micro_batch, optimizer,
                       min_depth, max_depth, min_width, max_width, virtual_replicas, keeper_every, keeper_share_of_link,
                       keeper_copies, policy, planning_interval_ms, look_ahead, checkpoint_every, checkpoints_kept,
                       resume, evaluate_every, recompute, min_instances, patience, min_delta, checkpoint, precision,
                       transport, on_not_finite, checkpoint_every_ms, budget, gradient_sums, feed, kind, serve))

/// Empty if the job can run; else one line: the key, what is wrong with it, and what would be right.
std::string problem_of(const job_specification& job);

} // namespace parcae

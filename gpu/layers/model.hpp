#pragma once

// Layers as pure functions on LibTorch tensors, all of one device. Only sources of gpu/ and tests include this.

#include "gpu/layers/tensor_device.hpp"
#include "protocols/model/model_description.hpp"

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

namespace parcae {

/// Where in the job a forward pass is; seeds all of its random numbers (HOW_IT_WORKS.md, "What makes runs
/// bit-identical").
struct random_position {
  std::uint64_t seed = 0; ///< the job's
  std::uint64_t step = 0;
  std::uint32_t micro_batch = 0; ///< logical id within the step
};

/// What makes real numbers of pixels: pixel · scale + shift, each [channels, 1, 1].
struct pixel_scale {
  at::Tensor scale;
  at::Tensor shift;
};

/// (pixel / 255 - mean) / deviation. Undefined tensors: the job says neither, and the model does as it always did.
pixel_scale pixel_scale_of(const job_specification& x, const tensor_device& on = processor());

/// Where a served model's keys and values of earlier positions are.
class row_caches {
public:
  virtual ~row_caches() = default;

  /// Attention of rows, in float32: takes their keys and values in this layer; then each row mixes the values of its
  /// request's positions from 0 to its own. queries: [rows, heads, 1, size], scores are multiplied with `scale`; keys,
  /// values: [rows, key heads, 1, size], each for as many neighbouring heads. Returns the queries' shape and type.
  virtual at::Tensor attend(std::uint32_t layer, const at::Tensor& queries, const at::Tensor& keys,
                            const at::Tensor& values, double scale) = 0;
};

/// What a pass has whose samples are rows: of any requests, one position each.
struct row_context {
  at::Tensor positions; ///< int64 [rows, 1]
  row_caches* caches;   ///< outlives the pass
};

/// What a forward pass of one layer has besides parameters and input.
struct forward_pass {
  random_position position = {}; ///< training
  bool training = true;          ///< false: no dropout, and BatchNorm uses the running statistics
  at::Tensor buffers = {};       ///< evaluation: the layer's flat buffers, if it has any
  /// Training: room for as many values as the layer's flat buffers have; takes what this micro-batch adds to them (mean
  /// and unbiased variance of each BatchNorm). Undefined: not wanted.
  at::Tensor statistics = {};
  at::Tensor targets = {}; ///< of the last layer, if that returns the loss: int64 [samples, as the description says]
  std::vector<at::Tensor> extras = {}; ///< of the description's: int64 [samples, …]; for layers that read them
  /// Evaluation: a sample is one position, and what lies between positions is the caches'. Null: whole sequences.
  const row_context* rows = nullptr;
  const pixel_scale* pixels = nullptr; ///< for the first layer of built-in models of images
  tensor_device on = processor();      ///< where all of this is, and parameters and input
};

/// One layer. Stateless: parameters are given, so that several generations can share one.
class layer {
public:
  virtual ~layer() = default;

  /// parameters: views of the flat buffer in the order and shapes of the description; matrices may be bfloat16, and are
  /// multiplied with in that type. input: for layer 0 int64
  /// [samples, …] of the model's input shape, token or pixel values; else the output of the layer before. Returns
  /// float32 [samples, …]; the last layer returns logits, or the loss. Uses no random numbers but those seeded by the
  /// pass's position and the layer's own number.
  virtual at::Tensor forward(const std::vector<at::Tensor>& parameters, const at::Tensor& input,
                             const forward_pass& pass) const = 0;
};

/// All layers of a model, in order; as many as describe() says. Those of an exported model read its constants from its
/// folder, those of a plug-in want it open (gpu/plugin/plugins.hpp), and throw exported_model_error.
std::vector<std::unique_ptr<layer>> make_layers(const model_specification& x, const tensor_device& on = processor());

/// Room on the host for the inputs (all of a sample's, one after the other) and the targets of `samples` samples,
/// int64. sample_values() is the way to fill it.
struct sample_tensors {
  at::Tensor inputs;
  at::Tensor targets;
};
sample_tensors empty_samples(const model_description& model, std::int64_t samples);

/// What of the inputs the first layer takes, and the extra ones.
at::Tensor first_input(const model_description& model, const at::Tensor& inputs);
std::vector<at::Tensor> extra_inputs(const model_description& model, const at::Tensor& inputs);

/// The values of one of the samples.
std::span<std::int64_t> sample_values(const at::Tensor& of_all, std::int64_t sample);

/// Whether an exported model, or a plug-in's, is what it says, before anyone trains it: constants by their digests, and
/// every graph or layer by running it on two samples of zeros where it is to be trained, forward and backward: what has
/// no deterministic gradient there is refused. Blocks; throws exported_model_error, std::bad_alloc.
void try_own_model(const model_specification& x, const tensor_device& on = processor());

/// Whether version 0 is drawn from a seed, or read: of an exported model, or from model.weights.
bool is_stored(const model_specification& x);

/// Reads all of a stored version 0 and compares it with its digests. All files are below `folders` (require_within).
/// Blocks; throws exported_model_error or weights_error.
void try_stored_layers(const model_specification& x, const std::vector<std::filesystem::path>& folders);

/// Copies what model.weights names by URL, if it is not what is here. Blocks; throws weights_error or store_error.
void fetch_stored_layers(const model_specification& x, const std::vector<std::filesystem::path>& folders,
                         const std::stop_token& stop);

/// The loss of a micro-batch, a scalar, of the last layer's output. targets: int64 [samples, as the description says].
at::Tensor loss_of(const model_description& model, const at::Tensor& output, const at::Tensor& targets);

/// Mean cross-entropy; `no_target` does not count.
at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& targets);

/// Version 0 of a layer's flat parameter buffer, float32, drawn tensor by tensor from the stream that
/// mix_seed(seed, tensor's name) names (gpu/device/random.hpp): the same bits on every processor. A tied tensor takes
/// the name of its first use.
at::Tensor initial_parameters(const model_description& model, std::uint32_t layer, std::uint64_t seed,
                              const tensor_device& on = processor());

/// A stored version 0 of a layer, on the host: flat parameters, flat buffers (undefined if it has none). Throws
/// exported_model_error or weights_error.
struct stored_state {
  at::Tensor parameters;
  at::Tensor buffers;
};
stored_state stored_state_of(const model_specification& x, std::uint32_t layer);

/// Version 0 of a layer's flat buffers; undefined if it has none.
at::Tensor initial_buffers(const layer_description& layer, const tensor_device& on = processor());

/// Which of a layer's flat buffers are variances: bool, as long as they; undefined if it has none.
at::Tensor variances_in(const layer_description& layer, const tensor_device& on = processor());

/// The running statistics after some micro-batches, one after the other: the share of each is 0.1, as PyTorch's
/// BatchNorm has it. `statistics`: [micro-batches, values], of the buffers' type; `is_variance`: see variances_in.
/// Rounds as PyTorch does on processors, so has its bits (ATen/native/Normalization.cpp,
/// batch_norm_cpu_update_stats_template, contiguous inputs): shares are float32, both products of a mean are rounded to
/// float32 before they are added, of a variance only that with what was there.
void update_buffers(at::Tensor& buffers, const at::Tensor& statistics, const at::Tensor& is_variance);

/// Views of a flat buffer (parameters or gradients) with the tensors' shapes; they share its memory.
std::vector<at::Tensor> views_of(const layer_description& layer, const at::Tensor& flat);

} // namespace parcae

#pragma once

// What a model consists of, as the planner and the executors need to know it. Torch-free and pure.

#include "protocols/values/job_specification.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace parcae {

/// How a tensor of version 0 is drawn.
enum class initial_value : std::uint8_t {
  zeros,
  ones,
  normal,  ///< mean 0, standard deviation `scale`
  uniform, ///< in [-scale, scale)
  stored,  ///< in the weights of an exported model
};

struct tensor_description {
  std::string name; ///< unique within the model, as a PyTorch user expects it
  std::vector<std::int64_t> shape;
  initial_value initial = initial_value::zeros;
  double scale = 0;
  bool is_matrix = false;   ///< a factor of products, in the type that job.precision says
  bool is_variance = false; ///< a running variance: those are rounded otherwise than means (gpu/layers/model.hpp)

  std::uint64_t values() const; ///< number of elements
};

/// One unit of pipeline partitioning. Its parameters are one flat float32 buffer, the tensors one after the other; so
/// are its buffers.
struct layer_description {
  std::string name;
  std::vector<tensor_description> tensors;
  std::vector<tensor_description> buffers; ///< state without gradients: running statistics of BatchNorm
  std::vector<std::int64_t> output;        ///< shape of one sample's output; the last layer's are the logits
  double forward_flop = 0;      ///< floating-point operations of one sample's forward pass; backward is twice that
  double activation_values = 0; ///< float32 values per sample kept from forward to backward: the output and what lies
                                ///< within, not the input; the last layer's include the loss's
  /// Bytes of the same if products are in bfloat16, with the input's copy for them; 0 for models of users.
  double bfloat16_activation_bytes = 0;

  bool reads_extras = false; ///< see model_description::extras

  std::uint64_t parameters() const;    ///< elements of the flat parameters
  std::uint64_t buffer_values() const; ///< elements of the flat buffers
  std::uint64_t output_values() const; ///< elements of one sample's output
  bool has_matrices() const;
};

/// Two tensors of the same shape that are one parameter: both layers hold a copy (with moments of its own, equal in
/// every bit); gradients are added input use first, output use second, and counted once in the norm, with the first.
struct tied_tensors {
  std::uint32_t first_layer = 0; ///< input use
  std::uint32_t first_tensor = 0;
  std::uint32_t second_layer = 0; ///< output use
  std::uint32_t second_tensor = 0;
};

/// Stands for a place where nothing is to be predicted.
inline constexpr std::int64_t no_target = -100;

/// What training makes small; the mean over a micro-batch.
enum class loss_kind : std::uint8_t {
  cross_entropy,      ///< of the last layer's output, logits
  mean_squared_error, ///< of the last layer's output, and targets as real numbers
  in_last_layer,      ///< the last layer is given the targets and returns it
};

/// What a sample has besides tokens or pixels: an attention mask, say. Every layer may read it.
struct extra_input {
  std::string name;
  std::vector<std::int64_t> shape;

  std::uint64_t values() const;
};

struct model_description {
  std::vector<std::int64_t> input; ///< shape of one sample: tokens, or channels, height and width of an image
  std::uint64_t targets = 0;       ///< of one sample: one per token, or the label
  std::vector<layer_description> layers;
  std::optional<tied_tensors> tied;
  loss_kind loss = loss_kind::cross_entropy;
  std::vector<extra_input> extras{}; ///< exported models only; of int64, as the input is

  /// All inputs of one sample; the extra ones behind the first.
  std::uint64_t input_values() const;
  std::uint64_t parameters() const; ///< of all layers, a tied tensor counted once
};

/// Names, shapes and initial values are those of Hugging Face's GPT-2 and BERT (masked language model) and of
/// torchvision's ResNet and VGG. Weights of linear layers are stored [out, in], as torch.nn.Linear does (Hugging Face's
/// GPT-2 stores c_attn, c_proj and c_fc transposed). Throws std::invalid_argument if the kind is not known, and
/// exported_model_error.
model_description describe(const model_specification& x);

/// What is wrong with an exported model, or with a job's depth for its model, as problem_of says the rest; empty:
/// nothing. The job has no other problem.
std::string model_problem_of(const job_specification& x);

/// Of a model that can be served: float32 values that attention keeps of a position, by layer. Throws
/// exported_model_error.
std::vector<std::uint64_t> cached_values(const model_specification& x);

/// Flat float32 buffers that an optimizer keeps per layer besides the parameters: 2 for adamw, 1 for sgd, 0
/// for none.
std::uint32_t moments_of(const optimizer_specification& x);

/// Learning rate of a step (0-based) of a job of `steps` steps: in the first warmup_steps steps from schedule_from on
/// it rises by equal amounts up to the full rate; then it stays, or decays along a line or half a cosine that reaches 0
/// just after the last step.
double learning_rate(const optimizer_specification& x, std::uint64_t step, std::uint64_t steps);

} // namespace parcae

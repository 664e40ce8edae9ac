#pragma once

// Layers of your own, written in C++ with LibTorch: include this, derive from `layer`, say PARCAE_PLUGIN once, build a
// shared library against the LibTorch of the nodes (2.11.0), and start each of them with `--plugin FILE`. Needs C++20.
// deploy/examples/plugin is one.

#include <ATen/core/Tensor.h>
#include <torch/version.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#ifdef _GLIBCXX_DEBUG
#define PARCAE_PLUGIN_CONTAINERS ", debug mode"
#else
#define PARCAE_PLUGIN_CONTAINERS ""
#endif
#if defined(_GLIBCXX_USE_CXX11_ABI) && _GLIBCXX_USE_CXX11_ABI
#define PARCAE_PLUGIN_LIBRARY "libstdc++"
#else
#define PARCAE_PLUGIN_LIBRARY "another standard library"
#endif

/// What library and node must have in common to understand each other's objects. This header's number is part of it.
#define PARCAE_PLUGIN_BUILD "interface 1, torch " TORCH_VERSION ", " PARCAE_PLUGIN_LIBRARY PARCAE_PLUGIN_CONTAINERS

namespace parcae::plugin {

/// A parameter or a buffer, float32. Version 0 is drawn from the job's seed and the name.
struct tensor {
  enum class start : std::uint8_t {
    zeros,
    ones,
    normal,  ///< mean 0, standard deviation `scale`
    uniform, ///< in [-scale, scale)
  };

  std::string name{}; ///< unique within the model, as exports have it
  std::vector<std::int64_t> shape{};
  start initial = start::zeros; ///< of buffers zeros or ones
  double scale = 0;
};

/// What is known of a layer before it runs: pipelines are cut, and memory is planned, by it.
struct layer_facts {
  std::string name{};                 ///< for people
  std::vector<tensor> parameters{};   ///< at least one
  std::vector<tensor> buffers{};      ///< of batch_norm: a mean and a variance each
  std::vector<std::int64_t> output{}; ///< shape of one sample's; empty: the last layer returns the loss
  double forward_flop = 0;            ///< floating-point operations of one sample's forward pass
  double activation_values = 0; ///< float32 values per sample kept for the backward pass: the output and what is within
};

/// What a forward pass has besides parameters and input. All random numbers come from here, seeded by step, micro-batch
/// and layer; PyTorch's own generator is refused, as its numbers would depend on who trained before.
class pass {
public:
  virtual bool training() const = 0;
  virtual at::Tensor dropout(const at::Tensor& x, double probability) = 0;

  /// Of [samples, channels, …]. The running mean and variance are the layer's buffers `first` and `first` + 1; in
  /// training they are updated at the commit, by 0.1.
  virtual at::Tensor batch_norm(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift,
                                std::size_t first, double epsilon = 1e-5) = 0;

  /// int64 [samples, …]; of a last layer that returns the loss.
  virtual at::Tensor targets() const = 0;

protected:
  ~pass() = default;
};

/// A unit of pipelining. One object computes for several generations, perhaps at once: it must not change.
class layer {
public:
  virtual ~layer() = default;
  virtual layer_facts facts() const = 0;

  /// parameters: in the order and shapes of the facts; must not be written to. input: of the first layer int64
  /// [samples, …], token or pixel values (0 … 255); else float32, the output of the layer before. Returns float32
  /// [samples, …], of the last layer logits, or the loss.
  virtual at::Tensor forward(const std::vector<at::Tensor>& parameters, const at::Tensor& input, pass& with) const = 0;
};

struct tokens {
  std::uint32_t sequence = 64;
  std::uint32_t vocabulary = 256;
  std::uint32_t classes = 0; ///< a label for each sample; 0: the next token at each place
};

struct images {
  std::uint32_t channels = 3;
  std::uint32_t size = 32; ///< height and width
  std::uint32_t classes = 10;
};

enum class loss : std::uint8_t {
  cross_entropy,      ///< of logits
  mean_squared_error, ///< of the output, and targets as real numbers
  in_last_layer,      ///< the last layer returns it
};

struct model {
  std::variant<tokens, images> input;
  std::vector<std::unique_ptr<layer>> layers;
  plugin::loss loss = loss::cross_entropy;
};

/// What was said behind `--describe NAME`: depth=4 width=64.
using arguments = std::map<std::string, std::string>;

/// One name for one kind of model. The same arguments must always make the same model. May throw std::exception, whose
/// text people then read.
struct named_model {
  const char* name;
  model (*make)(const arguments&);
};

/// What a node looks for. `build` stays where it is for ever.
struct library {
  const char* build;
  const named_model* models;
  std::size_t count;
};

} // namespace parcae::plugin

/// Once in a library: PARCAE_PLUGIN({"mixer", make_mixer}, {"other", make_other})
#define PARCAE_PLUGIN(...)                                                                                             \
  namespace {                                                                                                          \
  constexpr parcae::plugin::named_model parcae_plugin_models[] = {__VA_ARGS__};                                        \
  }                                                                                                                    \
  extern "C" __attribute__((visibility("default"))) const parcae::plugin::library parcae_plugin;                       \
  const parcae::plugin::library parcae_plugin = {PARCAE_PLUGIN_BUILD, parcae_plugin_models,                            \
                                                 sizeof(parcae_plugin_models) / sizeof(parcae_plugin_models[0])};

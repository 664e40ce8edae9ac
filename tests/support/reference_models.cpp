#include "tests/support/reference_models.hpp"

#include "gpu/data/samples.hpp"
#include "gpu/layers/model.hpp"

#include <ATen/Parallel.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace parcae {

namespace nn = torch::nn;

namespace {

nn::LayerNorm layer_norm(std::int64_t width) {
  return nn::LayerNorm(nn::LayerNormOptions({width}).eps(1e-12));
}

struct reference_bert : reference_model {
  struct block {
    nn::MultiheadAttention attention{nullptr};
    nn::LayerNorm norm_1{nullptr}, norm_2{nullptr};
    nn::Linear wide{nullptr}, narrow{nullptr};
  };

  explicit reference_bert(const model_specification& x) :
      words(x.vocabulary, x.width), positions(x.sequence, x.width), types(2, x.width), norm(layer_norm(x.width)),
      transform(x.width, x.width), transform_norm(layer_norm(x.width)) {
    const std::int64_t w = x.width;
    add("bert.embeddings.word_embeddings", words);
    add("bert.embeddings.position_embeddings", positions);
    add("bert.embeddings.token_type_embeddings", types);
    add("bert.embeddings.LayerNorm", norm);
    for (std::uint32_t i = 0; i < x.layers; ++i) {
      block b{nn::MultiheadAttention(nn::MultiheadAttentionOptions(w, x.heads)), layer_norm(w), layer_norm(w),
              nn::Linear(w, 4 * w), nn::Linear(4 * w, w)};
      const auto prefix = "bert.encoder.layer." + std::to_string(i);
      add(prefix + ".attention.output.LayerNorm", b.norm_1);
      add(prefix + ".output.LayerNorm", b.norm_2);
      add(prefix + ".intermediate.dense", b.wide);
      add(prefix + ".output.dense", b.narrow);
      register_module("attention" + std::to_string(i), b.attention);
      // The module keeps the three projections in one.
      for (int k = 0; k < 3; ++k) {
        const auto part = prefix + ".attention.self." + std::vector<std::string>{"query", "key", "value"}[k];
        named[part + ".weight"] = b.attention->in_proj_weight.detach().narrow(0, k * w, w);
        named[part + ".bias"] = b.attention->in_proj_bias.detach().narrow(0, k * w, w);
      }
      named[prefix + ".attention.output.dense.weight"] = b.attention->out_proj->weight;
      named[prefix + ".attention.output.dense.bias"] = b.attention->out_proj->bias;
      blocks.push_back(b);
    }
    add("cls.predictions.transform.dense", transform);
    add("cls.predictions.transform.LayerNorm", transform_norm);
    output = words->weight;
    if (!x.tied_embeddings)
      output = register_parameter("output", torch::empty({x.vocabulary, w}));
    named["cls.predictions.decoder.weight"] = output;
    named["cls.predictions.bias"] = bias = register_parameter("bias", torch::empty({x.vocabulary}));
  }

  template <class Module>
  void add(const std::string& name, const Module& module) {
    auto flat_name = name;
    std::replace(flat_name.begin(), flat_name.end(), '.', '_');
    register_module(flat_name, module);
    for (const auto& x : module->named_parameters())
      named[name + "." + x.key()] = x.value();
  }

  torch::Tensor run(const torch::Tensor& tokens) override {
    auto gelu = [](const torch::Tensor& x) { return 0.5 * x * (1 + torch::erf(x / std::sqrt(2.0))); };
    auto x = norm(words(tokens) + positions(torch::arange(tokens.size(1))) + types(torch::zeros_like(tokens)));
    for (auto& b : blocks) {
      const auto y = x.transpose(0, 1); // the module wants [sequence, samples, width]
      x = b.norm_1(x + std::get<0>(b.attention->forward(y, y, y)).transpose(0, 1));
      x = b.norm_2(x + b.narrow(gelu(b.wide(x))));
    }
    return torch::matmul(transform_norm(gelu(transform(x))), output.t()) + bias;
  }

  nn::Embedding words, positions, types;
  nn::LayerNorm norm;
  std::vector<block> blocks;
  nn::Linear transform;
  nn::LayerNorm transform_norm;
  torch::Tensor output, bias;
};

torch::Tensor scaled(const torch::Tensor& pixels, torch::Dtype type) {
  return pixels.to(type) / 127.5 - 1;
}

/// ResNets for small images, and those of basic blocks or bottlenecks for large ones.
struct reference_resnet : reference_model {
  struct unit { // a convolution and its norm
    nn::Conv2d convolution{nullptr};
    nn::BatchNorm2d norm{nullptr};

    torch::Tensor operator()(const torch::Tensor& x) { return norm(convolution(x)); }
  };

  struct block {
    std::vector<unit> body;
    std::vector<unit> shortcut; ///< one or none
  };

  explicit reference_resnet(const model_specification& x) : head(nullptr) {
    large = x.layers == 18 || x.layers == 34 || x.layers == 50;
    const bool bottleneck = x.layers == 50;
    stem = add("conv1", "bn1", x.channels, x.width, large ? 7 : 3, large ? 2 : 1);
    auto counts = large ? std::vector<int>{3, 4, 6, 3} : std::vector<int>(3, static_cast<int>(x.layers - 2) / 6);
    if (x.layers == 18)
      counts = {2, 2, 2, 2};
    std::int64_t in = x.width, width = x.width;
    for (std::size_t stage = 0; stage < counts.size(); ++stage, width *= 2)
      for (int i = 0; i < counts[stage]; ++i) {
        const auto name = "layer" + std::to_string(stage + 1) + "." + std::to_string(i) + ".";
        const auto stride = stage > 0 && i == 0 ? 2 : 1;
        const auto out = bottleneck ? 4 * width : width;
        block b;
        if (bottleneck) {
          b.body.push_back(add(name + "conv1", name + "bn1", in, width, 1, 1));
          b.body.push_back(add(name + "conv2", name + "bn2", width, width, 3, stride));
          b.body.push_back(add(name + "conv3", name + "bn3", width, out, 1, 1));
        } else {
          b.body.push_back(add(name + "conv1", name + "bn1", in, width, 3, stride));
          b.body.push_back(add(name + "conv2", name + "bn2", width, out, 3, 1));
        }
        if (in != out || stride != 1)
          b.shortcut.push_back(add(name + "downsample.0", name + "downsample.1", in, out, 1, stride));
        blocks.push_back(b);
        in = out;
      }
    head = register_module("fc", nn::Linear(in, x.classes));
    named["fc.weight"] = head->weight;
    named["fc.bias"] = head->bias;
  }

  unit add(const std::string& convolution, const std::string& norm, std::int64_t in, std::int64_t out,
           std::int64_t kernel, std::int64_t stride) {
    unit x{nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false)),
           nn::BatchNorm2d(out)};
    register_module("convolution" + std::to_string(named.size()), x.convolution);
    register_module("norm" + std::to_string(named.size()), x.norm);
    named[convolution + ".weight"] = x.convolution->weight;
    named[norm + ".weight"] = x.norm->weight;
    named[norm + ".bias"] = x.norm->bias;
    named[norm + ".running_mean"] = x.norm->running_mean;
    named[norm + ".running_var"] = x.norm->running_var;
    return x;
  }

  torch::Tensor run(const torch::Tensor& pixels) override {
    auto x = torch::relu(stem(scaled(pixels, head->weight.scalar_type())));
    if (large)
      x = torch::max_pool2d(x, 3, 2, 1);
    for (auto& b : blocks) {
      auto y = x;
      for (std::size_t i = 0; i < b.body.size(); ++i)
        y = i + 1 < b.body.size() ? torch::relu(b.body[i](y)) : b.body[i](y);
      x = torch::relu(y + (b.shortcut.empty() ? x : b.shortcut[0](x)));
    }
    return head(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }

  bool large = false;
  unit stem;
  std::vector<block> blocks;
  nn::Linear head;
};

struct reference_vgg : reference_model {
  explicit reference_vgg(const model_specification& x) {
    if (x.layers != 11)
      throw std::invalid_argument("the reference is VGG-11");
    std::int64_t in = x.channels, w = x.width;
    auto convolution = [&](std::int64_t out, bool pools) {
      features->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1)));
      features->push_back(nn::ReLU());
      if (pools)
        features->push_back(nn::MaxPool2d(2));
      in = out;
    };
    convolution(w, true);
    convolution(2 * w, true);
    convolution(4 * w, false);
    convolution(4 * w, true);
    convolution(8 * w, false);
    convolution(8 * w, true);
    convolution(8 * w, false);
    convolution(8 * w, true);
    classifier = nn::Sequential(nn::Linear(in * (x.image / 32) * (x.image / 32), 64 * w), nn::ReLU(), nn::Identity(),
                                nn::Linear(64 * w, 64 * w), nn::ReLU(), nn::Identity(), nn::Linear(64 * w, x.classes));
    register_module("features", features);
    register_module("classifier", classifier);
    for (const auto& p : named_parameters())
      named[p.key()] = p.value();
  }

  torch::Tensor run(const torch::Tensor& pixels) override {
    const auto type = parameters().front().scalar_type();
    return classifier->forward(features->forward(scaled(pixels, type)).flatten(1));
  }

  nn::Sequential features, classifier;
};

} // namespace

std::shared_ptr<reference_model> make_reference(const model_specification& x) {
  if (x.kind == "bert")
    return std::make_shared<reference_bert>(x);
  if (x.kind == "resnet")
    return std::make_shared<reference_resnet>(x);
  if (x.kind == "vgg")
    return std::make_shared<reference_vgg>(x);
  throw std::invalid_argument("no reference for " + x.kind);
}

std::shared_ptr<reference_model> make_reference(const model_specification& x, std::uint64_t seed, torch::Dtype type) {
  auto model = make_reference(x);
  {
    torch::NoGradGuard no_grad;
    const auto description = describe(x);
    for (std::uint32_t i = 0; i < description.layers.size(); ++i) {
      const auto views = views_of(description.layers[i], initial_parameters(description, i, seed));
      for (std::size_t k = 0; k < views.size(); ++k)
        model->named.at(description.layers[i].tensors[k].name).copy_(views[k]);
    }
  }
  model->to(type);
  return model;
}

torch::Tensor reference_loss(reference_model& model, const torch::Tensor& inputs, const torch::Tensor& targets) {
  auto logits = model.run(inputs);
  logits = torch::log_softmax(logits.reshape({-1, logits.size(-1)}), -1);
  const auto wanted = targets.reshape({-1});
  const auto places = wanted.ge(0).nonzero().squeeze(1);
  return -logits.index_select(0, places).gather(1, wanted.index_select(0, places).unsqueeze(1)).mean();
}

plain_training train_plainly(const job_specification& job, torch::Dtype type) {
  at::set_num_threads(1);
  const auto description = describe(job.model);
  auto model = make_reference(job.model, job.seed, type);
  sample_source samples(job, load_dataset(job.data, job.model));
  auto loss_over = [&](std::int64_t count, auto&& read) {
    auto [inputs, targets] = empty_samples(description, count);
    for (std::int64_t i = 0; i < count; ++i)
      read(static_cast<std::uint64_t>(i), sample_values(inputs, i), sample_values(targets, i));
    return reference_loss(*model, inputs, targets);
  };
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(job.optimizer.learning_rate)
                                                         .weight_decay(job.optimizer.weight_decay)
                                                         .eps(job.optimizer.epsilon));
  plain_training result;
  auto evaluate = [&] {
    torch::NoGradGuard no_grad;
    model->eval();
    const auto count = static_cast<std::int64_t>(job.data.validation);
    result.validation_losses.push_back(loss_over(count, [&](auto i, auto input, auto target) {
                                         samples.validation(i, input, target);
                                       }).template item<double>());
    model->train();
  };
  for (std::uint64_t step = 0; step < job.steps; ++step) {
    if (job.evaluate_every > 0 && step % job.evaluate_every == 0)
      evaluate();
    for (auto& group : optimizer.param_groups())
      static_cast<torch::optim::AdamWOptions&>(group.options()).lr(learning_rate(job.optimizer, step, job.steps));
    optimizer.zero_grad();
    double sum = 0;
    for (std::uint32_t m = 0; m < job.micro_batches(); ++m) {
      const auto first = step * job.global_batch + std::uint64_t{m} * job.micro_batch;
      auto loss = loss_over(job.micro_batch,
                            [&](auto i, auto input, auto target) { samples.training(first + i, input, target); });
      (loss / static_cast<double>(job.micro_batches())).backward();
      sum += loss.template item<double>();
    }
    if (job.optimizer.clip_norm > 0)
      nn::utils::clip_grad_norm_(model->parameters(), job.optimizer.clip_norm);
    optimizer.step();
    result.losses.push_back(sum / job.micro_batches());
  }
  if (job.evaluate_every > 0)
    evaluate();
  for (const auto& [name, value] : model->named)
    (name.find("running") != name.npos ? result.statistics : result.parameters)[name] = value.detach();
  return result;
}

} // namespace parcae

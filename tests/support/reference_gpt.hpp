#pragma once

// A GPT written independently of gpu/, with torch::nn: the oracle for layers and training.

#include "protocols/values/job_specification.hpp"

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>
#include <map>
#include <string>

namespace parcae {

namespace nn = torch::nn;

/// A pre-norm transformer block after the GPT-2 paper, with PyTorch's own multi-head attention.
struct reference_block : nn::Module {
  explicit reference_block(const model_specification& x) :
      ln_1(nn::LayerNormOptions({x.width})), attn(nn::MultiheadAttentionOptions(x.width, x.heads)),
      ln_2(nn::LayerNormOptions({x.width})), c_fc(x.width, 4 * x.width), c_proj(4 * x.width, x.width) {
    register_module("ln_1", ln_1);
    register_module("attn", attn);
    register_module("ln_2", ln_2);
    register_module("c_fc", c_fc);
    register_module("c_proj", c_proj);
  }

  torch::Tensor forward(torch::Tensor x) {
    auto length = x.size(1);
    auto later = torch::full({length, length}, -INFINITY).triu(1); // the module adds it to the scores
    auto y = ln_1(x).transpose(0, 1);                              // the module wants [sequence, samples, width]
    x = x + std::get<0>(attn->forward(y, y, y, {}, false, later)).transpose(0, 1);
    auto z = c_fc(ln_2(x));
    auto activated = 0.5 * z * (1 + torch::tanh(std::sqrt(2 / M_PI) * (z + 0.044715 * z.pow(3))));
    return x + c_proj(activated);
  }

  nn::LayerNorm ln_1;
  nn::MultiheadAttention attn;
  nn::LayerNorm ln_2;
  nn::Linear c_fc;
  nn::Linear c_proj;
};

struct reference_gpt : nn::Module {
  explicit reference_gpt(const model_specification& x) :
      wte(x.vocabulary, x.width), wpe(x.sequence, x.width), ln_f(nn::LayerNormOptions({x.width})) {
    register_module("wte", wte);
    register_module("wpe", wpe);
    for (std::uint32_t i = 0; i < x.layers; ++i)
      blocks.push_back(register_module("h" + std::to_string(i), std::make_shared<reference_block>(x)));
    register_module("ln_f", ln_f);
    output = wte->weight;
    if (!x.tied_embeddings)
      output = register_parameter("output", torch::empty({x.vocabulary, x.width}));
  }

  torch::Tensor forward(const torch::Tensor& tokens) {
    auto x = wte(tokens) + wpe(torch::arange(tokens.size(1)));
    for (auto& block : blocks)
      x = block->forward(x);
    return torch::matmul(ln_f(x), output.t());
  }

  /// Parameters by the names of the description.
  std::map<std::string, torch::Tensor> named() {
    std::map<std::string, torch::Tensor> result{{"transformer.wte.weight", wte->weight},
                                                {"transformer.wpe.weight", wpe->weight},
                                                {"transformer.ln_f.weight", ln_f->weight},
                                                {"transformer.ln_f.bias", ln_f->bias},
                                                {"lm_head.weight", output}};
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      auto& b = *blocks[i];
      auto add = [&](const std::string& name, const torch::Tensor& value) {
        result["transformer.h." + std::to_string(i) + "." + name] = value;
      };
      add("ln_1.weight", b.ln_1->weight);
      add("ln_1.bias", b.ln_1->bias);
      add("attn.c_attn.weight", b.attn->in_proj_weight);
      add("attn.c_attn.bias", b.attn->in_proj_bias);
      add("attn.c_proj.weight", b.attn->out_proj->weight);
      add("attn.c_proj.bias", b.attn->out_proj->bias);
      add("ln_2.weight", b.ln_2->weight);
      add("ln_2.bias", b.ln_2->bias);
      add("mlp.c_fc.weight", b.c_fc->weight);
      add("mlp.c_fc.bias", b.c_fc->bias);
      add("mlp.c_proj.weight", b.c_proj->weight);
      add("mlp.c_proj.bias", b.c_proj->bias);
    }
    return result;
  }

  nn::Embedding wte, wpe;
  std::vector<std::shared_ptr<reference_block>> blocks;
  nn::LayerNorm ln_f;
  torch::Tensor output;
};

} // namespace parcae

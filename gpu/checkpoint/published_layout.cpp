#include "gpu/checkpoint/published_layout.hpp"

#include "protocols/model/exported_model.hpp"

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include <algorithm>
#include <array>

namespace parcae {

namespace json = boost::json;

bool is_transposed(const model_specification& x, std::string_view name) {
  constexpr std::array conv1d{".c_attn.weight", ".c_proj.weight", ".c_fc.weight"};
  return x.kind == "gpt" && std::ranges::any_of(conv1d, [&](auto end) { return name.ends_with(end); });
}

std::vector<std::int64_t> published_shape(const model_specification& x, const tensor_description& tensor) {
  auto shape = tensor.shape;
  if (is_transposed(x, tensor.name))
    std::ranges::reverse(shape);
  return shape;
}

std::string present_name(std::string name) {
  for (const auto& [old, now] : {std::pair<std::string_view, std::string_view>{"LayerNorm.gamma", "LayerNorm.weight"},
                                 {"LayerNorm.beta", "LayerNorm.bias"}})
    if (name.ends_with(old))
      name.replace(name.size() - old.size(), old.size(), now);
  return name;
}

std::string first_name(std::string_view name) {
  return name == "cls.predictions.decoder.bias" ? "cls.predictions.bias" : "";
}

bool is_left_out(std::string_view name) {
  constexpr std::array ends{".attn.bias",           ".attn.masked_bias",           ".position_ids",
                            ".rotary_emb.inv_freq", ".num_batches_tracked",        ".pooler.dense.weight",
                            ".pooler.dense.bias",   "cls.seq_relationship.weight", "cls.seq_relationship.bias"};
  return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

json::object published_config(const model_specification& x) {
  json::object result;
  if (x.kind == "gpt")
    result = {{"model_type", "gpt2"},       {"architectures", {"GPT2LMHeadModel"}},
              {"n_layer", x.layers},        {"n_head", x.heads},
              {"n_embd", x.width},          {"n_positions", x.sequence},
              {"n_ctx", x.sequence},        {"activation_function", "gelu_new"},
              {"layer_norm_epsilon", 1e-5}, {"embd_pdrop", x.dropout},
              {"attn_pdrop", x.dropout},    {"resid_pdrop", x.dropout},
              {"bos_token_id", nullptr},    {"eos_token_id", nullptr}};
  else if (x.kind == "bert")
    result = {{"model_type", "bert"},
              {"architectures", {"BertForMaskedLM"}},
              {"num_hidden_layers", x.layers},
              {"num_attention_heads", x.heads},
              {"hidden_size", x.width},
              {"intermediate_size", 4 * std::uint64_t{x.width}},
              {"max_position_embeddings", x.sequence},
              {"type_vocab_size", 2},
              {"hidden_act", "gelu"},
              {"layer_norm_eps", 1e-12},
              {"hidden_dropout_prob", x.dropout},
              {"attention_probs_dropout_prob", x.dropout},
              {"pad_token_id", 0}};
  else if (x.kind == "exported")
    return exported_model_of(x)->config;
  else
    return {};
  result["vocab_size"] = x.vocabulary;
  result["tie_word_embeddings"] = x.tied_embeddings;
  result["torch_dtype"] = "float32";
  return result;
}

std::string config_problem(const model_specification& x, const json::object& config) {
  const auto ours = published_config(x);
  for (const auto* key :
       {"model_type", "n_head", "num_attention_heads", "num_key_value_heads", "activation_function", "hidden_act",
        "layer_norm_epsilon", "layer_norm_eps", "rms_norm_eps", "rope_theta", "tie_word_embeddings"}) {
    const auto *here = ours.if_contains(key), *there = config.if_contains(key);
    if (!here || !there)
      continue;
    const bool equal = here->is_number() && there->is_number() ? here->to_number<double>() == there->to_number<double>()
                                                               : *here == *there;
    if (!equal)
      return std::string("says ") + key + " is " + json::serialize(*there).substr(0, 60) + ", and it is " +
             json::serialize(*here) + " in the job's model";
  }
  return {};
}

} // namespace parcae

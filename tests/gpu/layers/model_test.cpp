// Models as pure functions. That the functions compute the right thing is model_reference_test's
// part.

#include "gpu/layers/bound_graph.hpp"
#include "gpu/layers/model.hpp"
#include "protocols/model/operators.hpp"
#include "tests/gpu/layers/small_models.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace parcae {
namespace {
/// A model with version 0 of its parameters.
struct instance {
  explicit instance(const model_specification& x, std::uint64_t seed = 7) : description(describe(x)) {
    layers = make_layers(x);
    for (std::uint32_t i = 0; i < layers.size(); ++i) {
      auto views = views_of(description.layers[i], initial_parameters(description, i, seed));
      for (auto& view : views)
        view.requires_grad_(true);
      parameters.push_back(std::move(views));
    }
  }

  at::Tensor forward(at::Tensor x, const random_position& position) const {
    for (std::size_t i = 0; i < layers.size(); ++i)
      x = layers[i]->forward(parameters[i], x, {position});
    return x;
  }

  std::vector<at::Tensor> all_parameters() const {
    std::vector<at::Tensor> result;
    for (const auto& of_layer : parameters)
      result.insert(result.end(), of_layer.begin(), of_layer.end());
    return result;
  }

  model_description description;
  std::vector<std::unique_ptr<layer>> layers;
  std::vector<std::vector<at::Tensor>> parameters;
};

at::Tensor tokens_of(const model_specification& x, std::uint64_t seed, std::int64_t samples = 3) {
  return at::randint(x.vocabulary, {samples, x.sequence}, at::detail::createCPUGenerator(seed), at::kLong);
}

at::Tensor inputs_of(const model_specification& x, std::uint64_t seed, std::int64_t samples = 3) {
  if (!x.of_images())
    return tokens_of(x, seed, samples);
  return at::randint(256, {samples, x.channels, x.image, x.image}, at::detail::createCPUGenerator(seed), at::kLong);
}

at::Tensor targets_of(const model_specification& x, std::uint64_t seed, std::int64_t samples = 3) {
  if (!x.of_images())
    return tokens_of(x, seed, samples);
  return at::randint(x.classes, {samples, 1}, at::detail::createCPUGenerator(seed), at::kLong);
}

class model_test : public testing::Test {
protected:
  void SetUp() override { at::set_num_threads(1); }
};

TEST_F(model_test, inputs_and_outputs_have_the_described_shapes) {
  for (const auto& model : all_kinds()) {
    SCOPED_TRACE(model.kind + " " + std::to_string(model.layers));
    instance x{model};
    ASSERT_EQ(x.layers.size(), x.description.layers.size());
    auto value = inputs_of(model, 1);
    EXPECT_EQ(value.sizes().slice(1), at::IntArrayRef(x.description.input));
    EXPECT_EQ(static_cast<std::uint64_t>(targets_of(model, 1).numel()), 3 * x.description.targets);
    for (std::size_t i = 0; i < x.layers.size(); ++i) {
      value = x.layers[i]->forward(x.parameters[i], value, {});
      EXPECT_EQ(value.size(0), 3);
      EXPECT_EQ(value.sizes().slice(1), at::IntArrayRef(x.description.layers[i].output)) << "layer " << i;
    }
  }
}

TEST_F(model_test, unknown_kind_is_refused) {
  EXPECT_THROW(make_layers({.kind = "gtp"}), std::invalid_argument);
}

TEST_F(model_test, views_share_the_flat_buffer) {
  auto description = describe(gpt());
  auto flat = at::zeros({static_cast<std::int64_t>(description.layers[1].parameters())});
  auto views = views_of(description.layers[1], flat);
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < views.size(); ++i) {
    EXPECT_EQ(views[i].sizes(), at::IntArrayRef(description.layers[1].tensors[i].shape));
    views[i].fill_(static_cast<double>(i + 1));
    EXPECT_TRUE(at::equal(flat.narrow(0, offset, views[i].numel()), views[i].flatten()));
    offset += views[i].numel();
  }
  EXPECT_EQ(offset, flat.numel());
}

// --- version 0

TEST_F(model_test, initial_values_follow_the_description) {
  model_specification model{.layers = 2, .width = 128, .heads = 4, .sequence = 64};
  auto description = describe(model);
  for (std::uint32_t i = 0; i < description.layers.size(); ++i) {
    auto views = views_of(description.layers[i], initial_parameters(description, i, 3));
    for (std::size_t k = 0; k < views.size(); ++k) {
      const auto& tensor = description.layers[i].tensors[k];
      SCOPED_TRACE(tensor.name);
      if (tensor.initial == initial_value::zeros) {
        EXPECT_TRUE(at::equal(views[k], at::zeros_like(views[k])));
      } else if (tensor.initial == initial_value::ones) {
        EXPECT_TRUE(at::equal(views[k], at::ones_like(views[k])));
      } else if (tensor.initial == initial_value::normal) {
        bool residual = tensor.name.ends_with("c_proj.weight");
        EXPECT_DOUBLE_EQ(tensor.scale, residual ? 0.01 : 0.02); // 0.02 / √(2·2)
        EXPECT_NEAR(views[k].std().item<double>() / tensor.scale, 1, 0.05);
        EXPECT_NEAR(views[k].mean().item<double>() / tensor.scale, 0, 0.05);
      }
    }
  }
}

TEST_F(model_test, uniform_values_fill_their_range) {
  model_specification model{.kind = "mlp", .layers = 1, .width = 64};
  auto description = describe(model);
  auto views = views_of(description.layers[1], initial_parameters(description, 1, 3));
  EXPECT_LE(views[0].abs().max().item<double>(), 0.125);
  EXPECT_GE(views[0].max().item<double>(), 0.124);
  EXPECT_LE(views[0].min().item<double>(), -0.124);
}

TEST_F(model_test, initial_values_depend_on_seed_and_name_only) {
  auto description = describe(gpt());
  auto deeper = gpt();
  deeper.layers = 4;
  auto first = initial_parameters(description, 1, 3);
  at::randn({100});
  initial_parameters(description, 2, 3);
  EXPECT_TRUE(at::equal(first, initial_parameters(description, 1, 3)));
  EXPECT_FALSE(at::equal(first, initial_parameters(description, 1, 4)));
  EXPECT_FALSE(at::equal(first, initial_parameters(description, 2, 3)));
  // The embedding has the same names and scales in a deeper model.
  EXPECT_TRUE(at::equal(initial_parameters(description, 0, 3), initial_parameters(describe(deeper), 0, 3)));
}

TEST_F(model_test, tied_tensors_start_equal) {
  auto head_and_embedding = [](const model_specification& model) {
    instance x{model};
    return at::equal(x.parameters.front()[0], x.parameters.back()[2]);
  };
  EXPECT_TRUE(head_and_embedding(gpt(0, true)));
  EXPECT_FALSE(head_and_embedding(gpt(0, false)));
}

// --- purity

/// Loss and all gradients of one micro-batch.
std::vector<at::Tensor> loss_and_gradients(const instance& x, const at::Tensor& tokens, const at::Tensor& targets,
                                           const random_position& position) {
  auto loss = loss_of(x.forward(tokens, position), targets);
  auto result = torch::autograd::grad({loss}, x.all_parameters());
  result.push_back(loss.detach());
  return result;
}

/// The same, one layer at a time with a cut graph at every boundary, as stages of one layer do it.
std::vector<at::Tensor> loss_and_gradients_by_layer(const instance& x, const at::Tensor& tokens,
                                                    const at::Tensor& targets, const random_position& position) {
  std::vector<at::Tensor> inputs, outputs;
  at::Tensor value = tokens;
  for (std::size_t i = 0; i < x.layers.size(); ++i) {
    if (i > 0)
      value = value.detach().requires_grad_(true);
    inputs.push_back(value);
    value = x.layers[i]->forward(x.parameters[i], value, {position});
    outputs.push_back(value);
  }
  auto loss = loss_of(value, targets);
  outputs.back() = loss;
  std::vector<at::Tensor> result, gradient;
  for (std::size_t i = x.layers.size(); i-- > 0;) {
    auto wanted = x.parameters[i];
    if (i > 0)
      wanted.push_back(inputs[i]);
    auto gradients = torch::autograd::grad({outputs[i]}, wanted, gradient);
    if (i > 0) {
      gradient = {gradients.back()};
      gradients.pop_back();
    }
    result.insert(result.begin(), gradients.begin(), gradients.end());
  }
  result.push_back(loss.detach());
  return result;
}

void expect_same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(at::equal(a[i], b[i])) << "tensor " << i;
}

// given: model, dropout / expected: same bits for repeated calls, other orders, other states of the global generator
TEST_F(model_test, calls_are_pure_functions) {
  for (const auto& model : all_kinds()) {
    SCOPED_TRACE(model.kind + " " + std::to_string(model.dropout));
    instance x{model};
    const auto inputs = inputs_of(model, 1), others = inputs_of(model, 2), targets = targets_of(model, 2);
    const random_position here{5, 10, 2}, elsewhere{5, 11, 0};
    auto expected = loss_and_gradients(x, inputs, targets, here);
    auto expected_elsewhere = loss_and_gradients(x, others, targets, elsewhere);
    expect_same_bits(expected, loss_and_gradients(x, inputs, targets, here));
    at::randn({1000});
    expect_same_bits(expected_elsewhere, loss_and_gradients(x, others, targets, elsewhere));
    at::manual_seed(99);
    expect_same_bits(expected, loss_and_gradients(x, inputs, targets, here));
  }
}

TEST_F(model_test, global_generator_is_left_alone) {
  instance x{gpt(0.3)};
  auto tokens = tokens_of(gpt(), 1), targets = tokens_of(gpt(), 2);
  at::manual_seed(4);
  auto expected = at::randn({100});
  at::manual_seed(4);
  initial_parameters(x.description, 1, 1);
  loss_and_gradients(x, tokens, targets, {5, 10, 2});
  EXPECT_TRUE(at::equal(expected, at::randn({100})));
}

TEST_F(model_test, cutting_the_graph_at_layers_changes_no_bit) {
  for (const auto& model : all_kinds()) {
    SCOPED_TRACE(model.kind + " " + std::to_string(model.dropout));
    instance x{model};
    const auto inputs = inputs_of(model, 1), targets = targets_of(model, 2);
    expect_same_bits(loss_and_gradients(x, inputs, targets, {5, 10, 2}),
                     loss_and_gradients_by_layer(x, inputs, targets, {5, 10, 2}));
  }
}

// --- dropout

TEST_F(model_test, dropout_depends_on_every_part_of_the_position) {
  for (const auto& model : {gpt(0.3), bert(0.3), mlp(0.3), vgg(0.3)}) {
    instance x{model};
    auto tokens = inputs_of(model, 1);
    auto at_base = x.forward(tokens, {5, 10, 2});
    for (const auto& other : {random_position{6, 10, 2}, random_position{5, 11, 2}, random_position{5, 10, 3}})
      EXPECT_FALSE(at::equal(at_base, x.forward(tokens, other)));
  }
}

TEST_F(model_test, without_dropout_the_position_does_not_matter) {
  for (const auto& model : {gpt(), mlp()}) {
    instance x{model};
    auto tokens = tokens_of(model, 1);
    EXPECT_TRUE(at::equal(x.forward(tokens, {5, 10, 2}), x.forward(tokens, {6, 11, 3})));
  }
}

TEST_F(model_test, evaluation_has_no_dropout) {
  for (auto model : {gpt(0.3), bert(0.3), mlp(0.3), vgg(0.3)}) {
    instance with{model};
    model.dropout = 0;
    instance without{model};
    auto x = inputs_of(model, 1), expected = x;
    for (std::size_t i = 0; i < with.layers.size(); ++i) {
      x = with.layers[i]->forward(with.parameters[i], x, {{}, false, {}, {}});
      expected = without.layers[i]->forward(without.parameters[i], expected, {});
    }
    EXPECT_TRUE(at::equal(x, expected)) << model.kind;
  }
}

// The models of the paper, without their memory. (Most of LibTorch's operators have no form for this device in C++.)
TEST_F(model_test, large_models_are_built_on_the_meta_device) {
  for (const auto& model : published_models()) {
    SCOPED_TRACE(model.kind + " " + std::to_string(model.layers));
    const auto description = describe(model);
    EXPECT_EQ(make_layers(model).size(), description.layers.size());
    for (const auto& layer : description.layers) {
      const auto flat = at::empty({static_cast<std::int64_t>(layer.parameters())}, at::TensorOptions(at::kMeta));
      const auto views = views_of(layer, flat);
      ASSERT_EQ(views.size(), layer.tensors.size());
      std::int64_t values = 0;
      for (std::size_t i = 0; i < views.size(); ++i) {
        EXPECT_EQ(views[i].sizes(), at::IntArrayRef(layer.tensors[i].shape)) << layer.tensors[i].name;
        values += views[i].numel();
      }
      EXPECT_EQ(values, flat.numel());
    }
  }
}

TEST_F(model_test, dropout_differs_between_layers) {
  instance x{mlp(0.5)};
  auto input = at::ones({3, 16, 20});
  auto zeros = [&](std::size_t layer) { return x.layers[layer]->forward(x.parameters[1], input, {1, 1, 1}) == 0; };
  EXPECT_FALSE(at::equal(zeros(1), zeros(2)));
}

TEST_F(model_test, dropout_zeroes_its_share_and_scales_the_rest) {
  auto model = gpt(0.25);
  model.width = 400;
  model.vocabulary = 256;
  instance x{model};
  auto tokens = tokens_of(model, 1, 8);
  auto kept = instance{[&] {
                auto y = model;
                y.dropout = 0;
                return y;
              }()}
                  .layers[0]
                  ->forward(x.parameters[0], tokens, {});
  auto dropped = x.layers[0]->forward(x.parameters[0], tokens, {1, 2, 3});
  auto zero = dropped == 0;
  // 51 200 draws: standard deviation of the share is 0.002
  EXPECT_NEAR(zero.to(at::kDouble).mean().item<double>(), 0.25, 0.01);
  EXPECT_TRUE(at::allclose(dropped, at::where(zero, at::zeros_like(kept), kept / 0.75)));
}

// With probability 1e-12 all masks are ones: the attention written out for dropout must then agree with the fused one.
TEST_F(model_test, attention_with_dropout_agrees_with_the_fused_kernel) {
  instance fused{gpt(0)}, explicit_masks{gpt(1e-12)};
  auto tokens = tokens_of(gpt(), 1), targets = tokens_of(gpt(), 2);
  auto a = loss_and_gradients(fused, tokens, targets, {}), b = loss_and_gradients(explicit_masks, tokens, targets, {});
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(at::allclose(a[i], b[i], 1e-4, 1e-6)) << "tensor " << i;
}

// --- meaning

TEST_F(model_test, later_tokens_do_not_influence_earlier_outputs) {
  for (double probability : {0.0, 0.3}) {
    instance x{gpt(probability)};
    auto tokens = tokens_of(gpt(), 1, 1);
    auto changed = tokens.clone();
    changed[0][9] = (changed[0][9].item<std::int64_t>() + 1) % 50;
    auto difference = (x.forward(tokens, {}) - x.forward(changed, {})).abs().amax(-1)[0];
    for (std::int64_t t = 0; t < 16; ++t)
      EXPECT_EQ(difference[t].item<double>() > 0, t >= 9) << "position " << t;
  }
}

/// Caches of the samples of a batch, in which row i is the next position of sample i, as tensors that grow.
class growing_caches : public row_caches {
public:
  at::Tensor attend(std::uint32_t layer, const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                    double scale) override {
    auto& [k, v] = kept_[layer];
    k = k.defined() ? at::cat({k, keys}, 2) : keys;
    v = v.defined() ? at::cat({v, values}, 2) : values;
    return at::matmul(at::softmax(at::matmul(queries, k.transpose(2, 3)) * scale, -1), v);
  }

private:
  std::map<std::uint32_t, std::pair<at::Tensor, at::Tensor>> kept_;
};

// given: a gpt that is given position by position, as rows / expected: what the whole sequence gives
TEST_F(model_test, rows_are_positions) {
  const auto model = gpt(0.3);
  const instance x{model};
  const auto tokens = tokens_of(model, 5);
  auto expected = tokens;
  for (std::size_t i = 0; i < x.layers.size(); ++i)
    expected = x.layers[i]->forward(x.parameters[i], expected, {.training = false});
  growing_caches caches;
  for (std::int64_t position = 0; position < model.sequence; ++position) {
    const row_context rows{at::full({3, 1}, position, at::kLong), &caches};
    auto value = tokens.narrow(1, position, 1);
    for (std::size_t i = 0; i < x.layers.size(); ++i)
      value = x.layers[i]->forward(x.parameters[i], value, {.training = false, .rows = &rows});
    EXPECT_TRUE(at::allclose(value, expected.narrow(1, position, 1), 1e-5, 1e-6)) << "position " << position;
  }
}

// given: a graph whose one node is attention, with grouped queries and a scale or without, as rows / expected: what the
// caches say; with a mask: refused
TEST_F(model_test, graphs_ask_the_caches) {
  struct noting_caches : row_caches {
    at::Tensor attend(std::uint32_t layer, const at::Tensor& queries, const at::Tensor& keys, const at::Tensor&,
                      double scale) override {
      return at::full({}, 100 * layer + queries.size(1) / keys.size(1)) * scale;
    }
  } caches;
  const row_context rows{at::zeros({3, 1}, at::kLong), &caches};
  const std::vector<at::Tensor> given{at::ones({3, 4, 1, 16}), at::ones({3, 2, 1, 16}), at::ones({3, 2, 1, 16}),
                                      at::ones({3, 4, 1, 1})};
  const auto parameter = [](std::uint32_t i) {
    return exported_argument{value_reference{value_reference::origin::parameter, i}};
  };
  const auto attend = [&](const exported_argument& mask, const exported_argument& scale) {
    exported_node node;
    node.schema = find_operator("scaled_dot_product_attention");
    node.arguments = {parameter(0), parameter(1), parameter(2), mask, {0.0}, {false}, scale, {true}};
    node.at = "m.py:1";
    exported_graph graph;
    graph.nodes.push_back(node);
    graph.output = {value_reference::origin::node, 0};
    const auto input = at::zeros({3, 1}, at::kLong);
    return bound_graph(graph, 0, given.size(), 0, 0, at::kCPU)
        .run({given, {}, {}, {}, input, 7}, {.training = false, .rows = &rows})
        .item<float>();
  };
  EXPECT_EQ(attend({}, {0.5}), 351);
  EXPECT_EQ(attend({}, {}), 175.5);
  EXPECT_THROW(attend(parameter(3), {}), exported_model_error);
}

TEST_F(model_test, mlp_outputs_depend_on_their_own_token_only) {
  instance x{mlp()};
  auto tokens = tokens_of(mlp(), 1, 1);
  auto changed = tokens.clone();
  changed[0][9] = (changed[0][9].item<std::int64_t>() + 1) % 50;
  auto difference = (x.forward(tokens, {}) - x.forward(changed, {})).abs().amax(-1)[0];
  for (std::int64_t t = 0; t < 16; ++t)
    EXPECT_EQ(difference[t].item<double>() > 0, t == 9) << "position " << t;
}

TEST_F(model_test, loss_is_the_mean_cross_entropy) {
  auto logits = at::tensor({1.0, 2.0, 3.0, 0.0, 0.0, 0.0}, at::kFloat).view({1, 2, 3});
  auto targets = at::tensor({2, 1}, at::kLong).view({1, 2});
  auto first = std::log(std::exp(1.0) + std::exp(2.0) + std::exp(3.0)) - 3;
  EXPECT_NEAR(loss_of(logits, targets).item<double>(), (first + std::log(3.0)) / 2, 1e-6);
}

} // namespace
} // namespace parcae

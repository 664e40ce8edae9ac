// Models as descriptions, and schedules of learning rates.

#include "tests/gpu/layers/small_models.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace parcae {
namespace {

// given: a model / expected: layers, parameters, whether two tensors are tied
TEST(description_test, describes_layers_and_parameters) {
  struct row {
    model_specification model;
    std::size_t layers;
    std::uint64_t parameters;
    bool tied;
  };
  const std::uint64_t block = 12 * 24 * 24 + 13 * 24;
  for (const auto& [model, layers, parameters, tied] : std::vector<row>{
           {gpt(0, true), 5, 50 * 24 + 16 * 24 + 3 * block + 2 * 24, true},
           {gpt(0, false), 5, 2 * 50 * 24 + 16 * 24 + 3 * block + 2 * 24, false},
           {mlp(), 4, 50 * 20 + 2 * (20 * 20 + 20) + 20 * 50 + 50, false},
           // GPT-2 small, as published: 124 439 808
           {{.layers = 12, .width = 768, .heads = 12, .sequence = 1024, .vocabulary = 50257}, 14, 124'439'808, true},
           // the model of the benchmarks, 10.0 million
           {{.layers = 6, .width = 368, .heads = 8, .sequence = 128, .tied_embeddings = false}, 8, 10'015'488, false},
       }) {
    auto description = describe(model);
    EXPECT_EQ(description.layers.size(), layers);
    EXPECT_EQ(description.parameters(), parameters);
    EXPECT_EQ(description.tied.has_value(), tied);
  }
}

// given: a published model / expected: its number of parameters, and those of single layers.
// BERT-Large: 335 141 888 are Hugging Face's BertModel with its pooler (1 049 600), which a masked language model has
// not; that has 1 082 170 more in its head. GPT-3's "6.7B" is rounded; its attention is sparse in every other layer,
// which changes no parameter. ResNet-152 and VGG-19 are torchvision's. The layers' figures of the paper's profiles are
// its authors' own: they count 36 blocks for GPT-3 and vocabularies padded to 50 304, and 100 classes.
TEST(description_test, published_models_have_their_published_sizes) {
  const auto bert = describe(bert_large);
  EXPECT_EQ(bert.parameters(), 335'141'888u - 1'049'600 + 1'082'170);
  EXPECT_EQ(bert.layers.front().parameters(), 31'782'912u);
  for (std::size_t i = 1; i <= 24; ++i)
    EXPECT_EQ(bert.layers[i].parameters(), 12'596'224u);

  const auto gpt2 = describe(gpt2_xl);
  EXPECT_EQ(gpt2.parameters(), 1'557'611'200u);
  EXPECT_EQ(gpt2.layers.front().parameters(), 82'124'800u - 47 * 1600);
  for (std::size_t i = 1; i <= 48; ++i)
    EXPECT_EQ(gpt2.layers[i].parameters(), 30'740'800u);

  const auto gpt3 = describe(gpt3_6_7b);
  EXPECT_EQ(gpt3.parameters(), 6'658'404'352u);
  for (std::size_t i = 1; i <= 32; ++i)
    EXPECT_EQ(gpt3.layers[i].parameters(), 201'379'840u);

  const auto resnet = describe(resnet_152);
  EXPECT_EQ(resnet.parameters(), 60'192'808u);
  EXPECT_EQ(resnet.layers.size(), 52u);
  EXPECT_EQ(resnet.layers.front().parameters(), 3u * 64 * 49 + 128);
  EXPECT_EQ(resnet.layers[1].parameters(), 75'008u);     // torchvision's layer1[0]
  EXPECT_EQ(resnet.layers[50].parameters(), 4'462'592u); // layer4[2]
  EXPECT_EQ(resnet.layers.back().parameters(), 2'049'000u);

  const auto vgg = describe(vgg_19);
  EXPECT_EQ(vgg.parameters(), 143'667'240u);
  EXPECT_EQ(vgg.layers.size(), 19u);
  EXPECT_EQ(vgg.layers[16].parameters(), 102'764'544u);
  EXPECT_EQ(vgg.layers[17].parameters(), 16'781'312u);
  auto of_profile = vgg_19;
  of_profile.classes = 100;
  EXPECT_EQ(describe(of_profile).layers[18].parameters(), 409'700u);

  for (auto [layers, parameters] :
       {std::pair{18u, 11'689'512u}, {34u, 21'797'672u}, {50u, 25'557'032u}, {101u, 44'549'160u}}) {
    auto other = resnet_152;
    other.layers = layers;
    EXPECT_EQ(describe(other).parameters(), parameters) << layers;
  }
  for (auto [layers, parameters] : {std::pair{11u, 132'863'336u}, {13u, 133'047'848u}, {16u, 138'357'544u}}) {
    auto other = vgg_19;
    other.layers = layers;
    EXPECT_EQ(describe(other).parameters(), parameters) << layers;
  }
}

// He et al. give 0.27 million for CIFAR-10 and 20 layers. Their shortcuts have no parameters; these have projections,
// 2752 with their norms.
TEST(description_test, small_resnet_has_its_published_size) {
  EXPECT_EQ(describe({.kind = "resnet", .layers = 20, .width = 16}).parameters(), 269'722u + 2'752);
}

// Published: 3.8 and 11.3 billion multiply-adds for ResNet-50 and -152, counting convolutions with the stride at the
// first of a bottleneck; at the second, where torchvision has it, 4.1 and 11.5.
TEST(description_test, operations_of_published_image_models) {
  auto billions = [](const model_specification& x) {
    double flop = 0;
    for (const auto& layer : describe(x).layers)
      flop += layer.forward_flop / 2e9;
    return flop;
  };
  auto resnet_50 = resnet_152;
  resnet_50.layers = 50;
  EXPECT_NEAR(billions(resnet_50), 4.09, 0.01);
  EXPECT_NEAR(billions(resnet_152), 11.51, 0.01);
  EXPECT_NEAR(billions(vgg_19), 19.63, 0.01);
}

TEST(description_test, names_are_unique_and_as_in_gpt2) {
  std::set<std::string> names;
  std::size_t tensors = 0;
  for (const auto& layer : describe(gpt()).layers)
    for (const auto& tensor : layer.tensors) {
      names.insert(tensor.name);
      ++tensors;
    }
  EXPECT_EQ(names.size(), tensors);
  for (auto name : {"transformer.wte.weight", "transformer.wpe.weight", "transformer.h.0.ln_1.weight",
                    "transformer.h.2.attn.c_attn.weight", "transformer.h.2.attn.c_proj.bias",
                    "transformer.h.1.ln_2.bias", "transformer.h.0.mlp.c_fc.weight", "transformer.h.0.mlp.c_proj.weight",
                    "transformer.ln_f.weight", "lm_head.weight"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(description_test, tied_tensors_have_one_shape) {
  auto description = describe(gpt());
  const auto& tied = *description.tied;
  EXPECT_EQ(description.layers[tied.first_layer].tensors[tied.first_tensor].name, "transformer.wte.weight");
  EXPECT_EQ(description.layers[tied.second_layer].tensors[tied.second_tensor].name, "lm_head.weight");
  EXPECT_EQ(description.layers[tied.first_layer].tensors[tied.first_tensor].shape,
            description.layers[tied.second_layer].tensors[tied.second_tensor].shape);
}

TEST(description_test, flops_are_those_of_the_products) {
  // block: 2 per weight and token, and 2·2·t²·w in attention; head: 2 per weight and token
  auto layers = describe(gpt()).layers;
  EXPECT_EQ(layers[1].forward_flop, 2.0 * 12 * 24 * 24 * 16 + 4.0 * 16 * 16 * 24);
  EXPECT_EQ(layers.back().forward_flop, 2.0 * 24 * 50 * 16);
  EXPECT_EQ(describe(mlp()).layers[1].forward_flop, 2.0 * 20 * 20 * 16);
}

TEST(description_test, unknown_kind_is_refused) {
  EXPECT_THROW(describe({.kind = "gtp"}), std::invalid_argument);
}

// --- learning rate

// given: schedule, warm-up, step (of 10), rate 2 / expected: rate
TEST(learning_rate_test, follows_the_schedule) {
  struct row {
    const char* schedule;
    std::uint64_t warmup, step;
    double rate;
  };
  for (const auto& [schedule, warmup, step, rate] : std::vector<row>{
           {"constant", 0, 0, 2}, {"constant", 0, 9, 2}, {"constant", 4, 0, 0.5}, {"constant", 4, 3, 2},
           {"constant", 4, 4, 2}, {"linear", 0, 0, 2},   {"linear", 0, 5, 1},     {"linear", 0, 9, 0.2},
           {"linear", 0, 10, 0},  {"linear", 2, 1, 2},   {"linear", 2, 2, 2},     {"linear", 2, 6, 1},
           {"cosine", 0, 0, 2},   {"cosine", 0, 5, 1},   {"cosine", 2, 0, 1},     {"cosine", 2, 4, 1 + std::sqrt(0.5)},
           {"cosine", 0, 10, 0},  {"cosine", 10, 9, 2}, // all steps warm up
           {"linear", 10, 10, 0},
       }) {
    optimizer_specification x{.learning_rate = 2, .schedule = schedule, .warmup_steps = warmup};
    EXPECT_NEAR(learning_rate(x, step, 10), rate, 1e-12) << schedule << ", warm-up " << warmup << ", step " << step;
    const auto from_the_start = learning_rate(x, step, 10);
    x.schedule_from = 100;
    EXPECT_EQ(learning_rate(x, 100 + step, 110), from_the_start) << "it begins 100 steps later";
  }
}

} // namespace
} // namespace parcae

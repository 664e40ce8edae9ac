// Layers of exported models against PyTorch itself: tests/python/export_models.py wrote the models, and what eager
// PyTorch computed for one batch.

#include "gpu/checkpoint/exported_weights.hpp"
#include "gpu/checkpoint/weights.hpp"
#include "gpu/layers/model.hpp"
#include "protocols/base/digest.hpp"
#include "protocols/base/input_file.hpp"
#include "protocols/model/exported_model.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd.h>

#include <boost/json.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <string>

namespace parcae {
namespace {

namespace json = boost::json;

const std::filesystem::path folder = PARCAE_EXPORTED_MODELS;

model_specification exported(const std::string& name) {
  model_specification x{.kind = "exported"};
  x.path = (folder / name).string();
  take_exported_model(x);
  return x;
}

std::string digest_of(const at::Tensor& x) {
  const auto flat = x.contiguous();
  sha256 digest;
  digest.add(std::span(static_cast<const std::byte*>(flat.data_ptr()), flat.nbytes()));
  return digest.hexadecimal();
}

/// An exported model at version 0, run as a stage runs it: layer by layer, each a graph of its own.
struct running_model {
  explicit running_model(const model_specification& x) : description(describe(x)), layers(make_layers(x)) {
    for (std::uint32_t i = 0; i < layers.size(); ++i) {
      auto state = stored_state_of(x, i);
      std::vector<at::Tensor> views;
      for (const auto& view : views_of(description.layers[i], state.parameters))
        views.push_back(view.detach().requires_grad_());
      parameters.push_back(std::move(views));
      buffers.push_back(state.buffers);
    }
  }

  /// `repeat`: inner activations are computed again, as with parallel.recompute.
  double train(const at::Tensor& x, const at::Tensor& targets, bool repeat = false,
               const std::vector<at::Tensor>& extras = {}) {
    std::vector<std::pair<at::Tensor, at::Tensor>> passed;
    auto value = x;
    forward_pass pass{.position = {7, 3, 1}, .extras = extras};
    const auto forward = [&](std::size_t i, const at::Tensor& input, bool with_statistics) {
      pass.statistics =
          with_statistics && buffers[i].defined() ? statistics.emplace_back(at::zeros_like(buffers[i])) : at::Tensor();
      pass.targets = i + 1 == layers.size() ? targets : at::Tensor();
      return layers[i]->forward(parameters[i], input, pass).contiguous();
    };
    for (std::size_t i = 0; i < layers.size(); ++i) {
      auto input = i == 0 ? value : value.detach().requires_grad_();
      value = forward(i, input, true);
      passed.emplace_back(input, repeat ? value.detach() : value);
    }
    auto output = value.detach().requires_grad_();
    const auto loss = loss_of(description, output, targets);
    torch::autograd::backward({loss}, {});
    auto gradient = output.grad();
    for (std::size_t i = layers.size(); i-- > 0;) {
      auto& [input, result] = passed[i];
      if (repeat)
        result = forward(i, input, false);
      torch::autograd::backward({result}, {gradient});
      if (i > 0)
        gradient = input.grad().contiguous();
    }
    return loss.item<double>();
  }

  /// By name; of a tied parameter both uses' sum.
  std::map<std::string, at::Tensor> gradients() const {
    std::map<std::string, at::Tensor> result;
    for (std::size_t i = 0; i < layers.size(); ++i)
      for (std::size_t t = 0; t < parameters[i].size(); ++t)
        result[description.layers[i].tensors[t].name] = parameters[i][t].grad();
    if (const auto& tie = description.tied) {
      const auto& first = description.layers[tie->first_layer].tensors[tie->first_tensor].name;
      const auto& second = description.layers[tie->second_layer].tensors[tie->second_tensor].name;
      result[first] = result[first] + result[second];
      result.erase(second);
    }
    return result;
  }

  model_description description;
  std::vector<std::unique_ptr<layer>> layers;
  std::vector<std::vector<at::Tensor>> parameters;
  std::vector<at::Tensor> buffers;    ///< undefined where a layer has none
  std::vector<at::Tensor> statistics; ///< of the last pass, of layers that have some
};

class exported_model_test : public ::testing::TestWithParam<const char*> {
protected:
  void SetUp() override { at::set_num_threads(1); }
};

at::Tensor read(safetensors_file& file, const std::string& name, std::vector<std::int64_t> shape, bool whole) {
  auto x = at::empty(shape, whole ? at::kLong : at::kFloat);
  file.read({name, shape, whole ? "I64" : "F32"}, static_cast<std::byte*>(x.data_ptr()));
  return x;
}

/// What PyTorch computed for one batch of a model: beside its export.
struct pytorch_batch {
  explicit pytorch_batch(const std::string& name, const model_description& description) :
      reference(json::parse(contents_of(folder / name / "reference.json", 1 << 20))),
      file(folder / name / "reference.safetensors") {
    auto shape = description.input;
    shape.insert(shape.begin(), 2);
    x = read(file, "x", shape, true);
    targets = read(file, "targets", {2, static_cast<std::int64_t>(description.targets)}, true);
    for (auto extra : description.extras) {
      extra.shape.insert(extra.shape.begin(), 2);
      extras.push_back(read(file, "extra" + std::to_string(extras.size()), extra.shape, true));
    }
  }

  json::value reference;
  safetensors_file file;
  at::Tensor x, targets;
  std::vector<at::Tensor> extras;
};

/// Trains on the batch, and compares loss and gradients, bit for bit.
void expect_bits(running_model& running, const pytorch_batch& batch, const json::value& wanted, bool repeat) {
  const auto loss = static_cast<float>(running.train(batch.x, batch.targets, repeat, batch.extras));
  EXPECT_EQ(std::bit_cast<std::uint32_t>(loss), wanted.at("loss").to_number<std::uint32_t>()) << loss;
  const auto gradients = running.gradients();
  EXPECT_EQ(gradients.size(), wanted.at("gradients").as_object().size());
  for (const auto& [name, digest] : wanted.at("gradients").as_object()) {
    ASSERT_TRUE(gradients.contains(std::string(name))) << name;
    EXPECT_EQ(digest_of(gradients.at(std::string(name))), digest.as_string()) << name << (repeat ? ", recomputed" : "");
  }
}

// given: a model of PyTorch, exported, and a batch / expected: the loss and the gradient of every parameter have the
// bits of PyTorch's own; also with recomputation; so have running statistics after that step
TEST_P(exported_model_test, gradients_have_the_bits_of_pytorch) {
  if (GetParam() == std::string("torchvision_resnet18") && !std::filesystem::exists(folder / GetParam()))
    GTEST_SKIP() << "torchvision is not there: run deploy/setup";
  const auto model = exported(GetParam());
  const auto description = describe(model);
  pytorch_batch batch(GetParam(), description);
  for (const bool repeat : {false, true}) {
    running_model running(model);
    expect_bits(running, batch, batch.reference, repeat);
    std::size_t next = 0;
    for (std::size_t i = 0; i < running.layers.size(); ++i) {
      if (!running.buffers[i].defined())
        continue;
      update_buffers(running.buffers[i], running.statistics.at(next++).unsqueeze(0),
                     variances_in(description.layers[i]));
      std::int64_t offset = 0;
      for (const auto& buffer : description.layers[i].buffers) {
        const auto values = static_cast<std::int64_t>(buffer.values());
        const auto wanted = read(batch.file, buffer.name, buffer.shape, false);
        EXPECT_EQ(digest_of(running.buffers[i].narrow(0, offset, values)), digest_of(wanted)) << buffer.name;
        offset += values;
      }
    }
  }
}

class published_model_test : public exported_model_test {};

// given: the same of Hugging Face, with other weights, from a file as save_pretrained wrote it / expected: the same
TEST_P(published_model_test, gradients_have_the_bits_of_pytorch) {
  auto model = exported(GetParam());
  pytorch_batch batch(GetParam(), describe(model));
  const auto& wanted = batch.reference.at("loaded");
  model.weights = (folder / GetParam() / "pretrained").string();
  take_weights(model);
  running_model running(model);
  expect_bits(running, batch, wanted, false);
  EXPECT_NE(wanted.at("loss"), batch.reference.at("loss"));
}

INSTANTIATE_TEST_SUITE_P(python, published_model_test,
                         ::testing::Values("gpt2_small", "gpt2", "bert", "classifier", "llama", "qwen2", "vit"),
                         [](const auto& x) { return std::string(x.param); });

INSTANTIATE_TEST_SUITE_P(python, exported_model_test,
                         ::testing::Values("gpt2_small", "gpt2", "bert", "classifier", "llama", "qwen2", "vit",
                                           "resnet18", "torchvision_resnet18", "mixer", "twin", "teaching",
                                           "regression"),
                         [](const auto& x) { return std::string(x.param); });

// given: a model with dropout / expected: the same position gives the same bits, recomputed too; another step or
// micro-batch others; evaluation none
TEST(exported_layers, dropout_is_seeded_by_its_place) {
  at::set_num_threads(1);
  const auto model = exported("gpt2_dropout");
  const running_model running(model);
  const auto run = [&](std::uint64_t step, std::uint32_t micro_batch, bool training) {
    at::Tensor x = at::zeros({2, 16}, at::kLong);
    for (std::size_t i = 0; i < running.layers.size(); ++i)
      x = running.layers[i]->forward(running.parameters[i], x, {{5, step, micro_batch}, training, {}, {}, {}});
    return digest_of(x);
  };
  EXPECT_EQ(run(1, 0, true), run(1, 0, true));
  EXPECT_NE(run(1, 0, true), run(2, 0, true));
  EXPECT_NE(run(1, 0, true), run(1, 1, true));
  EXPECT_EQ(run(1, 0, false), run(2, 1, false));
  EXPECT_NE(run(1, 0, true), run(1, 0, false));
}

// given: an exported model, its weights changed in one byte / expected: named before anything trains
TEST(exported_layers, other_weights_than_submitted_are_refused) {
  const auto model = exported("mixer");
  EXPECT_NO_THROW(try_own_model(model));
  EXPECT_NO_THROW(try_stored_layers(model, {}));
  const auto copy = std::filesystem::temp_directory_path() / ("parcae-exported-" + std::to_string(getpid()));
  std::filesystem::copy(model.path, copy);
  auto changed = model;
  changed.path = copy.string();
  const auto file = copy / "weights.safetensors";
  std::FILE* raw = std::fopen(file.c_str(), "r+b");
  std::fseek(raw, -1, SEEK_END);
  std::fputc(0x55, raw);
  std::fclose(raw);
  try {
    try_stored_layers(changed, {});
    ADD_FAILURE() << "was taken";
  } catch (const exported_model_error& e) {
    EXPECT_NE(std::string(e.what()).find("has other values of"), std::string::npos) << e.what();
  }
  std::filesystem::remove_all(copy);
}

// given: the list of operators / expected: each is LibTorch's, with that schema
TEST(exported_layers, the_list_of_operators_is_that_of_libtorch) {
  for (const auto& x : operator_list()) {
    const auto dot = x.name.find('.');
    const auto handle = c10::Dispatcher::singleton().findSchema(
        {"aten::" + x.name.substr(0, dot), dot == x.name.npos ? "" : x.name.substr(dot + 1)});
    ASSERT_TRUE(handle) << x.name;
    const auto& schema = handle->schema();
    ASSERT_EQ(schema.arguments().size(), x.arguments.size()) << x.text;
    for (std::size_t i = 0; i < x.arguments.size(); ++i) {
      EXPECT_EQ(schema.arguments()[i].name(), x.arguments[i].name) << x.text;
      const auto* alias = schema.arguments()[i].alias_info();
      EXPECT_EQ(alias && alias->isWrite(), x.arguments[i].written) << x.text;
      EXPECT_EQ(schema.arguments()[i].type()->kind() == c10::TypeKind::OptionalType, x.arguments[i].optional) << x.text;
    }
  }
}

} // namespace
} // namespace parcae

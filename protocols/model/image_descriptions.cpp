#include "protocols/model/descriptions.hpp"

#include <array>
#include <cmath>
#include <map>

namespace parcae {

namespace {

double squared(std::int64_t x) {
  return static_cast<double>(x) * static_cast<double>(x);
}

/// Normal with variance 2 / fan-out, after He et al., "Delving Deep into Rectifiers".
void add_convolution(layer_description& layer, const std::string& name, std::int64_t in, std::int64_t out,
                     std::int64_t kernel, std::int64_t image_out) {
  const auto scale = std::sqrt(2 / (static_cast<double>(out) * squared(kernel)));
  layer.tensors.push_back({name + ".weight", {out, in, kernel, kernel}, initial_value::normal, scale, true});
  layer.forward_flop += 2.0 * static_cast<double>(in * out) * squared(kernel) * squared(image_out);
}

void add_batch_norm(layer_description& layer, const std::string& name, std::int64_t channels) {
  add_norm(layer, name, channels);
  layer.buffers.push_back({name + ".running_mean", {channels}, initial_value::zeros, 0});
  layer.buffers.push_back({name + ".running_var", {channels}, initial_value::ones, 0, false, true});
}

std::int64_t halved(std::int64_t x) {
  return (x + 1) / 2;
}

layer_description describe(const residual_block& x) {
  layer_description layer{x.name, {}, {}, {x.out, x.image, x.image}, 0, 0};
  const auto before = x.image * x.stride; // an odd image is rounded up, which matters to the count of operations only
  const auto n = squared(x.image);
  const auto* strided = x.bottleneck ? "2" : "1";
  double copied = 0; // inputs of convolutions, for products in bfloat16
  auto convolution = [&](const std::string& number, std::int64_t in, std::int64_t out, std::int64_t kernel,
                         std::int64_t image) {
    add_convolution(layer, x.name + ".conv" + number, in, out, kernel, image);
    add_batch_norm(layer, x.name + ".bn" + number, out);
    layer.activation_values += 2 * static_cast<double>(out) * squared(image); // with the ReLU's
    copied += static_cast<double>(in) * squared(image * (number == strided ? x.stride : 1));
  };
  if (x.bottleneck) {
    convolution("1", x.in, x.middle, 1, before);
    convolution("2", x.middle, x.middle, 3, x.image);
    convolution("3", x.middle, x.out, 1, x.image);
  } else {
    convolution("1", x.in, x.out, 3, x.image);
    convolution("2", x.out, x.out, 3, x.image);
  }
  if (x.projects()) {
    add_convolution(layer, x.name + ".downsample.0", x.in, x.out, 1, x.image);
    add_batch_norm(layer, x.name + ".downsample.1", x.out);
    layer.activation_values += static_cast<double>(x.out) * n;
    copied += static_cast<double>(x.in) * squared(before);
  }
  layer.bfloat16_activation_bytes = 4 * layer.activation_values + 2 * copied;
  return layer;
}

} // namespace

resnet_plan plan_resnet(const model_specification& x) {
  static const std::map<std::uint32_t, std::array<std::uint32_t, 4>> table{
      {18, {2, 2, 2, 2}}, {34, {3, 4, 6, 3}}, {50, {3, 4, 6, 3}}, {101, {3, 4, 23, 3}}, {152, {3, 8, 36, 3}}};
  const auto found = table.find(x.layers);
  resnet_plan plan;
  plan.imagenet = found != table.end();
  std::vector<std::uint32_t> stages(3, (x.layers - 2) / 6);
  if (plan.imagenet)
    stages.assign(found->second.begin(), found->second.end());
  const bool bottleneck = plan.imagenet && x.layers >= 50;
  plan.stem_image = plan.imagenet ? halved(halved(x.image)) : x.image;
  auto in = std::int64_t{x.width}, image = plan.stem_image;
  for (std::size_t stage = 0; stage < stages.size(); ++stage)
    for (std::uint32_t i = 0; i < stages[stage]; ++i) {
      const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      const auto middle = std::int64_t{x.width} << stage;
      if (stride == 2)
        image = halved(image);
      plan.blocks.push_back({"layer" + std::to_string(stage + 1) + "." + std::to_string(i), in, middle,
                             bottleneck ? 4 * middle : middle, stride, image, bottleneck});
      in = plan.blocks.back().out;
    }
  return plan;
}

model_description describe_resnet(const model_specification& x) {
  const auto plan = plan_resnet(x);
  const std::int64_t width = x.width, image = x.image, channels = x.channels, classes = x.classes;
  model_description result{{channels, image, image}, 1, {}, {}};
  layer_description stem{"stem", {}, {}, {width, plan.stem_image, plan.stem_image}, 0, 0};
  const auto convolved = plan.imagenet ? halved(image) : image;
  add_convolution(stem, "conv1", channels, width, plan.imagenet ? 7 : 3, convolved);
  add_batch_norm(stem, "bn1", width);
  // The image as numbers, the convolution's and the ReLU's output; the pooling's with its indices of 8 bytes.
  stem.activation_values = static_cast<double>(channels) * squared(image) + 2.0 * x.width * squared(convolved) +
                           (plan.imagenet ? 3.0 * x.width * squared(plan.stem_image) : 0);
  stem.bfloat16_activation_bytes = 4 * stem.activation_values + 2 * static_cast<double>(channels) * squared(image);
  result.layers.push_back(std::move(stem));
  for (const auto& block : plan.blocks)
    result.layers.push_back(describe(block));
  const auto features = plan.blocks.back().out;
  const auto bound = 1 / std::sqrt(static_cast<double>(features));
  layer_description head{"head",
                         {},
                         {},
                         {classes},
                         2.0 * static_cast<double>(features * classes),
                         static_cast<double>(features + 2 * classes),
                         static_cast<double>(6 * features + 8 * classes)};
  add_linear(head, "fc", features, classes, initial_value::uniform, bound, initial_value::uniform);
  result.layers.push_back(std::move(head));
  return result;
}

std::vector<vgg_convolution> plan_vgg(const model_specification& x) {
  // Convolutions before each pooling, by number of layers (with three linear ones).
  static const std::map<std::uint32_t, std::array<std::uint32_t, 5>> table{
      {11, {1, 1, 2, 2, 2}}, {13, {2, 2, 2, 2, 2}}, {16, {2, 2, 3, 3, 3}}, {19, {2, 2, 4, 4, 4}}};
  std::vector<vgg_convolution> plan;
  std::int64_t in = x.channels, image = x.image;
  std::uint32_t module = 0; // place in torchvision's Sequential: convolution, ReLU, …, pooling
  std::uint32_t group = 0;
  for (auto convolutions : table.at(x.layers)) {
    const auto out = std::int64_t{x.width} << std::min(group++, 3u);
    for (std::uint32_t i = 0; i < convolutions; ++i) {
      plan.push_back({"features." + std::to_string(module), in, out, image, i + 1 == convolutions});
      module += 2;
      in = out;
    }
    ++module;
    image /= 2;
  }
  return plan;
}

model_description describe_vgg(const model_specification& x) {
  const std::int64_t channels = x.channels, classes = x.classes;
  model_description result{{channels, x.image, x.image}, 1, {}, {}};
  for (const auto& c : plan_vgg(x)) {
    const auto image = c.pools ? c.image / 2 : c.image;
    layer_description layer{c.name, {}, {}, {c.out, image, image}, 0, 0};
    add_convolution(layer, c.name, c.in, c.out, 3, c.image);
    layer.tensors.push_back({c.name + ".bias", {c.out}, initial_value::zeros, 0});
    layer.activation_values = static_cast<double>(c.out) * squared(c.image); // of the ReLU
    if (c.pools)                                                             // its output with indices of 8 bytes
      layer.activation_values += 3 * static_cast<double>(c.out) * squared(image);
    if (result.layers.empty()) // the image as numbers
      layer.activation_values += static_cast<double>(channels) * squared(c.image);
    layer.bfloat16_activation_bytes = 4 * layer.activation_values + 2 * static_cast<double>(c.in) * squared(c.image);
    result.layers.push_back(std::move(layer));
  }
  // 4096 at the published width of 64.
  const auto hidden = 64 * std::int64_t{x.width};
  auto in = static_cast<std::int64_t>(result.layers.back().output_values());
  for (int i = 0; i < 3; ++i) {
    const auto out = i < 2 ? hidden : classes;
    const auto name = "classifier." + std::to_string(3 * i);
    layer_description layer{name, {}, {}, {out}, 2.0 * static_cast<double>(in * out), static_cast<double>(out)};
    if (i == 2 || x.dropout > 0)
      layer.activation_values *= 2; // with the loss's; with what the mask was multiplied with
    layer.bfloat16_activation_bytes = 4 * layer.activation_values + 2 * static_cast<double>(in);
    add_linear(layer, name, in, out, initial_value::normal, 0.01, initial_value::zeros);
    result.layers.push_back(std::move(layer));
    in = out;
  }
  return result;
}

} // namespace parcae

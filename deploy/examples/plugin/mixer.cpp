// An MLP-mixer of patches, with dropout and BatchNorm: layers of one's own for Parcae, in C++ with LibTorch.

#include <ATen/ATen.h>

#include <parcae_plugin.hpp>

#include <cmath>
#include <stdexcept>

namespace {

namespace plugin = parcae::plugin;
using tensors = std::vector<at::Tensor>;

struct sizes {
  std::int64_t patch = 8, width = 32, depth = 2;
  std::int64_t image = 32, channels = 3, classes = 10;
  std::int64_t patches() const { return (image / patch) * (image / patch); }
};

plugin::tensor weight(std::string name, std::vector<std::int64_t> shape) {
  const auto in = static_cast<double>(shape.back());
  return {std::move(name), std::move(shape), plugin::tensor::start::uniform, 1 / std::sqrt(in)};
}

/// Cuts an image into patches, each a row of `width` values.
class patches : public plugin::layer {
public:
  explicit patches(const sizes& x) : x_(x) {}

  plugin::layer_facts facts() const override {
    const auto values = x_.channels * x_.patch * x_.patch;
    const auto made = static_cast<double>(x_.patches() * x_.width);
    return {
        .name = "patches",
        .parameters = {weight("stem.weight", {x_.width, x_.channels, x_.patch, x_.patch}), {"stem.bias", {x_.width}}},
        .output = {x_.patches(), x_.width},
        .forward_flop = 2 * made * static_cast<double>(values),
        .activation_values = made + static_cast<double>(x_.channels * x_.image * x_.image)};
  }

  at::Tensor forward(const tensors& p, const at::Tensor& pixels, plugin::pass&) const override {
    const auto x = pixels.to(at::kFloat) / 127.5 - 1;
    return at::conv2d(x, p[0], p[1], x_.patch).flatten(2).transpose(1, 2).contiguous();
  }

private:
  const sizes x_;
};

/// Mixes patches, then values; between them a norm over the micro-batch.
class mixer : public plugin::layer {
public:
  mixer(const sizes& x, std::int64_t number) : x_(x), name_("block." + std::to_string(number)) {}

  plugin::layer_facts facts() const override {
    const auto n = x_.patches(), w = x_.width;
    const auto ones = plugin::tensor::start::ones;
    const auto values = static_cast<double>(n * w);
    return {.name = name_,
            .parameters = {weight(name_ + ".across.weight", {n, n}),
                           {name_ + ".across.bias", {n}},
                           {name_ + ".norm.weight", {n}, ones},
                           {name_ + ".norm.bias", {n}},
                           weight(name_ + ".within.weight", {w, w}),
                           {name_ + ".within.bias", {w}}},
            .buffers = {{name_ + ".norm.running_mean", {n}}, {name_ + ".norm.running_var", {n}, ones}},
            .output = {n, w},
            .forward_flop = 2 * values * static_cast<double>(n + w),
            .activation_values = 8 * values};
  }

  at::Tensor forward(const tensors& p, const at::Tensor& x, plugin::pass& with) const override {
    const auto across = at::gelu(at::linear(x.transpose(1, 2), p[0], p[1])).transpose(1, 2);
    const auto mixed = with.batch_norm(x + across, p[2], p[3], 0);
    return mixed + with.dropout(at::gelu(at::linear(mixed, p[4], p[5])), 0.1);
  }

private:
  const sizes x_;
  const std::string name_;
};

class head : public plugin::layer {
public:
  explicit head(const sizes& x) : x_(x) {}

  plugin::layer_facts facts() const override {
    return {.name = "head",
            .parameters = {weight("head.weight", {x_.classes, x_.width}), {"head.bias", {x_.classes}}},
            .output = {x_.classes},
            .forward_flop = 2.0 * static_cast<double>(x_.classes * x_.width),
            .activation_values = static_cast<double>(2 * x_.classes + x_.width)};
  }

  at::Tensor forward(const tensors& p, const at::Tensor& x, plugin::pass&) const override {
    return at::linear(x.mean(1), p[0], p[1]);
  }

private:
  const sizes x_;
};

plugin::model make_mixer(const plugin::arguments& given) {
  sizes x;
  for (const auto& [key, value] : given) {
    auto* to = key == "patch" ? &x.patch : key == "width" ? &x.width : key == "depth" ? &x.depth : nullptr;
    if (!to)
      throw std::invalid_argument("\"" + key + "\" is none of patch, width and depth");
    *to = std::stoll(value);
  }
  if (x.patch < 1 || x.image % x.patch != 0 || x.width < 1 || x.depth < 1)
    throw std::invalid_argument("patch must divide 32, width and depth must be at least 1");
  plugin::model result;
  result.input = plugin::images{3, 32, 10};
  result.layers.push_back(std::make_unique<patches>(x));
  for (std::int64_t i = 0; i < x.depth; ++i)
    result.layers.push_back(std::make_unique<mixer>(x, i));
  result.layers.push_back(std::make_unique<head>(x));
  return result;
}

} // namespace

PARCAE_PLUGIN({"mixer", make_mixer})

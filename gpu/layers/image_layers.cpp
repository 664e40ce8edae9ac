// The layers of resnet and vgg. Images are [samples, channels, height, width]. All computes in the type of norms and
// biases, float32, and float64 in tests; convolutions and products in that of their weights.

#include "gpu/layers/layers.hpp"
#include "protocols/model/descriptions.hpp"

#include <ATen/ATen.h>

#include <utility>

namespace parcae {

namespace {

/// Pixel values 0 … 255 as numbers of a parameter's type: as the job says, else from -1 to 1.
at::Tensor numbers_of(const at::Tensor& pixels, const at::Tensor& like, const forward_pass& pass) {
  if (pass.pixels && pass.pixels->scale.defined())
    return pixels.to(like.scalar_type()).mul_(pass.pixels->scale).add_(pass.pixels->shift);
  return pixels.to(like.scalar_type()).div_(127.5).sub_(1);
}

/// Takes a layer's tensors in their order: convolutions without bias, each followed by its BatchNorm, whose running
/// statistics lie in the layer's flat buffers in the same order. One call, one thread.
class convolutions {
public:
  convolutions(const std::vector<at::Tensor>& parameters, const forward_pass& pass) :
      next_(parameters.data()), pass_(pass) {}

  /// Convolution with padding that keeps the size (at stride 1), then BatchNorm.
  at::Tensor operator()(const at::Tensor& x, std::int64_t stride) {
    const auto& weight = *next_++;
    const auto& scale = *next_++;
    const auto& shift = *next_++;
    const auto padding = weight.size(2) / 2;
    const auto y =
        converted(at::conv2d(converted(x, weight.scalar_type()), weight, {}, stride, padding), scale.scalar_type());
    const auto channels = y.size(1);
    if (!pass_.training) {
      const auto mean = next_buffer(pass_.buffers, channels), variance = next_buffer(pass_.buffers, channels);
      return at::batch_norm(y, scale, shift, mean, variance, false, 0, epsilon, false);
    }
    // With momentum 1 the "running" statistics become those of this micro-batch. They have memory of their own because
    // autograd keeps them, and refuses to go on if it was written to since.
    auto mean = at::zeros({channels}, y.options()), variance = at::zeros({channels}, y.options());
    const auto normalised = at::batch_norm(y, scale, shift, mean, variance, true, 1, epsilon, false);
    if (pass_.statistics.defined()) {
      next_buffer(pass_.statistics, channels).copy_(mean);
      next_buffer(pass_.statistics, channels).copy_(variance);
    }
    return normalised;
  }

private:
  static constexpr double epsilon = 1e-5;

  at::Tensor next_buffer(const at::Tensor& flat, std::int64_t values) {
    return flat.narrow(0, std::exchange(offset_, offset_ + values), values);
  }

  const at::Tensor* next_;
  const forward_pass& pass_;
  std::int64_t offset_ = 0;
};

class stem_layer : public layer {
public:
  explicit stem_layer(bool imagenet) : imagenet_(imagenet) {}

  at::Tensor forward(const std::vector<at::Tensor>& parameters, const at::Tensor& pixels,
                     const forward_pass& pass) const override {
    convolutions convolve{parameters, pass};
    const auto x = at::relu(convolve(numbers_of(pixels, parameters[1], pass), imagenet_ ? 2 : 1));
    return imagenet_ ? at::max_pool2d(x, 3, 2, 1) : x;
  }

private:
  bool imagenet_;
};

class residual_layer : public layer {
public:
  explicit residual_layer(residual_block x) : what_(std::move(x)) {}

  at::Tensor forward(const std::vector<at::Tensor>& parameters, const at::Tensor& input,
                     const forward_pass& pass) const override {
    convolutions convolve{parameters, pass};
    at::Tensor x;
    if (what_.bottleneck) {
      x = at::relu(convolve(input, 1));
      x = at::relu(convolve(x, what_.stride));
      x = convolve(x, 1);
    } else {
      x = at::relu(convolve(input, what_.stride));
      x = convolve(x, 1);
    }
    return at::relu(x + (what_.projects() ? convolve(input, what_.stride) : input));
  }

private:
  residual_block what_;
};

/// Mean over the image, then linear.
class pooling_head_layer : public layer {
public:
  at::Tensor forward(const std::vector<at::Tensor>& parameters, const at::Tensor& input,
                     const forward_pass&) const override {
    return converted(product(input.mean({2, 3}), parameters[0], parameters[1]), input.scalar_type());
  }
};

class convolution_layer : public layer {
public:
  convolution_layer(bool first, bool pools) : first_(first), pools_(pools) {}

  at::Tensor forward(const std::vector<at::Tensor>& parameters, const at::Tensor& input,
                     const forward_pass& pass) const override {
    const auto &weight = parameters[0], &bias = parameters[1];
    const auto image = first_ ? numbers_of(input, bias, pass) : input;
    const auto type = weight.scalar_type();
    const auto x = at::relu(
        converted(at::conv2d(converted(image, type), weight, converted(bias, type), 1, 1), bias.scalar_type()));
    return pools_ ? at::max_pool2d(x, 2, 2) : x;
  }

private:
  bool first_;
  bool pools_;
};

/// ReLU and dropout follow, but not after the last.
class linear_layer : public layer {
public:
  linear_layer(bool last, double probability, std::uint32_t number) :
      last_(last), probability_(probability), number_(number) {}

  at::Tensor forward(const std::vector<at::Tensor>& parameters, const at::Tensor& input,
                     const forward_pass& pass) const override {
    const auto x = converted(product(input.flatten(1), parameters[0], parameters[1]), input.scalar_type());
    if (last_)
      return x;
    dropout drop{probability_, pass, number_};
    return drop(at::relu(x));
  }

private:
  bool last_;
  double probability_;
  std::uint32_t number_;
};

} // namespace

std::vector<std::unique_ptr<layer>> make_resnet_layers(const model_specification& x) {
  const auto plan = plan_resnet(x);
  std::vector<std::unique_ptr<layer>> result;
  result.push_back(std::make_unique<stem_layer>(plan.imagenet));
  for (const auto& block : plan.blocks)
    result.push_back(std::make_unique<residual_layer>(block));
  result.push_back(std::make_unique<pooling_head_layer>());
  return result;
}

std::vector<std::unique_ptr<layer>> make_vgg_layers(const model_specification& x) {
  std::vector<std::unique_ptr<layer>> result;
  for (const auto& c : plan_vgg(x))
    result.push_back(std::make_unique<convolution_layer>(result.empty(), c.pools));
  for (int i = 0; i < 3; ++i)
    result.push_back(std::make_unique<linear_layer>(i == 2, x.dropout, static_cast<std::uint32_t>(result.size())));
  return result;
}

} // namespace parcae

#pragma once

// What the sources of the descriptions share with each other and with the layers; for them only. Torch-free.

#include "protocols/model/model_description.hpp"

#include <string>
#include <vector>

namespace parcae {

model_description describe_gpt(const model_specification& x);
model_description describe_bert(const model_specification& x);
model_description describe_mlp(const model_specification& x);
model_description describe_resnet(const model_specification& x);
model_description describe_vgg(const model_specification& x);

/// A linear layer as torch.nn.Linear names and stores it: weight [out, in], then bias [out].
void add_linear(layer_description& layer, const std::string& name, std::int64_t in, std::int64_t out,
                initial_value initial, double scale, initial_value bias);

/// Weight and bias of a LayerNorm or BatchNorm.
void add_norm(layer_description& layer, const std::string& name, std::int64_t width);

/// One residual block of a ResNet: 3×3, 3×3, or, as a bottleneck, 1×1, 3×3, 1×1. The 3×3 convolution that may have a
/// stride is the first, in a bottleneck the only one (torchvision's "v1.5").
struct residual_block {
  std::string name;
  std::int64_t in = 0;     ///< channels
  std::int64_t middle = 0; ///< channels of all convolutions but a bottleneck's last
  std::int64_t out = 0;
  std::int64_t stride = 1;
  std::int64_t image = 0; ///< height and width of the output
  bool bottleneck = false;

  bool projects() const { return stride != 1 || in != out; } ///< the shortcut is a 1×1 convolution with BatchNorm
};

struct resnet_plan {
  bool imagenet = true;        ///< stem 7×7 with stride 2 and max-pooling; else 3×3, for small images
  std::int64_t stem_image = 0; ///< height and width after the stem
  std::vector<residual_block> blocks;
};

/// He et al., "Deep Residual Learning for Image Recognition": table 1 for 18, 34, 50, 101 and 152 layers, else section
/// 4.2 (6n + 2 layers; with projections as shortcuts, as in the others).
resnet_plan plan_resnet(const model_specification& x);

/// One convolution 3×3 of a VGG.
struct vgg_convolution {
  std::string name;
  std::int64_t in = 0; ///< channels
  std::int64_t out = 0;
  std::int64_t image = 0; ///< height and width before pooling
  bool pools = false;     ///< max-pooling 2×2 follows
};

/// Simonyan and Zisserman, "Very Deep Convolutional Networks", table 1: A, B, D, E, followed by three linear layers.
std::vector<vgg_convolution> plan_vgg(const model_specification& x);

} // namespace parcae

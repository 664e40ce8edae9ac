#pragma once

// Models for tests: small ones of every kind, and the published ones. Torch-free.

#include "protocols/model/model_description.hpp"

#include <vector>

namespace parcae {

inline model_specification gpt(double dropout = 0, bool tied = true) {
  return {.kind = "gpt",
          .layers = 3,
          .width = 24,
          .heads = 4,
          .sequence = 16,
          .vocabulary = 50,
          .dropout = dropout,
          .tied_embeddings = tied};
}

inline model_specification mlp(double dropout = 0) {
  return {.kind = "mlp", .layers = 2, .width = 20, .sequence = 16, .vocabulary = 50, .dropout = dropout};
}

inline model_specification bert(double dropout = 0, bool tied = true) {
  auto x = gpt(dropout, tied);
  x.kind = "bert";
  x.mask_token = 49;
  return x;
}

/// layers 8: for small images, 18 and 50 as for ImageNet.
inline model_specification resnet(std::uint32_t layers) {
  return {.kind = "resnet", .layers = layers, .width = 4, .image = 32, .channels = 3, .classes = 7};
}

inline model_specification vgg(double dropout = 0) {
  return {.kind = "vgg", .layers = 11, .width = 2, .dropout = dropout, .image = 32, .channels = 3, .classes = 7};
}

/// One of each kind, with and without dropout where there is any.
inline std::vector<model_specification> all_kinds() {
  return {gpt(),    gpt(0.3),  gpt(0.3, false), bert(),     bert(0.3), bert(0.3, false), mlp(),
          mlp(0.3), resnet(8), resnet(18),      resnet(50), vgg(),     vgg(0.3)};
}

inline const model_specification bert_large{
    .kind = "bert", .layers = 24, .width = 1024, .heads = 16, .sequence = 512, .vocabulary = 30522, .mask_token = 103};
inline const model_specification gpt2_xl{
    .layers = 48, .width = 1600, .heads = 25, .sequence = 1024, .vocabulary = 50257};
inline const model_specification gpt3_6_7b{
    .layers = 32, .width = 4096, .heads = 32, .sequence = 2048, .vocabulary = 50257};
inline const model_specification resnet_152{.kind = "resnet", .layers = 152, .image = 224, .classes = 1000};
inline const model_specification vgg_19{.kind = "vgg", .layers = 19, .image = 224, .classes = 1000};

inline std::vector<model_specification> published_models() {
  return {bert_large, gpt2_xl, gpt3_6_7b, resnet_152, vgg_19};
}

} // namespace parcae

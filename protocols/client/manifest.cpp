#include "protocols/client/manifest.hpp"

#include "protocols/client/manifest.capnp.h"
#include "protocols/client/stored_values.hpp"

namespace parcae {

std::vector<char> encode(const checkpoint_manifest& x) {
  capnp::MallocMessageBuilder message;
  auto to = message.initRoot<schema::Manifest>();
  to.setSteps(x.at.steps);
  to.setGeneration(x.at.by.value);
  to.setLoss(x.result.loss);
  to.setGradientNorm(x.result.gradient_norm);
  to.setLearningRate(x.result.learning_rate);
  to.setClipFactor(x.result.clip_factor);
  put(to.initSpecification(), x.specification);
  to.setDataDigest(x.data_digest);
  to.setTensors(x.tensors);
  to.setModelLayers(x.model_layers);
  put_all(to.initLayers(static_cast<unsigned>(x.layers.size())), x.layers);
  return bytes_of(message);
}

checkpoint_manifest decode_manifest(std::span<const char> bytes) {
  return decoded<schema::Manifest>(bytes, manifest_limit_bytes, "the manifest", [](schema::Manifest::Reader from) {
    checkpoint_manifest x;
    x.at = {from.getSteps(), {from.getGeneration()}};
    if (x.at.steps == 0)
      throw std::runtime_error("the manifest names no step");
    x.result = {.step = x.at.steps - 1,
                .loss = from.getLoss(),
                .gradient_norm = from.getGradientNorm(),
                .clip_factor = from.getClipFactor(),
                .learning_rate = from.getLearningRate()};
    get(from.getSpecification(), x.specification);
    x.data_digest = from.getDataDigest().cStr();
    x.tensors = from.getTensors().cStr();
    x.model_layers = from.getModelLayers();
    get_value(from.getLayers(), x.layers);
    return x;
  });
}

} // namespace parcae

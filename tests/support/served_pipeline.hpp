#pragma once

// A served model within one process: version 0 of its layers, cut into stages one behind the other.

#include "gpu/serving/stage_passes.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace parcae {

/// Layers [first, last) with version 0 of their state.
inline stage_layers layers_of(const model_specification& model, std::uint32_t first, std::uint32_t last,
                              std::uint64_t seed, const tensor_device& on = processor()) {
  const auto description = describe(model);
  stage_layers result{.all = make_layers(model, on), .first = first, .last = last, .parameters = {}, .buffers = {}};
  for (auto i = first; i < last; ++i) {
    auto state = is_stored(model) ? stored_state_of(model, i)
                                  : stored_state{initial_parameters(description, i, seed, on),
                                                 initial_buffers(description.layers[i], on)};
    result.parameters.push_back(views_of(description.layers[i], state.parameters));
    result.buffers.push_back(std::move(state.buffers));
  }
  return result;
}

/// Stages that follow each other. One thread.
class served_pipeline {
public:
  /// cache_bytes: of each stage.
  served_pipeline(const model_specification& model, const row_proof& proof, std::uint32_t depth,
                  std::uint64_t cache_bytes, std::uint64_t seed, const tensor_device& on = processor()) {
    const auto layers = static_cast<std::uint32_t>(describe(model).layers.size());
    for (std::uint32_t s = 0; s < depth; ++s)
      stages_.emplace_back(layers_of(model, layers * s / depth, layers * (s + 1) / depth, seed, on), proof, cache_bytes,
                           on);
  }

  std::size_t depth() const { return stages_.size(); }
  cache_store& caches(std::size_t stage) { return stages_[stage].caches; }

  bool reserve(std::uint64_t request, std::uint32_t positions) {
    return std::ranges::all_of(stages_, [&](auto& x) { return x.caches.reserve(request, positions); });
  }
  void release(std::uint64_t request) {
    for (auto& x : stages_)
      x.caches.release(request);
  }
  /// What all stages hold.
  std::uint32_t held(std::uint64_t request) const {
    std::uint32_t result = UINT32_MAX;
    for (const auto& x : stages_)
      result = std::min(result, x.caches.held(request));
    return result;
  }

  at::Tensor run(std::span<const request_row> rows, std::size_t size, std::span<const std::uint32_t> wanted) {
    at::Tensor x;
    for (auto& stage : stages_)
      x = stage.passes.run(rows, size, x, wanted);
    return x;
  }

private:
  struct stage {
    stage(stage_layers x, const row_proof& proof, std::uint64_t cache_bytes, const tensor_device& on) :
        layers(std::move(x)), caches(shapes_within(layers, proof), cache_bytes, on), passes(layers, proof, caches, on) {
    }

    static kept_shapes shapes_within(const stage_layers& layers, const row_proof& proof) {
      return {proof.shapes.lower_bound(layers.first), proof.shapes.lower_bound(layers.last)};
    }

    const stage_layers layers;
    cache_store caches;
    stage_passes passes;
  };

  std::deque<stage> stages_; ///< they stay where they are
};

} // namespace parcae

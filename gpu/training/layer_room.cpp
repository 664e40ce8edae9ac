#include "gpu/training/layer_room.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

namespace parcae {

void layer_room::want(const model_description& model, std::span<const std::uint32_t> layers, std::uint32_t moments) {
  const lock held(mutex_);
  wanted_.clear();
  for (const auto layer : layers)
    if (layer < model.layers.size())
      wanted_[static_cast<std::int64_t>(model.layers[layer].parameters())] += 1 + moments;
  std::erase_if(there_, [&](const auto& x) { return !wanted_.contains(x.first); });
  for (auto& [values, all] : there_)
    all.resize(std::min(all.size(), wanted_.at(values)));
}

bool layer_room::more() {
  std::int64_t values = 0;
  {
    const lock held(mutex_);
    for (const auto& [size, count] : wanted_)
      if (there_[size].size() < count)
        values = size;
  }
  if (values == 0)
    return false;
  auto made = at::zeros({values}, on_.floats()); // without the lock: it takes its time
  const lock held(mutex_);
  if (const auto count = wanted_.find(values); count != wanted_.end() && there_[values].size() < count->second)
    there_[values].push_back(std::move(made));
  return true;
}

void layer_room::clear() {
  const lock held(mutex_);
  wanted_.clear();
  there_.clear();
}

at::Tensor layer_room::take(std::int64_t values) {
  {
    const lock held(mutex_);
    wanted_.clear(); // what is taken is not made again
    if (const auto known = there_.find(values); known != there_.end() && !known->second.empty()) {
      auto result = std::move(known->second.back());
      known->second.pop_back();
      return result;
    }
  }
  return at::zeros({values}, on_.floats());
}

} // namespace parcae

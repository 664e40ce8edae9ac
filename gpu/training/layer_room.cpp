#include "gpu/training/layer_room.hpp"

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace parcae {

void layer_room::want(const model_description& model, std::span<const std::uint32_t> layers, std::uint32_t buffers) {
  const lock held(mutex_);
  wanted_.clear();
  for (const auto layer : layers)
    if (layer < model.layers.size())
      wanted_[static_cast<std::int64_t>(model.layers[layer].parameters())] += buffers;
  for (auto x = there_.begin(); x != there_.end();) {
    const auto wanted = wanted_.find(x->first);
    x->second.resize(wanted == wanted_.end() ? 0 : std::min(x->second.size(), wanted->second));
    x = x->second.empty() ? there_.erase(x) : std::next(x);
  }
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
  at::Tensor made;
  try {
    made = at::zeros({values}, on_.floats()); // without the lock: it takes its time
  } catch (const c10::Error& e) {             // of memory: PREPARE says so, if it ever comes to that
    on_.note_end(e);
    clear();
    return false;
  }
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

#include "gpu/training/gradient_sums.hpp"

#include "gpu/layers/model.hpp"

#include <ATen/ATen.h>

#include <utility>

namespace parcae {

gradient_sums::gradient_sums(const model_description& model, std::uint32_t first, std::uint32_t last,
                             std::uint32_t virtual_replicas, replica_range owned, const tensor_device& on) :
    model_(model),
    first_(first), virtual_replicas_(virtual_replicas), owned_(owned), on_(on) {
  for (auto i = first; i < last; ++i)
    layers_.push_back({{}, {}, {virtual_replicas, owned}});
}

void gradient_sums::clear() {
  for (auto& x : layers_) {
    auto free = [&](sum& unused) {
      if (unused.flat.defined())
        x.free.push_back(std::move(unused.flat));
      unused = {};
    };
    free(x.replica);
    for (auto& entry : x.sums.sums())
      free(entry.buffer);
    x.sums = {virtual_replicas_, owned_};
  }
}

void gradient_sums::add(std::uint32_t layer, std::vector<at::Tensor> pieces) {
  auto& replica = layers_[layer - first_].replica;
  sum one{std::move(pieces), {}};
  if (replica.flat.defined() || !replica.pieces.empty())
    merge(layer, replica, one);
  else
    replica = std::move(one);
}

void gradient_sums::end_replica(std::uint32_t layer) {
  auto& x = layers_[layer - first_];
  x.sums.push(std::exchange(x.replica, {}), [&](sum& left, sum& right) { merge(layer, left, right); });
}

std::vector<std::span<float>> gradient_sums::spans(std::uint32_t layer) {
  std::vector<std::span<float>> spans;
  for (auto& entry : layers_[layer - first_].sums.sums()) {
    flatten(layer, entry.buffer);
    const auto& flat = entry.buffer.flat;
    spans.emplace_back(on_.values_of(flat), static_cast<std::size_t>(flat.numel()));
  }
  return spans;
}

const at::Tensor& gradient_sums::first(std::uint32_t layer) const {
  return layers_[layer - first_].sums.sums().front().buffer.flat;
}

at::Tensor gradient_sums::take_buffer(std::uint32_t layer) {
  auto& free = layers_[layer - first_].free;
  if (free.empty())
    return at::empty({static_cast<std::int64_t>(model_.layers[layer].parameters())}, on_.floats());
  auto buffer = std::move(free.back());
  free.pop_back();
  return buffer;
}

void gradient_sums::flatten(std::uint32_t layer, sum& x) {
  if (x.flat.defined())
    return;
  x.flat = take_buffer(layer);
  const auto views = views_of(model_.layers[layer], x.flat);
  for (std::size_t t = 0; t < views.size(); ++t)
    views[t].copy_(x.pieces[t]);
  x.pieces.clear();
}

void gradient_sums::merge(std::uint32_t layer, sum& left, sum& right) {
  if (right.flat.defined()) {
    flatten(layer, left);
    on_.add(left.flat, left.flat, right.flat);
    layers_[layer - first_].free.push_back(std::move(right.flat));
    return;
  }
  // In one pass over memory.
  auto to = left.flat.defined() ? left.flat : take_buffer(layer);
  auto views = views_of(model_.layers[layer], to);
  const auto pieces = left.flat.defined() ? views : std::move(left.pieces);
  for (std::size_t t = 0; t < views.size(); ++t) {
    auto piece = pieces[t].contiguous();
    if (piece.scalar_type() != at::kFloat) // of a product in bfloat16
      piece = views[t].copy_(piece);
    on_.add(views[t], piece, right.pieces[t].contiguous());
  }
  left = {{}, std::move(to)};
}

} // namespace parcae

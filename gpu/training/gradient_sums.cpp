#include "gpu/training/gradient_sums.hpp"

#include "gpu/layers/model.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace parcae {

gradient_sums::gradient_sums(const model_description& model, std::uint32_t first, std::uint32_t last,
                             std::uint32_t virtual_replicas, replica_range owned, sum_type type,
                             const tensor_device& on) :
    model_(model),
    first_(first), virtual_replicas_(virtual_replicas), owned_(owned), rounded_(type == sum_type::bfloat16), on_(on) {
  for (auto i = first; i < last; ++i)
    layers_.push_back({{}, {}, {virtual_replicas, owned}, {}});
}

void gradient_sums::clear() {
  for (auto& x : layers_) {
    auto keep = [&](at::Tensor unused) {
      if (unused.defined() && unused.use_count() == 1) // else it is on its way to a rank that follows the layer
        x.free.push_back(std::move(unused));
    };
    auto free = [&](sum& unused) { keep(std::exchange(unused, {}).flat); };
    free(x.replica);
    keep(std::exchange(x.gradient, {}));
    for (auto& entry : x.sums.sums())
      free(entry.buffer);
    x.sums = {virtual_replicas_, owned_};
  }
}

std::vector<at::Tensor> gradient_sums::take_buffers() {
  std::vector<at::Tensor> result;
  for (auto& x : layers_)
    for (auto& buffer : std::exchange(x.free, {}))
      result.push_back(std::move(buffer));
  return result;
}

// A layer needs no more of a type at once: sub-trees that consecutive replicas leave unmerged.
void gradient_sums::use(std::vector<at::Tensor> buffers) {
  const auto most = std::bit_width(owned_.last - owned_.first);
  for (auto& x : buffers) {
    auto fewest = most;
    layer_sums* to = nullptr;
    for (std::size_t i = 0; i < layers_.size(); ++i)
      if (static_cast<std::int64_t>(model_.layers[first_ + i].parameters()) == x.numel())
        if (const auto has = std::ranges::count(layers_[i].free, x.scalar_type(), &at::Tensor::scalar_type);
            has < fewest) {
          fewest = static_cast<int>(has);
          to = &layers_[i];
        }
    if (to)
      to->free.push_back(std::move(x));
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
  if (rounded_)
    round(layer, x.replica);
  x.sums.push(std::exchange(x.replica, {}), [&](sum& left, sum& right) { merge(layer, left, right); });
}

std::vector<std::span<std::byte>> gradient_sums::spans(std::uint32_t layer) {
  std::vector<std::span<std::byte>> spans;
  for (auto& entry : layers_[layer - first_].sums.sums()) {
    flatten(layer, entry.buffer);
    spans.push_back(on_.memory_of(entry.buffer.flat).bytes);
  }
  return spans;
}

void gradient_sums::end_reduction() {
  if (!rounded_)
    return;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto layer = first_ + static_cast<std::uint32_t>(i);
    layers_[i].gradient = take_buffer(layer, at::kFloat);
    on_.convert(layers_[i].gradient, sum_of_tree(layer));
  }
}

const at::Tensor& gradient_sums::gradient(std::uint32_t layer) const {
  return rounded_ ? layers_[layer - first_].gradient : sum_of_tree(layer);
}

const at::Tensor& gradient_sums::sum_of_tree(std::uint32_t layer) const {
  return layers_[layer - first_].sums.sums().front().buffer.flat;
}

at::Tensor gradient_sums::take_buffer(std::uint32_t layer, at::ScalarType type) {
  auto& free = layers_[layer - first_].free;
  const auto found = std::ranges::find(free, type, &at::Tensor::scalar_type);
  if (found == free.end())
    return at::empty({static_cast<std::int64_t>(model_.layers[layer].parameters())}, on_.floats().dtype(type));
  auto buffer = std::move(*found);
  free.erase(found);
  return buffer;
}

void gradient_sums::round(std::uint32_t layer, sum& x) {
  auto to = take_buffer(layer, at::kBFloat16);
  if (x.flat.defined()) {
    on_.convert(to, x.flat);
    layers_[layer - first_].free.push_back(std::move(x.flat));
  } else {
    const auto views = views_of(model_.layers[layer], to);
    for (std::size_t t = 0; t < views.size(); ++t)
      on_.convert(views[t], x.pieces[t].contiguous());
  }
  x = {{}, std::move(to)};
}

void gradient_sums::flatten(std::uint32_t layer, sum& x) {
  if (x.flat.defined())
    return;
  x.flat = take_buffer(layer, at::kFloat);
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
  auto to = left.flat.defined() ? left.flat : take_buffer(layer, at::kFloat);
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

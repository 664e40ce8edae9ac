#include "gpu/serving/stage_passes.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace parcae {

namespace {

std::int64_t whole(std::size_t x) {
  return static_cast<std::int64_t>(x);
}

} // namespace

stage_passes::stage_passes(const stage_layers& layers, const row_proof& proof, cache_store& caches,
                           const tensor_device& on) :
    layers_(layers),
    proof_(proof), caches_(caches), on_(on) {}

at::Tensor stage_passes::tokens_of(std::span<const request_row> rows, std::size_t size) const {
  auto result = at::zeros({whole(size), 1}, at::kLong);
  for (std::size_t i = 0; i < rows.size(); ++i)
    result.data_ptr<std::int64_t>()[i] = rows[i].token;
  return sent_to(on_.place(), result);
}

at::Tensor stage_passes::forward(std::uint32_t layer, const at::Tensor& input, const row_context& rows) const {
  const auto i = layer - layers_.first;
  return layers_.all[layer]->forward(layers_.parameters[i], input,
                                     {.training = false, .buffers = layers_.buffers[i], .rows = &rows, .on = on_});
}

at::Tensor stage_passes::run(std::span<const request_row> rows, std::size_t size, at::Tensor input,
                             std::span<const std::uint32_t> wanted) {
  if (rows.size() > size || !std::ranges::binary_search(proof_.sizes, size) || wanted.size() > rows.size() ||
      std::ranges::any_of(wanted, [&](auto x) { return x >= rows.size(); }))
    throw std::invalid_argument(std::to_string(rows.size()) + " rows in a pass of " + std::to_string(size));
  const c10::NoGradGuard no_gradient;
  cache_pass caches(caches_, rows);
  const row_context context{caches.positions(size), &caches};
  if (layers_.begins())
    input = tokens_of(rows, size);
  const auto end = layers_.ends() ? layers_.last - 1 : layers_.last;
  for (auto i = layers_.first; i < end; ++i)
    input = forward(i, input, context);
  if (layers_.ends())
    input = logits(std::move(input), context, wanted);
  caches.finish();
  return input;
}

// The last layer is mostly the largest, and of prompts all but the last row wants nothing of it. So it gets a pass of
// its own, unless it has attention.
at::Tensor stage_passes::logits(at::Tensor x, row_context rows, std::span<const std::uint32_t> wanted) const {
  if (wanted.empty())
    return at::empty({0}, on_.floats());
  const auto last = layers_.last - 1;
  const auto pick = [&](std::size_t size) {
    auto places = at::zeros({whole(size)}, at::kLong);
    std::copy(wanted.begin(), wanted.end(), places.data_ptr<std::int64_t>());
    return sent_to(on_.place(), places);
  };
  const auto flat = [](const at::Tensor& y) { return y.flatten(0, -2); };
  if (proof_.shapes.contains(last))
    return flat(forward(last, x, rows)).index_select(0, pick(wanted.size()));
  const auto places = pick(proof_.size_for(wanted.size()));
  rows.positions = rows.positions.index_select(0, places);
  return flat(forward(last, x.index_select(0, places), rows)).narrow(0, 0, whole(wanted.size()));
}

} // namespace parcae

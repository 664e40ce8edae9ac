#include "gpu/serving/cache_store.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

namespace parcae {

namespace {

std::size_t values_of_largest(const kept_shapes& shapes) {
  std::size_t result = 0;
  for (const auto& [layer, shape] : shapes)
    result = std::max(result, shape.block_values());
  return result;
}

/// float32 [rows, heads, 1, size] with heads one behind the other, so that kernels need only the distance of rows.
at::Tensor with_whole_rows(const at::Tensor& x) {
  const auto result = x.scalar_type() == at::kFloat ? x : x.to(at::kFloat);
  return result.stride(3) == 1 && result.stride(1) == result.size(3) ? result : result.contiguous();
}

} // namespace

cache_store::cache_store(kept_shapes shapes, std::uint64_t bytes, const tensor_device& on) :
    all_(std::move(shapes)), computed_(all_), on_(on) {
  const auto values = values_of_largest(all_);
  const auto count = values == 0 ? 0 : bytes / (values * sizeof(float));
  pool_ = at::empty({static_cast<std::int64_t>(count), static_cast<std::int64_t>(values)}, on.floats());
  free_.resize(count);
  std::iota(free_.rbegin(), free_.rend(), 0);
}

void cache_store::compute(std::uint32_t first, std::uint32_t last) {
  computed_ = {all_.lower_bound(first), all_.lower_bound(std::max(first, last))};
  for (auto& [request, x] : requests_)
    for (auto y = x.begin(); y != x.end();)
      if (computed_.contains(y->first)) {
        ++y;
      } else {
        give_back(y->second.blocks);
        y = x.erase(y);
      }
  std::erase_if(requests_, [](const auto& x) { return x.second.empty(); });
}

// --- all layers

bool cache_store::extend(block_list& blocks, std::size_t wanted) {
  const auto more = wanted - std::min(wanted, blocks.size());
  if (more > free_.size())
    return false;
  blocks.insert(blocks.end(), free_.rbegin(), free_.rbegin() + static_cast<std::ptrdiff_t>(more));
  free_.resize(free_.size() - more);
  return true;
}

bool cache_store::reserve(std::uint64_t request, std::uint32_t positions) {
  const auto wanted = blocks_of(positions);
  std::size_t missing = 0;
  for (const auto& [layer, shape] : computed_) {
    const auto* x = find(request, layer);
    missing += wanted - std::min(wanted, x ? x->blocks.size() : 0);
  }
  if (missing > free_.size())
    return false;
  for (const auto& [layer, shape] : computed_)
    extend(requests_[request][layer].blocks, wanted);
  return true;
}

void cache_store::release(std::uint64_t request) {
  const auto x = requests_.find(request);
  if (x == requests_.end())
    return;
  for (const auto& [layer, kept] : x->second)
    give_back(kept.blocks);
  requests_.erase(x);
}

void cache_store::release_others(const std::set<std::uint64_t>& than) {
  std::vector<std::uint64_t> gone;
  for (const auto& [request, x] : requests_)
    if (!than.contains(request))
      gone.push_back(request);
  for (const auto request : gone)
    release(request);
}

std::uint64_t cache_store::positions() const {
  return computed_.empty() ? UINT64_MAX : blocks() / computed_.size() * block_positions;
}

std::uint32_t cache_store::held(std::uint64_t request) const {
  auto result = UINT32_MAX;
  for (const auto& [layer, shape] : computed_) {
    const auto* x = find(request, layer);
    result = std::min(result, x ? x->held : 0);
  }
  return result;
}

// --- a layer

const cache_store::kept_layer* cache_store::find(std::uint64_t request, std::uint32_t layer) const {
  const auto x = requests_.find(request);
  if (x == requests_.end())
    return nullptr;
  const auto y = x->second.find(layer);
  return y == x->second.end() ? nullptr : &y->second;
}

std::vector<std::uint32_t> cache_store::keeping(std::uint32_t first, std::uint32_t last) const {
  std::vector<std::uint32_t> result;
  for (auto x = all_.lower_bound(first); x != all_.end() && x->first < last; ++x)
    result.push_back(x->first);
  return result;
}

std::vector<held_request> cache_store::held_in(std::uint32_t first, std::uint32_t last) const {
  const auto layers = keeping(first, last);
  std::vector<held_request> result;
  for (const auto& [request, x] : requests_) {
    auto positions = layers.empty() ? 0 : UINT32_MAX;
    for (const auto layer : layers) {
      const auto* y = find(request, layer);
      positions = std::min(positions, y ? y->held : 0);
    }
    if (positions > 0)
      result.push_back({request, positions});
  }
  std::ranges::stable_sort(result, std::greater(), &held_request::positions);
  return result;
}

cache_store::block_list cache_store::take(std::uint64_t request, std::uint32_t layer) {
  const auto x = requests_.find(request);
  if (x == requests_.end())
    return {};
  auto y = x->second.extract(layer);
  if (x->second.empty())
    requests_.erase(x);
  return y ? std::move(y.mapped().blocks) : block_list();
}

void cache_store::give_back(const block_list& blocks) {
  free_.insert(free_.end(), blocks.rbegin(), blocks.rend());
}

cache_store::block_list cache_store::place(std::uint64_t request, std::uint32_t layer, std::uint32_t positions) {
  const auto wanted = blocks_of(positions);
  const auto* known = find(request, layer);
  if (!computed_.contains(layer) || (known && known->held >= positions) ||
      wanted > free_.size() + (known ? known->blocks.size() : 0))
    return {};
  give_back(take(request, layer));
  auto& blocks = requests_[request][layer].blocks;
  extend(blocks, wanted);
  return blocks;
}

void cache_store::note_held(std::uint64_t request, std::uint32_t layer, std::uint32_t positions) {
  auto& x = requests_.at(request).at(layer);
  x.held = std::max(x.held, positions);
  if (x.held == 0)
    give_back(take(request, layer));
}

std::int64_t cache_store::block_values(std::uint32_t layer) const {
  return static_cast<std::int64_t>(all_.at(layer).block_values());
}

at::Tensor cache_store::block(std::int32_t number, std::uint32_t layer) const {
  return pool_.select(0, number).narrow(0, 0, block_values(layer));
}

// --- a pass

cache_pass::cache_pass(cache_store& store, std::span<const request_row> rows) : store_(store) {
  const auto count = static_cast<std::int64_t>(rows.size());
  std::size_t most = 1;
  for (const auto& row : rows)
    most = std::max(most, blocks_of(row.position + 1));
  auto positions = at::empty({count}, at::kLong);
  auto blocks =
      at::zeros({static_cast<std::int64_t>(store.computed_.size()), count, static_cast<std::int64_t>(most)}, at::kInt);
  std::map<std::uint64_t, std::uint32_t> next;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    const auto needed = blocks_of(row.position + 1);
    const auto [expected, is_first] = next.try_emplace(row.request, row.position);
    const auto has_room = [&](const auto& x) {
      const auto* kept = store.find(row.request, x.first);
      return kept && kept->blocks.size() >= needed;
    };
    if (row.position != expected->second || (is_first && row.position > store.held(row.request)) ||
        !std::ranges::all_of(store.computed_, has_room))
      throw std::invalid_argument("position " + std::to_string(row.position) + " of request " +
                                  std::to_string(row.request) + ", of which " +
                                  std::to_string(store.held(row.request)) + " are held");
    ++expected->second;
    positions.data_ptr<std::int64_t>()[i] = row.position;
    std::size_t k = 0;
    for (const auto& [layer, shape] : store.computed_)
      std::copy_n(store.find(row.request, layer)->blocks.data(), needed,
                  blocks.data_ptr<std::int32_t>() + (k++ * rows.size() + i) * most);
  }
  held_ = std::move(next);
  positions_ = sent_to(store.on_.place(), positions);
  blocks_ = sent_to(store.on_.place(), blocks);
}

at::Tensor cache_pass::positions(std::size_t size) const {
  auto result = at::zeros({static_cast<std::int64_t>(size), 1}, positions_.options());
  result.narrow(0, 0, positions_.size(0)).select(1, 0).copy_(positions_);
  return result;
}

cached_rows cache_pass::rows_in(std::uint32_t layer) const {
  const auto index = std::distance(store_.computed_.begin(), store_.computed_.find(layer));
  return {.rows = static_cast<std::size_t>(blocks_.size(1)),
          .pool = store_.pool_.data_ptr<float>(),
          .block_distance = static_cast<std::size_t>(store_.pool_.size(1)),
          .blocks = blocks_.select(0, index).data_ptr<std::int32_t>(),
          .most_blocks = static_cast<std::size_t>(blocks_.size(2)),
          .positions = positions_.data_ptr<std::int64_t>()};
}

at::Tensor cache_pass::attend(std::uint32_t layer, const at::Tensor& queries, const at::Tensor& keys,
                              const at::Tensor& values, double scale) {
  const auto& shape = store_.computed_.at(layer);
  const auto whole = [](std::int64_t x) { return static_cast<std::size_t>(x); };
  if (shape != attention_shape{whole(queries.size(1)), whole(keys.size(1)), whole(keys.size(3))} ||
      queries.size(2) != 1)
    throw std::invalid_argument("attention of layer " + std::to_string(layer) + " has another shape than was said");
  const auto q = with_whole_rows(queries);
  auto k = with_whole_rows(keys), v = with_whole_rows(values);
  if (k.stride(0) != v.stride(0)) {
    k = k.contiguous();
    v = v.contiguous();
  }
  const auto rows = rows_in(layer);
  auto result = at::empty(q.sizes(), store_.on_.floats());
  result.narrow(0, blocks_.size(1), q.size(0) - blocks_.size(1)).zero_();
  auto& on = store_.on_.compute();
  on.keep_rows(shape, rows, k.data_ptr<float>(), v.data_ptr<float>(), whole(k.stride(0)));
  on.attend_rows(shape, rows, static_cast<float>(scale), q.data_ptr<float>(), whole(q.stride(0)),
                 result.data_ptr<float>());
  return result.to(queries.scalar_type());
}

void cache_pass::finish() {
  for (const auto& [request, held] : held_)
    for (const auto& [layer, shape] : store_.computed_)
      store_.note_held(request, layer, held);
}

} // namespace parcae

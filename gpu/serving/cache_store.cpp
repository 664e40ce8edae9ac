#include "gpu/serving/cache_store.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

namespace parcae {

namespace {

std::size_t blocks_of(std::uint32_t positions) {
  return (positions + block_positions - 1) / block_positions;
}

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

cache_store::cache_store(const kept_shapes& shapes, std::uint64_t bytes, const tensor_device& on) :
    shapes_(shapes), on_(on) {
  const auto values = values_of_largest(shapes);
  const auto count = values == 0 ? 0 : bytes / (values * sizeof(float));
  pool_ = at::empty({static_cast<std::int64_t>(count), static_cast<std::int64_t>(values)}, on.floats());
  free_.resize(count);
  std::iota(free_.rbegin(), free_.rend(), 0);
}

bool cache_store::reserve(std::uint64_t request, std::uint32_t positions) {
  auto& x = requests_[request];
  x.blocks.resize(shapes_.size());
  const auto wanted = blocks_of(positions);
  const auto present = x.blocks.empty() ? wanted : x.blocks.front().size();
  if (wanted <= present)
    return true;
  if ((wanted - present) * shapes_.size() > free_.size()) {
    if (present == 0)
      requests_.erase(request);
    return false;
  }
  for (auto& blocks : x.blocks) {
    blocks.insert(blocks.end(), free_.rbegin(), free_.rbegin() + static_cast<std::ptrdiff_t>(wanted - present));
    free_.resize(free_.size() - (wanted - present));
  }
  return true;
}

void cache_store::release(std::uint64_t request) {
  const auto x = requests_.find(request);
  if (x == requests_.end())
    return;
  for (const auto& blocks : x->second.blocks)
    free_.insert(free_.end(), blocks.rbegin(), blocks.rend());
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
  return shapes_.empty() ? UINT64_MAX : blocks() / shapes_.size() * block_positions;
}

std::uint32_t cache_store::held(std::uint64_t request) const {
  const auto x = requests_.find(request);
  return x == requests_.end() ? 0 : x->second.held;
}

// --- a pass

cache_pass::cache_pass(cache_store& store, std::span<const request_row> rows) : store_(store) {
  const auto count = static_cast<std::int64_t>(rows.size());
  std::size_t most = 1;
  for (const auto& row : rows)
    most = std::max(most, blocks_of(row.position + 1));
  auto positions = at::empty({count}, at::kLong);
  auto blocks =
      at::zeros({static_cast<std::int64_t>(store.shapes_.size()), count, static_cast<std::int64_t>(most)}, at::kInt);
  std::map<std::uint64_t, std::uint32_t> next;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    const auto of = store.requests_.find(row.request);
    const auto needed = blocks_of(row.position + 1);
    const auto [expected, is_first] = next.try_emplace(row.request, row.position);
    if (of == store.requests_.end() || row.position != expected->second ||
        (is_first && row.position > of->second.held) ||
        std::ranges::any_of(of->second.blocks, [=](const auto& x) { return x.size() < needed; }))
      throw std::invalid_argument("position " + std::to_string(row.position) + " of request " +
                                  std::to_string(row.request) + ", of which " +
                                  std::to_string(store.held(row.request)) + " are held");
    ++expected->second;
    positions.data_ptr<std::int64_t>()[i] = row.position;
    for (std::size_t k = 0; k < store.shapes_.size(); ++k)
      std::copy_n(of->second.blocks[k].data(), needed, blocks.data_ptr<std::int32_t>() + (k * rows.size() + i) * most);
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
  const auto index = std::distance(store_.shapes_.begin(), store_.shapes_.find(layer));
  return {.rows = static_cast<std::size_t>(blocks_.size(1)),
          .pool = store_.pool_.data_ptr<float>(),
          .block_distance = static_cast<std::size_t>(store_.pool_.size(1)),
          .blocks = blocks_.select(0, index).data_ptr<std::int32_t>(),
          .most_blocks = static_cast<std::size_t>(blocks_.size(2)),
          .positions = positions_.data_ptr<std::int64_t>()};
}

at::Tensor cache_pass::attend(std::uint32_t layer, const at::Tensor& queries, const at::Tensor& keys,
                              const at::Tensor& values, double scale) {
  const auto& shape = store_.shapes_.at(layer);
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
  for (const auto& [request, held] : held_) {
    auto& x = store_.requests_.at(request).held;
    x = std::max(x, held);
  }
}

} // namespace parcae

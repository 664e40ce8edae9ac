#include "gpu/training/stage_sums.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <utility>

namespace parcae {

namespace {

sum_type type_of(const job_specification& job) {
  return job.sums_in_bfloat16() ? sum_type::bfloat16 : sum_type::float32;
}

/// Of a sum, in bytes.
std::size_t longest_sum(const stage_context& c) {
  std::size_t result = 0;
  for (auto i = c.first_layer(); i < c.last_layer(); ++i)
    result = std::max<std::size_t>(result, c.model->layers[i].parameters());
  return result * (c.job().sums_in_bfloat16() ? sizeof(bfloat16) : sizeof(float));
}

std::uint32_t micro_batches_per_sum(const stage_context& c) {
  if (c.job().reproducible)
    return c.job().micro_batches() / c.job().virtual_replicas;
  const auto own = c.shape().micro_batches(c.pipeline());
  return own.last - own.first;
}

} // namespace

// If the job need not be reproducible, a pipeline is one replica: one sum over all its micro-batches.
stage_sums::stage_sums(const stage_context& c, std::function<void(std::uint32_t layer)> complete) :
    c_(c), complete_(std::move(complete)), type_(type_of(c.job())), per_sum_(micro_batches_per_sum(c)),
    gradients_(*c.model, c.first_layer(), c.last_layer(), c.job().reproducible ? c.job().virtual_replicas : 1,
               c.job().reproducible ? owned_replicas(c.job().virtual_replicas, c.grid().width, c.pipeline())
                                    : replica_range{0, 1},
               type_, c.on),
    statistics_(*c.model, c.first_layer(), c.last_layer(), c.job().micro_batches(), c.on),
    scratch_(c.on.of(), longest_sum(c)) {
  for (std::uint32_t d = 0; d < c.grid().width; ++d)
    replicas_.push_back(c.grid().rank(d, c.stage()));
}

void stage_sums::begin(std::uint64_t step) {
  const auto leaves = c_.job().reproducible ? c_.job().virtual_replicas : c_.grid().width;
  reduction_.emplace(*c_.comm, replicas_, c_.pipeline(), leaves, step, scratch_, type_);
}

void stage_sums::clear() {
  reduction_.reset();
  gradients_.clear();
}

void stage_sums::add(std::uint32_t layer, std::uint32_t position, std::vector<at::Tensor> pieces) {
  gradients_.add(layer, std::move(pieces));
  if (position % per_sum_ == per_sum_ - 1)
    gradients_.end_replica(layer);
}

void stage_sums::begin_reduction(std::uint32_t layer) {
  reduction_->add(gradients_.spans(layer));
  reduction_->advance();
  if (is_complete(layer))
    complete_(layer);
}

// No other replica has a part of it, it is not rounded, and nothing is added to it.
bool stage_sums::is_complete(std::uint32_t layer) const {
  const auto& tie = c_.model->tied;
  return replicas_.size() == 1 && type_ == sum_type::float32 &&
         !(tie && (layer == tie->first_layer || layer == tie->second_layer));
}

void stage_sums::finish(std::uint64_t step) {
  c_.check_abort();
  reduction_->finish();
  gradients_.end_reduction();
  add_tied(step);
  gather_statistics(step);
}

void stage_sums::gather_statistics(std::uint64_t step) {
  std::vector<replica_range> owned;
  for (std::uint32_t d = 0; d < c_.grid().width; ++d)
    owned.push_back(c_.shape().micro_batches(d));
  statistics_.gather(*c_.comm, replicas_, owned, c_.pipeline(), step, peer_limit);
}

// Both uses' gradients are kept apart until here, also when one stage has both, and added input use first. In float32,
// also where sums are bfloat16: this is no node of the tree, and its sum goes nowhere. What the two ends tell each
// other are their trees' sums, as these are.
void stage_sums::add_tied(std::uint64_t step) {
  if (!c_.model->tied)
    return;
  const auto& tie = *c_.model->tied;
  const auto& grid = c_.grid();
  const auto is_here = [&](std::uint32_t layer) { return c_.first_layer() <= layer && layer < c_.last_layer(); };
  const bool has_first = is_here(tie.first_layer);
  const bool has_second = is_here(tie.second_layer);
  if (!has_first && !has_second)
    return;
  const auto slice = [&](bool of_first, const at::Tensor& flat) {
    const auto layer = of_first ? tie.first_layer : tie.second_layer;
    return views_of(c_.model->layers[layer], flat)[of_first ? tie.first_tensor : tie.second_tensor];
  };
  if (has_first && has_second) {
    auto first = slice(true, gradient(tie.first_layer));
    auto second = slice(false, gradient(tie.second_layer));
    first.add_(second);
    second.copy_(first);
    return;
  }
  const auto layer = has_first ? tie.first_layer : tie.second_layer;
  const auto mine = slice(has_first, gradient(layer)), told = slice(has_first, gradients_.sum_of_tree(layer));
  const auto stage_with = [&](std::uint32_t layer) {
    std::uint32_t s = 0;
    while (grid.first_layer[s + 1] <= layer)
      ++s;
    return s;
  };
  const auto peer = grid.rank(c_.pipeline(), stage_with(has_first ? tie.second_layer : tie.first_layer));
  auto& theirs = posted_tied_; // until nobody writes it any more
  theirs = at::empty_like(told);
  const tag what{channel::tied, step, 0};
  auto received = c_.comm->receive(peer, what, c_.on.memory_of(theirs));
  auto sent = c_.comm->send(peer, what, c_.on.memory_of(told));
  c_.comm->give(std::array{received, sent});
  c_.comm->wait(received, peer_limit);
  c_.comm->wait(sent, peer_limit);
  if (has_first)
    mine.add_(theirs);
  else
    mine.copy_(theirs.to(at::kFloat).add_(mine));
}

std::vector<at::Tensor> stage_sums::counted_once(std::uint32_t layer) const {
  const auto& tie = c_.model->tied;
  if (!tie || tie->second_layer != layer)
    return {gradient(layer)};
  auto tensors = views_of(c_.model->layers[layer], gradient(layer));
  tensors.erase(tensors.begin() + tie->second_tensor);
  return tensors;
}

} // namespace parcae

#include "gpu/training/snapshot_feed.hpp"

#include "gpu/training/tensor_account.hpp"

#include <algorithm>
#include <utility>

namespace parcae {

namespace {

/// A snapshot that counts in its executor's memory until it has been sent.
struct counted_snapshot {
  counted_snapshot(snapshot x, std::uint64_t bytes) : what(std::move(x)), memory(bytes) {}

  const snapshot what;
  const tensor_account::share memory;
};

std::shared_ptr<const snapshot> counted(snapshot x) {
  std::uint64_t bytes = 0;
  for (const auto& shard : x.shards)
    for (const auto& part : shard->parts)
      bytes += part.size();
  const auto whole = std::make_shared<counted_snapshot>(std::move(x), bytes);
  return {whole, &whole->what};
}

std::shared_ptr<const shard_bytes> copy_of(std::uint32_t layer, const layer_state& state) {
  shard_bytes result{layer, state.at, {}};
  for (const auto& part : state.parts()) {
    const auto here = part.to(at::kCPU);
    const auto* first = static_cast<const std::byte*>(here.data_ptr());
    result.parts.emplace_back(first, first + here.nbytes());
  }
  return std::make_shared<const shard_bytes>(std::move(result));
}

} // namespace

void snapshot_feed::begin(const protect& x, data_port& port) {
  wanted_ |= x.now;
  // Repeated: what is on its way goes on. But it may be void where a snapshot is asked for.
  const bool goes_on =
      !x.now && protection_.job == x.job && protection_.pass.token == x.pass.token && protection_.keepers == x.keepers;
  protection_ = x;
  if (goes_on)
    return;
  streams_.clear();
  for (const auto& share : x.keepers)
    streams_.push_back(port.open_snapshot_stream(x.job, share.keeper, x.pass));
}

void snapshot_feed::forget(job_id job) {
  if (protection_.job != job)
    return;
  streams_.clear();
  protection_ = {};
  wanted_ = false;
}

bool snapshot_feed::busy() const {
  return std::ranges::any_of(streams_, [](const auto& x) { return x->busy(); });
}

bool snapshot_feed::send(const generation_state& g, const layer_store& store, const commit_result& result, bool whole) {
  if (!result.snapshot || streams_.empty())
    return false;
  wanted_ = false;
  const auto width = g.what.target.width;
  std::vector<snapshot> parcels(streams_.size(), {protection_.job, result, {}});
  for (auto layer = g.training->first_layer(); layer < g.training->last_layer(); ++layer) {
    if (!whole && layer % width != g.what.target.pipeline_of(g.self))
      continue;
    std::shared_ptr<const shard_bytes> copy; // one for all keepers
    for (std::size_t k = 0; k < parcels.size(); ++k)
      if (std::ranges::binary_search(protection_.keepers[k].layers, layer))
        parcels[k].shards.push_back(copy ? copy : copy = copy_of(layer, store.at(layer)));
  }
  for (std::size_t k = 0; k < parcels.size(); ++k)
    if (!parcels[k].shards.empty())
      streams_[k]->send(counted(std::move(parcels[k])));
  return true;
}

} // namespace parcae

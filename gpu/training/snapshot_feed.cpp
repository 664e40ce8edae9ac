#include "gpu/training/snapshot_feed.hpp"

#include "gpu/training/tensor_account.hpp"
#include "protocols/choreography/snapshots.hpp"

#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace parcae {

bool has_room_for_copy(std::uint64_t all, std::uint64_t peak, std::uint64_t state, std::uint64_t copy) {
  return all > 0 && peak + state + copy <= all - all / 8;
}

void snapshot_feed::begin(const protect& x, data_port& port) {
  const bool goes_on = is_repeated(protection_, x);
  protection_ = x;
  if (goes_on)
    return;
  streams_.clear();
  told_.assign(x.keepers.size(), 0);
  arrived_ = told_;
  for (const auto& share : x.keepers)
    streams_.push_back(port.open_snapshot_stream(x.job, share.keeper, x.permit));
}

void snapshot_feed::forget(job_id job) {
  if (protection_.job != job)
    return;
  streams_.clear();
  protection_ = {};
}

void snapshot_feed::rest_after(double cpu_ms) {
  using namespace std::chrono;
  if (on_.of().facts().host)
    rests_until_ =
        steady_clock::now() + duration_cast<nanoseconds>(duration<double, std::milli>(cpu_ms / copying_share));
}

bool snapshot_feed::busy() const {
  return (leaving_ && leaving_->under_way()) || std::ranges::any_of(streams_, [](const auto& x) { return x->busy(); });
}

// By LibTorch, which has other uses for that memory once the copy has left. What is on the host is copied as well: it
// may be written to next.
bool snapshot_feed::copy_there(departure& x, std::uint64_t state) const {
  std::uint64_t bytes = 0;
  for (const auto& layer : x.layers)
    for (const auto& part : layer.parts)
      bytes += part.bytes.bytes.size();
  if (!has_room_for_copy(device_bytes_, on_.of().peak_bytes(), state, bytes))
    return false;
  std::vector<std::vector<departure::part>> copies;
  try {
    for (const auto& layer : x.layers) {
      auto& parts = copies.emplace_back();
      for (const auto& part : layer.parts) {
        const auto from = std::static_pointer_cast<const at::Tensor>(part.owner);
        const auto to = std::make_shared<at::Tensor>(part.bytes.on ? at::empty_like(*from) : from->clone());
        if (part.bytes.on)
          on_.compute().copy(to->data_ptr(), part.bytes.bytes.data(), part.bytes.bytes.size());
        parts.push_back({on_.memory_of(*to), to});
      }
    }
  } catch (const c10::Error& e) { // of memory; if it is more than that, the next work fails as well
    on_.note_end(e);
    return false;
  }
  for (std::size_t i = 0; i < x.layers.size(); ++i)
    x.layers[i].parts = std::move(copies[i]);
  return true;
}

bool snapshot_feed::send(const generation_state& g, layer_store& store, const commit_result& result,
                         const loss_record& losses, bool whole, double share_of_link) {
  if (!has_keepers())
    return false;
  const bool from_host = on_.of().facts().host;
  departure x{protection_.job, result, streams_, {}, [account = tensor_account::of_this_thread()](std::uint64_t n) {
                return std::make_shared<tensor_account::entry>(account, n);
              }};
  x.share_of_link = share_of_link;
  const version at{result.step + 1, g.what.next};
  const bool all_left = !leaving_ || !leaving_->under_way();
  for (std::size_t k = 0; k < streams_.size(); ++k) {
    if (all_left && streams_[k]->wait_until_idle(std::chrono::milliseconds(0)))
      arrived_[k] = told_[k];
    auto& before = x.before.emplace_back();
    for (auto& shard : shards_of(losses, arrived_[k], at))
      before.push_back(to_send(std::move(shard)));
  }
  std::uint64_t bytes = 0; // of the stage
  for (auto layer = g.training->first_layer(); layer < g.training->last_layer(); ++layer) {
    auto& state = store.at(layer);
    for (const auto& part : state.parts())
      bytes += part.nbytes();
    std::vector<std::size_t> takers;
    for (std::size_t k = 0; k < streams_.size(); ++k)
      if (sends_to(protection_.keepers[k], g.what.target, g.self, layer, whole))
        takers.push_back(k);
    if (takers.empty())
      continue;
    auto& leaves = x.layers.emplace_back();
    leaves.number = layer;
    leaves.at = state.at;
    for (const auto k : takers)
      told_[k] = at.steps;
    leaves.takers = std::move(takers);
    for (const auto& part : state.parts())
      leaves.parts.push_back({on_.memory_of(part), std::make_shared<at::Tensor>(part)});
  }
  if (from_host) {
    depart_at_once(std::move(x));
    return true;
  }
  if (!copy_there(x, bytes))
    for (auto& layer : x.layers)
      store.at(layer.number).leaving = layer.copied.get_future().share();
  if (!leaving_)
    leaving_.emplace(on_.of());
  leaving_->depart(std::move(x));
  return true;
}

} // namespace parcae

#include "gpu/dataplane/snapshot_departure.hpp"

#include "protocols/base/crash_stack.hpp"

#include <spdlog/spdlog.h>

#include <chrono>
#include <cstring>
#include <span>
#include <utility>

namespace parcae {

namespace {

/// Of one layer, and what the device was given before it. The wait for the whole has a limit of its own.
constexpr std::chrono::minutes longest_copy{10};

/// A snapshot that is accounted for until it has been sent.
struct accounted_snapshot {
  snapshot what;
  std::shared_ptr<const void> account;
};

std::shared_ptr<const snapshot> accounted(snapshot x, const departure& by) {
  std::uint64_t bytes = 0;
  for (const auto& shard : x.shards)
    for (const auto& part : shard->parts)
      bytes += part.size();
  accounted_snapshot y{std::move(x), by.account ? by.account(bytes) : std::shared_ptr<const void>()};
  const auto whole = std::make_shared<accounted_snapshot>(std::move(y));
  return {whole, &whole->what};
}

/// The layers' copies, in their order, to all who take them.
void send_off(departure& x, const std::vector<std::shared_ptr<const snapshot_shard>>& copies) {
  std::vector<snapshot> parcels(x.streams.size(), {x.job, x.result, {}, x.share_of_link});
  for (std::size_t i = 0; i < copies.size(); ++i)
    for (const auto k : x.layers[i].takers)
      parcels[k].shards.push_back(copies[i]);
  for (std::size_t k = 0; k < parcels.size(); ++k) {
    auto& shards = parcels[k].shards;
    if (shards.empty())
      continue;
    if (!x.before.empty())
      shards.insert(shards.begin(), x.before[k].begin(), x.before[k].end());
    x.streams[k]->send(accounted(std::move(parcels[k]), x));
  }
}

/// Room for a layer's parts, one after the other.
std::shared_ptr<snapshot_shard> room_for(const departure::layer& x, device& on) {
  std::size_t bytes = 0;
  std::vector<std::size_t> places;
  for (const auto& part : x.parts) {
    places.push_back(bytes);
    bytes += (part.bytes.bytes.size() + 255) / 256 * 256;
  }
  const auto memory = std::make_shared<device_memory>(on.allocate_pinned(bytes));
  auto result = std::make_shared<snapshot_shard>(snapshot_shard{x.number, x.at, {}, memory});
  for (std::size_t i = 0; i < x.parts.size(); ++i)
    result->parts.emplace_back(memory->get() + places[i], x.parts[i].bytes.bytes.size());
  return result;
}

void copy_part(std::span<const std::byte> to, const const_memory_view& from, stream& by) {
  auto* there = const_cast<std::byte*>(to.data()); // of room_for
  if (from.on)
    by.copy(there, from.bytes.data(), to.size());
  else if (!to.empty())
    std::memcpy(there, from.bytes.data(), to.size());
}

} // namespace

void depart_at_once(departure x) {
  std::vector<std::shared_ptr<const snapshot_shard>> copies;
  for (auto& layer : x.layers) {
    shard_bytes copy{layer.number, layer.at, {}};
    for (const auto& part : layer.parts)
      copy.parts.emplace_back(part.bytes.bytes.begin(), part.bytes.bytes.end());
    copies.push_back(to_send(std::make_shared<const shard_bytes>(std::move(copy))));
    layer.copied.set_value();
  }
  send_off(x, copies);
}

snapshot_departures::snapshot_departures(device& on) : on_(on), thread_([this] { run(); }) {}

snapshot_departures::~snapshot_departures() {
  queue_.close();
  thread_.join();
}

void snapshot_departures::depart(departure x) {
  ++under_way_;
  queue_.put({std::move(x), on_.compute().record()});
}

void snapshot_departures::copy(request& x, stream& by) {
  auto& layers = x.what.layers;
  std::vector<std::shared_ptr<const snapshot_shard>> copies;
  try {
    for (const auto& layer : layers)
      copies.push_back(room_for(layer, on_));
  } catch (const device_error& e) { // if it is more than want of memory, the next work fails as well
    spdlog::warn("a snapshot is not sent: {}", e.what());
    for (auto& layer : layers)
      layer.copied.set_value();
    return;
  }
  std::vector<std::shared_ptr<event>> ends;
  by.wait_for(*x.written);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    for (std::size_t k = 0; k < layers[i].parts.size(); ++k)
      copy_part(copies[i]->parts[k], layers[i].parts[k].bytes, by);
    ends.push_back(by.record());
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!ends[i]->wait(longest_copy))
      throw device_error("a copy from the device is stuck");
    layers[i].copied.set_value();
  }
  send_off(x.what, copies);
}

void snapshot_departures::run() {
  use_crash_stack();
  std::unique_ptr<stream> by; // made when there is something to copy
  while (auto x = queue_.take()) {
    try {
      if (!by)
        by = on_.make_stream();
      copy(*x, *by);
    } catch (const device_error&) {
      // The next to write to one of these layers hears of it. A snapshot that nobody waits for just ends: the next work
      // that the device is given fails as well.
      for (auto& layer : x->what.layers)
        try {
          layer.copied.set_exception(std::current_exception());
        } catch (const std::future_error&) { // it was copied before
        }
    }
    --under_way_;
  }
}

} // namespace parcae

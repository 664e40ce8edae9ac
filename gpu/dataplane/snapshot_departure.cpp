#include "gpu/dataplane/snapshot_departure.hpp"

#include "gpu/device/host_copies.hpp"
#include "protocols/base/crash_stack.hpp"

#include <optional>
#include <utility>

namespace parcae {

namespace {

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

using copier = std::function<std::vector<std::vector<std::byte>>(const std::vector<departure::part>&)>;

/// One copy of each layer, for all who take it.
void send_off(departure& x, const copier& copy) {
  std::vector<snapshot> parcels(x.streams.size(), {x.job, x.result, {}});
  for (auto& layer : x.layers) {
    const auto shard = std::make_shared<const shard_bytes>(shard_bytes{layer.number, layer.at, copy(layer.parts)});
    layer.copied.set_value();
    for (const auto k : layer.takers)
      parcels[k].shards.push_back(shard);
  }
  for (std::size_t k = 0; k < parcels.size(); ++k)
    if (!parcels[k].shards.empty())
      x.streams[k]->send(accounted(std::move(parcels[k]), x));
}

std::vector<std::byte> copy_of(std::span<const std::byte> x) {
  return {x.begin(), x.end()};
}

std::vector<std::vector<std::byte>> copies_by(host_copies& copies, const std::shared_ptr<event>& written,
                                              const std::vector<departure::part>& parts) {
  std::vector<std::vector<std::byte>> result;
  std::vector<std::future<void>> arrived;
  for (const auto& part : parts)
    if (!part.bytes.on) {
      result.push_back(copy_of(part.bytes.bytes));
    } else {
      auto& to = result.emplace_back(part.bytes.bytes.size());
      arrived.push_back(copies.to_host(to, part.bytes.bytes.data(), written));
    }
  for (auto& x : arrived)
    x.wait(); // all of them: they write to what a failure would free
  for (auto& x : arrived)
    x.get();
  return result;
}

} // namespace

void depart_at_once(departure x) {
  send_off(x, [](const auto& parts) {
    std::vector<std::vector<std::byte>> result;
    for (const auto& part : parts)
      result.push_back(copy_of(part.bytes.bytes));
    return result;
  });
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

void snapshot_departures::run() {
  use_crash_stack();
  std::optional<host_copies> copies; // its pinned memory is taken when there is something to copy
  while (auto x = queue_.take()) {
    try {
      if (!copies)
        copies.emplace(on_);
      send_off(x->what, [&](const auto& parts) { return copies_by(*copies, x->written, parts); });
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

#pragma once

// Several participants of one generation in one process, each with a data port of its own, over loopback: plain, or in
// TLS where PARCAE_DATA_TLS is defined; where PARCAE_DATA_STAGED is, each has a device; where PARCAE_DATA_PEERS is,
// too, they copy from device to device.

#include "gpu/dataplane/data_port.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/test_authority.hpp"
#ifdef PARCAE_DATA_STAGED
#include "gpu/dataplane/staged_communicator.hpp"
#include "tests/gpu/dataplane/device_ends.hpp"
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace parcae::rig {

using namespace std::chrono_literals;

/// No wait in a test is longer.
inline constexpr std::chrono::milliseconds patience = 20s;

inline std::vector<std::byte> random_bytes(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 draw(seed);
  std::vector<std::byte> result(n);
  for (std::size_t at = 0; at < n; at += 8) {
    auto x = draw();
    std::memcpy(result.data() + at, &x, std::min<std::size_t>(8, n - at));
  }
  return result;
}

/// What tests that are of both kinds show: nothing, or the certificate of all nodes whose names begin with "node".
inline std::filesystem::path usual_bundle() {
#ifdef PARCAE_DATA_TLS
  static const test_authority authority;
  static const auto bundle = authority.fleet("node");
  return bundle;
#else
  return {};
#endif
}

struct cluster {
  explicit cluster(std::uint32_t n, const std::filesystem::path& bundle = usual_bundle()) :
      cluster(std::vector<std::filesystem::path>(n, bundle)) {}

  /// By participant.
  explicit cluster(const std::vector<std::filesystem::path>& bundles) {
    for (std::uint32_t i = 0; i < bundles.size(); ++i) {
      ports.push_back(make_data_port("127.0.0.1", 0, bundles[i]));
      plan.target.participants.push_back({{"node-" + std::to_string(i), {100 + i}, 0}, "127.0.0.1", ports[i]->port()});
    }
    plan.target.width = static_cast<std::uint32_t>(bundles.size()); // all are ranks
    plan.target.depth = 1;
    plan.job = {7};
    plan.next = {3};
    plan.token = {0x1234'5678'9abc'def0, 0x0fed'cba9'8765'4321};
  }

  const slot_id& slot(std::uint32_t i) const { return plan.target.participants[i].slot; }

  std::unique_ptr<communicator> connect(std::uint32_t i, std::chrono::milliseconds limit = patience) {
#ifdef PARCAE_DATA_STAGED
    auto& on = fake_device(i % fake_devices);
#ifdef PARCAE_DATA_PEERS
    auto place = peers.enter(purpose::generation, plan, slot(i), on);
#endif
    auto end = make_staged_communicator(ports[i]->connect(plan, slot(i), limit, never), on);
#ifdef PARCAE_DATA_PEERS
    end = make_peer_communicator(std::move(end), std::move(place), peers);
#endif
    return std::make_unique<device_ends>(std::move(end), on);
#else
    return ports[i]->connect(plan, slot(i), limit, never);
#endif
  }

  /// To those that it has shards for, or from.
  std::unique_ptr<communicator> connect_state(std::uint32_t i, std::chrono::milliseconds limit = patience) {
    return ports[i]->connect_state(plan, slot(i), limit, never);
  }

  /// Connects all; index is the participant.
  std::vector<std::unique_ptr<communicator>> connect_all() {
    std::vector<std::future<std::unique_ptr<communicator>>> ends;
    for (std::uint32_t i = 0; i < ports.size(); ++i)
      ends.push_back(std::async(std::launch::async, [this, i] { return connect(i); }));
    std::vector<std::unique_ptr<communicator>> result;
    for (auto& x : ends)
      result.push_back(x.get());
    return result;
  }

  /// Runs f(i) for every participant on a thread of its own; rethrows what the first of them threw.
  template <class Function>
  void each(Function f) {
    std::vector<std::future<void>> ends;
    for (std::uint32_t i = 0; i < ports.size(); ++i)
      ends.push_back(std::async(std::launch::async, [&f, i] { f(i); }));
    std::exception_ptr failure;
    for (auto& x : ends) {
      try {
        x.get();
      } catch (...) {
        failure = failure ? failure : std::current_exception();
      }
    }
    if (failure)
      std::rethrow_exception(failure);
  }

#ifdef PARCAE_DATA_PEERS
  peer_meeting peers; ///< as if all were of one process
#endif
  std::vector<std::unique_ptr<data_port>> ports;
  prepare plan;
  const std::atomic<bool> never = false;
};

} // namespace parcae::rig

#pragma once

// Two replicas and a keeper, in TLS, each on a host of its own behind a link that is limited: what snapshots that come
// as often as links allow cost the steps that need these links, too.

#include "protocols/trust/authority.hpp"
#include "runtime/lab/stall_runs.hpp"
#include "tests/support/host_network.hpp"

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace parcae {

class shared_links {
public:
  struct pair {
    stall_run without, with; ///< snapshots

    double ratio() const { return with.step_ms / without.step_ms; }
  };

  /// The calling thread is on the manager's host while this lives.
  shared_links(const std::filesystem::path& folder, int mbit) : network_(4) {
    if (!network_.problem().empty())
      return;
    const auto bundles = folder / "certificates";
    make_authority(bundles, std::chrono::days(1));
    for (const auto& [role, name] :
         {std::pair(membership::manager, "manager"), std::pair(membership::operator_, "operator"),
          std::pair(membership::keeper, "keeper"), std::pair(membership::node, "n0"),
          std::pair(membership::node, "n1")})
      issue_bundle(bundles, role, name, std::chrono::days(1));
    for (const auto& [name, host] : hosts_)
      network_.set_rate(host, mbit, std::chrono::seconds(1)); // so that nothing is dropped
    network_.enter(0);
    stall_place place{.over_hosts = true, .ground = {}, .arguments = {}};
    place.ground.manager = {host_network::address(0), 4242};
    place.ground.bundles = bundles;
    place.ground.before = [this](const std::string& name) {
      return network_.command_on(hosts_.contains(name) ? hosts_.at(name) : 0);
    };
    cluster_.emplace(place, 2);
  }

  ~shared_links() {
    cluster_.reset();
    if (network_.problem().empty())
      network_.enter(-1);
  }

  shared_links(const shared_links&) = delete;
  shared_links& operator=(const shared_links&) = delete;

  /// Why this machine can have no such hosts; empty: it can.
  const std::string& problem() const { return network_.problem(); }

  /// The machine's speed drifts, so pairs are best measured in one order and the other by turns.
  pair measure(bool with_first) {
    const auto measured = [this](std::uint64_t every) {
      return cluster_->measure(job(every), 2, 1, sample_origin::made_up, std::chrono::seconds(3));
    };
    pair result;
    if (with_first)
      result.with = measured(as_links_allow);
    result.without = measured(never);
    if (!with_first)
      result.with = measured(as_links_allow);
    return result;
  }

private:
  static constexpr std::uint64_t as_links_allow = 0, never = 1'000'000;

  static job_specification job(std::uint64_t keeper_every) {
    job_specification x;
    x.name = "shared-link";
    x.model = {"gpt", 2, 128, 4, 64, 256, 0, false};
    x.data = {.kind = "synthetic"};
    x.global_batch = 16;
    x.micro_batch = 4;
    x.keeper_every = keeper_every;
    return x;
  }

  const std::map<std::string, int> hosts_{{"n0", 1}, {"n1", 2}, {"keeper", 3}};
  host_network network_;
  std::optional<stall_cluster> cluster_;
};

} // namespace parcae

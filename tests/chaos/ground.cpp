#include "tests/chaos/ground.hpp"

#include "protocols/trust/authority.hpp"

#include <fstream>

namespace parcae {

ground::ground(const member_map& members, const std::filesystem::path& folder) :
    hosts_{{"manager", 0}}, bundles_(folder / "certificates") {
  for (const auto& [name, x] : members)
    hosts_.emplace(name, static_cast<int>(hosts_.size()));
  network_ = std::make_unique<host_network>(static_cast<int>(hosts_.size()));
  no_links_ = network_->problem();
  if (!no_links_.empty()) {
    network_.reset();
    return;
  }
  network_->enter(0);
  constexpr std::chrono::days validity{365};
  make_authority(bundles_, validity);
  for (const auto role : {membership::manager, membership::operator_})
    issue_bundle(bundles_, role, std::string(to_string(role)), validity);
  for (const auto& [name, x] : members)
    issue_bundle(bundles_, x.keeper ? membership::keeper : membership::node, name, validity);
}

ground::~ground() {
  if (network_)
    network_->enter(-1);
}

cluster_ground ground::of_cluster(std::function<std::filesystem::path(const std::string& name)> state_of) {
  cluster_ground result;
  if (network_) {
    result.manager = {host_network::address(0), 4242};
    result.bundles = bundles_;
  }
  result.before = [this, state_of = std::move(state_of)](const std::string& name) {
    std::vector<std::string> before;
    if (const auto state = state_of(name); !state.empty() && std::string_view(PARCAE_SLOW_DISK).size() > 0)
      before = {"/usr/bin/env", "LD_PRELOAD=" PARCAE_SLOW_DISK, "PARCAE_SLOW_DISK=" + state.string()};
    if (network_) {
      const auto there = network_->command_on(hosts_.at(name));
      before.insert(before.end(), there.begin(), there.end());
    }
    return before;
  };
  return result;
}

void ground::slow_disk(const std::filesystem::path& state, bool slow) {
  const auto sign = state.string() + ".slow";
  if (slow)
    std::ofstream(sign).flush();
  else
    std::filesystem::remove(sign);
}

} // namespace parcae

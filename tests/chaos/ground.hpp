#pragma once

// Hosts, links and disks of a cluster's processes, and what may happen to these.

#include "runtime/lab/local_cluster.hpp"
#include "tests/chaos/members.hpp"
#include "tests/support/host_network.hpp"

#include <filesystem>
#include <map>
#include <memory>
#include <string>

namespace parcae {

/// Not thread-safe. The thread that made it is on the manager's host as long as it lives, and so are its children.
class ground {
public:
  /// A host for the manager and for each of these, where that is permitted: else all are on loopback, no_links() says
  /// why, and no link can be touched. Certificates go to `folder`.
  ground(const member_map& members, const std::filesystem::path& folder);
  ~ground();

  const std::string& no_links() const { return no_links_; }

  /// This one must outlive the cluster. `state_of`: the folder that a process writes to, if any.
  cluster_ground of_cluster(std::function<std::filesystem::path(const std::string& name)> state_of);

  void cut(const std::string& name) { network_->cut(hosts_.at(name)); }
  void heal(const std::string& name) { network_->heal(hosts_.at(name)); }
  void slow_link(const std::string& name, int mbit) { network_->set_rate(hosts_.at(name), mbit); }
  void usual_link(const std::string& name) { network_->set_rate(hosts_.at(name), host_network::usual_rate); }

  /// Writing to that state folder takes long (tests/support/slow_disk.cpp), or no longer.
  static void slow_disk(const std::filesystem::path& state, bool slow);

private:
  std::map<std::string, int> hosts_; ///< by process; the manager's is 0
  std::filesystem::path bundles_;
  std::unique_ptr<host_network> network_; ///< null: loopback
  std::string no_links_;
};

} // namespace parcae

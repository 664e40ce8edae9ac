#pragma once

// A cluster of real processes on this machine: a manager and nodes. For the demo and for tests.

#include "runtime/child/process.hpp"
#include "runtime/process/client.hpp"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace parcae {

/// Something did not happen in time, or a program ended that should not have.
class cluster_error : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// Where a cluster runs: by default on loopback, on a free port, without certificates.
struct cluster_ground {
  address manager{"127.0.0.1", 0}; ///< listens there
  std::filesystem::path bundles;   ///< NAME.pem for manager, operator and each node; empty: none
  /// What the command of the manager ("manager") or of a node begins with.
  std::function<std::vector<std::string>(const std::string& name)> before;
  std::vector<std::string> manager_arguments{};                      ///< besides where it listens and its state
  std::chrono::milliseconds answers_within{std::chrono::seconds(5)}; ///< the manager, or client() throws
};

/// Not thread-safe.
class local_cluster {
public:
  /// Starts a manager and waits until it listens. `programs` holds parcae and parcae-node; logs go to `logs`, one file
  /// per process. Throws cluster_error.
  local_cluster(std::filesystem::path programs, std::filesystem::path logs, cluster_ground ground = {});

  /// Starts a node; returns at once. A name may be used again when its process has ended.
  void start_node(const std::string& name, const std::vector<std::string>& arguments = {});
  void start_keeper(const std::string& name = "keeper", std::vector<std::string> arguments = {});

  /// `parcae web`; where its page is.
  std::string start_web();
  void stop_web() { web_.reset(); }

  /// From now on nodes say what machine they are on. Else this cluster stands for one in which each node has its own.
  void tell_machine() { tells_machine_ = true; }

  /// Where the keepers write checkpoints.
  std::filesystem::path state_folder() const { return logs_ / "state"; }

  child_process& node(const std::string& name);
  bool has(const std::string& name) const { return nodes_.contains(name); }
  child_process& manager() { return *manager_; }
  const address& where() const { return where_; }
  manager_access access() const { return {where_, bundle("operator")}; }

  /// The manager was killed: starts another with its memory, at its address.
  void restart_manager();

  /// The connection to the manager.
  manager_client& client() { return *client_; }
  /// Another one, after the manager stood still.
  void reconnect();

  /// Polls the status until the condition holds; throws cluster_error naming `what` when the limit passed.
  status_reply wait_for(const std::string& what, std::chrono::milliseconds limit,
                        const std::function<bool(const status_reply&)>& condition, const status_request& wanted = {});

private:
  void start_manager(const std::string& listen);
  child_process start(const std::string& name, std::vector<std::string> command, const std::filesystem::path& output);
  std::filesystem::path bundle(const std::string& name) const;

  const cluster_ground ground_;
  bool tells_machine_ = false;
  std::filesystem::path programs_;
  std::filesystem::path logs_;
  std::unique_ptr<child_process> manager_, web_;
  std::map<std::string, child_process> nodes_;
  address where_;
  std::unique_ptr<manager_client> client_; ///< destroyed first
};

/// The living instances of a role, leaving ones included.
std::size_t living(const status_reply& x, const std::string& role);

/// The job with that number; throws cluster_error if it is not there.
const job_status& job_of(const status_reply& x, std::uint64_t id);

} // namespace parcae

#pragma once

// A cluster in virtual time: a manager's real actors over a journal, nodes' real actors over doubles of executors, one
// job, and what can be done to them.

#include "actors/manager/journal.hpp"
#include "actors/manager/registry.hpp"
#include "actors/node/instance.hpp"
#include "tests/simulation/faults.hpp"
#include "tests/simulation/network.hpp"
#include "tests/simulation/simulated_keeper.hpp"
#include "tests/simulation/simulated_worker.hpp"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace parcae::simulation {

/// What the journal of all managers has on disk.
struct journal_disk {
  std::map<std::string, std::vector<char>> values;
  bool fails = false;       ///< the next write, of which it is unknown whether it was done
  std::uint64_t unread = 0; ///< so many reads fail
};

/// One life of a node.
struct node {
  std::string name;
  bool keeper = false;
  process_ptr process;
  instance_actor instance;
  bool leaving = false;
  bool pristine = true; ///< nothing was done to it
  std::shared_ptr<shortage> lacks = std::make_shared<shortage>();
  std::map<slot_id, simulated_worker*> workers;
  std::vector<slot_id> slots;
};
using node_ptr = std::shared_ptr<node>;

struct cluster_options {
  std::uint64_t seed = 1;
  fault wrong = fault::none;
  keeper_spoiler spoil_keepers;
  job_specification job;
  network_options network;
  data_plane_options data;
  bool tells = false; ///< what happens, on standard output
};

class cluster {
public:
  explicit cluster(const cluster_options& options);
  ~cluster();

  engine& time() { return engine_; }
  dice& chance() { return engine_.chance(); }
  witness& sees() { return witness_; }

  void start_manager();
  void kill_manager();
  /// For so long.
  void freeze_manager(nanoseconds x);
  bool has_manager() const { return manager_ && manager_->alive; }
  bool manager_stands_still() const { return manager_ && manager_->frozen; }
  void break_journal() { journal_.fails = true; }
  /// Managers that start next cannot, and are started again.
  void break_reading(std::uint64_t times) { journal_.unread = times; }
  /// By its user, who asks each manager that comes.
  void cancel();
  bool is_cancelled() const { return cancelled_; }

  void start_node(const std::string& name, bool keeper, std::uint32_t slots);
  void kill_node(const node_ptr& x, bool silently);
  void give_notice(const node_ptr& x, std::chrono::milliseconds grace);
  void freeze_node(const node_ptr& x, nanoseconds longest);
  void cut_control(const node_ptr& x, nanoseconds longest);
  void cut_data(const node_ptr& x, nanoseconds longest);
  void reset(const node_ptr& x);
  void break_down(const node_ptr& x);
  void lose_data(const node_ptr& x, nanoseconds longest);
  void take_memory(const node_ptr& x, nanoseconds longest);
  /// Each shard that it sends takes so much longer.
  void slow_down(const node_ptr& x, nanoseconds longer, nanoseconds longest);
  void fill_disk(const std::string& keeper, bool full) { disk_of(keeper)->full = full; }

  /// What was done is undone, but for deaths.
  void heal_all();

  /// The job's end is in the journal.
  bool is_over() const;
  /// Looks at what is left once the job is over and all is quiet; kills everything, and looks again.
  void look_for_leaks();

  const std::map<std::string, node_ptr>& nodes() const { return nodes_; } ///< that live
  const std::set<std::string>& keepers() const { return keeper_names_; }  ///< that ever lived
  /// Of all that was sent, and when.
  std::uint64_t digest() const { return digest_; }
  void note(const std::string& what) const;

private:
  struct store;

  void submit();
  void ask_to_cancel();
  void listen(const process_ptr& manager);
  void keep_watch_on_journal(const process_ptr& manager);
  std::unique_ptr<executor> make_executor(const node_ptr& x, const slot_id& slot,
                                          std::function<void(report)> report_to);
  instance_config configuration_of(const node_ptr& x, std::uint32_t slots);
  void disturb(const node_ptr& x, const std::string& what);
  void end_node(const node_ptr& x, bool silently);
  std::shared_ptr<disk> disk_of(const std::string& keeper);
  std::vector<caf::message> pass(int to, const caf::message& x);
  void hear(int to, const caf::message& x);

  const cluster_options options_;
  engine engine_;
  witness witness_;
  network network_;
  data_plane plane_;
  faulty_messages faulty_;
  journal_disk journal_;
  bool cancelled_ = false; ///< the job
  bool closed_ = false;    ///< all was killed, to see what is left
  process_ptr manager_;
  registry_actor registry_;
  journal_actor keeping_;
  caf::actor front_;
  std::map<std::string, node_ptr> nodes_;
  std::set<std::string> keeper_names_;
  std::map<std::string, std::shared_ptr<disk>> disks_;
  std::int64_t executors_ = 0; ///< that live
  std::uint64_t lives_ = 0;
  std::uint64_t digest_ = 0;
};

} // namespace parcae::simulation

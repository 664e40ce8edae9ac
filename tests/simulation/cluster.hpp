#pragma once

// A cluster in virtual time: a manager's real actors over a journal, nodes' real actors over doubles of executors, one
// job, and what can be done to them.

#include "actors/manager/journal.hpp"
#include "actors/manager/registry.hpp"
#include "actors/node/instance.hpp"
#include "runtime/journal/etcd_journal.hpp"
#include "tests/simulation/faults.hpp"
#include "tests/simulation/network.hpp"
#include "tests/simulation/simulated_gateway.hpp"
#include "tests/simulation/simulated_keeper.hpp"
#include "tests/simulation/simulated_worker.hpp"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace parcae::simulation {

/// What the journal of all managers has on disk. With several managers it is etcd's, and has the key of the one that
/// leads.
struct journal_disk {
  std::map<std::string, std::vector<char>> values;
  bool has_last = false;      ///< the conductor's last words
  bool has_ended = false;     ///< the job, as the newest record of it says
  bool fails = false;         ///< the next write, of which it is unknown whether it was done
  std::uint64_t unread = 0;   ///< so many reads fail
  std::uint64_t leader = 0;   ///< the revision of its key; 0: nobody leads
  std::uint64_t revision = 0; ///< the newest
  time_point lease;           ///< when that key goes, unless it is renewed
};

/// One life of a manager.
struct manager {
  process_ptr process;
  std::uint64_t revision = 0; ///< by which it leads, of several
  lead_term term{lead_limits{}};
  bool cut = false;    ///< from the store
  bool ending = false; ///< its actors were told to end
  // Once it leads, or is the only one.
  registry_actor registry{};
  journal_actor keeping{};
  caf::actor front{};
};
using manager_ptr = std::shared_ptr<manager>;

/// One life of a node.
struct node {
  std::string name;
  bool keeper = false;
  bool gateway = false;
  std::string machine; ///< empty: one of its own
  process_ptr process;
  instance_actor instance;
  bool leaving = false;
  bool pristine = true; ///< nothing was done to it
  std::shared_ptr<shortage> lacks = std::make_shared<shortage>();
  std::map<slot_id, simulated_worker*> workers;
  simulated_gateway* answers = nullptr; ///< a gateway's executor; null: it is no gateway, or has no job
  std::vector<slot_id> slots;
};
using node_ptr = std::shared_ptr<node>;

struct cluster_options {
  std::uint64_t seed = 1;
  fault wrong = fault::none;
  job_specification job;
  network_options network;
  data_plane_options data;
  nanoseconds wake = 2ms; ///< until a thread of a worker goes on, at most
  bool feeds = false;     ///< layers go ahead of each change that they can go ahead of
  bool standby = false;   ///< there are two managers, of which one leads
  bool tells = false;     ///< what happens, on standard output
  request_course comes{}; ///< to the gateway
};

class cluster {
public:
  explicit cluster(const cluster_options& options);
  ~cluster();

  engine& time() { return engine_; }
  dice& chance() { return engine_.chance(); }
  witness& sees() { return witness_; }

  /// Those that are missing.
  void start_manager();
  /// The one that leads; the next three likewise.
  void kill_manager();
  /// For so long.
  void freeze_manager(nanoseconds x);
  /// From the store of several managers, for so long.
  void cut_store(nanoseconds x);
  bool has_standby() const { return options_.standby; }
  bool has_manager() const { return leader_ && leader_->process->alive; }
  bool manager_stands_still() const { return leader_ && leader_->process->frozen; }
  void break_journal() { journal_.fails = true; }
  /// Managers that start next cannot, and are started again.
  void break_reading(std::uint64_t times) { journal_.unread = times; }
  /// By its user, who asks each manager that comes.
  void cancel();
  bool is_cancelled() const { return cancelled_; }
  /// What a user is told now who asks for that part.
  job_status status(status_request asked = {});

  void start_node(const std::string& name, bool keeper, std::uint32_t slots, const std::string& machine = {});
  void start_gateway(const std::string& name);
  void kill_node(const node_ptr& x, bool silently);
  void give_notice(const node_ptr& x, std::chrono::milliseconds grace);
  void freeze_node(const node_ptr& x, nanoseconds longest);
  void cut_control(const node_ptr& x, nanoseconds longest);
  void cut_data(const node_ptr& x, nanoseconds longest);
  void reset(const node_ptr& x);
  /// The next command (to a node) or report of that index is lost with its connection.
  void lose_next(bool command, std::size_t index) { lost_next_ = {command, index}; }
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
  void look_at_losses();
  void look_at_account();

  const std::map<std::string, node_ptr>& nodes() const { return nodes_; } ///< that live
  const std::set<std::string>& keepers() const { return keeper_names_; }  ///< that ever lived
  /// Of all that was sent, and when.
  std::uint64_t digest() const { return digest_; }
  void note(const std::string& what) const;

private:
  struct store;

  void start(const node_ptr& x, std::uint32_t slots);
  std::vector<std::string> places() const;
  void start_manager_at(const std::string& place);
  void campaign(const manager_ptr& x);
  void renew(const manager_ptr& x);
  void renew_later(const manager_ptr& x, nanoseconds pause);
  bool leads(const manager_ptr& x) const;
  void give_back(const manager_ptr& x);
  void begin_to_manage(const manager_ptr& x);
  void listen(const manager_ptr& x);
  void keep_watch_on_journal(const manager_ptr& x);
  void end_manager(const manager_ptr& x, const std::string& why);
  void kill_manager(const manager_ptr& x);
  void kill_all_managers();
  void heal_managers();
  void submit();
  void ask_to_cancel();
  std::unique_ptr<executor> make_executor(const node_ptr& x, const slot_id& slot,
                                          std::function<void(report)> report_to);
  instance_config configuration_of(const node_ptr& x, std::uint32_t slots);
  void disturb(const node_ptr& x, const std::string& what);
  void end_node(const node_ptr& x, bool silently);
  std::shared_ptr<disk> disk_of(const std::string& keeper);
  /// That end of the connection is a manager's that leads no more.
  bool is_stale(const connection& c) const { return !leader_ || c.ends[1] != leader_->process; }
  void lose_if_next(const slot_id& of, bool command, std::size_t index);
  std::vector<caf::message> pass(const connection& c, int to, const caf::message& x);
  void hear(const connection& c, int to, const caf::message& x);

  const cluster_options options_;
  engine engine_;
  witness witness_;
  network network_;
  data_plane plane_;
  faulty_messages faulty_;
  journal_disk journal_;
  bool cancelled_ = false;                      ///< the job
  bool keeper_was_leaving_ = false;             ///< then versions are written at once
  bool closed_ = false;                         ///< all was killed, to see what is left
  std::map<std::string, manager_ptr> managers_; ///< that live, by their place
  manager_ptr leader_;                          ///< that led last
  std::map<std::string, node_ptr> nodes_;
  std::set<std::string> keeper_names_;
  std::map<std::string, std::shared_ptr<disk>> disks_;
  std::optional<std::pair<bool, std::size_t>> lost_next_;
  std::int64_t executors_ = 0; ///< that live
  std::uint64_t lives_ = 0;
  std::uint64_t digest_ = 0;
};

} // namespace parcae::simulation

#pragma once

// Real executors over real TCP, driven by the real conductor, in one process: what runs between processes in production
// is here a queue. Instances can be killed or frozen at any fault point inside an executor.

#include "actors/conductor/conductor.hpp"
#include "gpu/dataplane/data_port.hpp"
#include "gpu/executor/executor.hpp"
#include "tests/support/files.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

/// What an instance shall do at a fault point.
enum class fault_action { none, kill, freeze };

/// Decides at each fault point of one instance. Called on the executor's threads.
using fault_plan = std::function<fault_action(const fault_point&)>;

/// What the workers of a cluster are.
struct worker_kind {
  /// What the n-th slot computes on, from 1, keepers counted; null, or empty: the processor.
  std::function<device*(std::uint64_t n)> on{};
  std::function<nccl_access(std::uint64_t n)> nccl{}; ///< empty: none
  std::uint32_t slots = 1;                            ///< of each instance
  std::uint64_t device_bytes = 0;                     ///< of its device's memory, that a slot may take; 0: not known
};

/// Single-threaded but for the executors' callbacks: all methods are called by the test's thread.
class executor_cluster {
public:
  explicit executor_cluster(job_specification job, conductor_options options = {});
  ~executor_cluster();

  /// Starts an instance and announces its slots.
  void add_worker(const std::string& name, fault_plan faults = {});
  void add_workers(const std::vector<std::string>& names, const fault_plan& faults = {});
  void add_workers(std::uint32_t count); ///< w0, w1, …
  void add_keeper(const std::string& name, fault_plan faults = {});
  /// Behind a link that passes so many bytes per second of each connection to it. `damaged`: as slow_relay has it.
  void add_keeper_behind(const std::string& name, std::uint64_t bytes_per_second, std::uint64_t damaged = 0);

  /// Ends instances from outside, at once, as SIGKILL would, and then lets the conductor know.
  void kill(const std::vector<std::string>& names);
  void kill(const std::string& name) { kill(std::vector<std::string>{name}); }

  /// Notice that the instance will go; it is not ended.
  void notice(const std::string& name, milliseconds left);

  /// A frozen instance goes on. It was declared lost when it froze; what it says now reaches the conductor late.
  void thaw(const std::string& name);
  std::uint64_t late_reports() const { return late_reports_; } ///< of thawed instances, that the conductor has handled

  /// What it had decided and not yet done is not done; what is said to it is lost. No view() until the next one.
  void kill_manager();
  bool has_manager() const { return conductor_ != nullptr; }
  /// One that knows what the journal had, which the instances that are left join in the order of their names.
  void start_manager();

  void send(const conductor_event& x);
  /// A command to a slot, as if the conductor gave it. Nothing if its instance is gone.
  void submit(const slot_id& to, const command& x);

  /// Planner: given the number of usable slots; default best_configuration.
  std::function<configuration(std::uint32_t slots, const std::vector<layer_cost>&)> planner;

  /// From now on it chooses this shape, once there are slots enough.
  void keep_shape(std::uint32_t width, std::uint32_t depth);

  /// Before the first is added.
  worker_kind workers;

  /// Ranks begin no pass while the test's thread has handled nothing for that long: else the job may be over before the
  /// test does what it is to show. The conductor's clock stands still as well: else its limits pass while ranks may not
  /// do what they are for. 0: neither. Before the first is added.
  milliseconds lead{0};

  /// On which machine an instance is that is added; empty: on one of its own.
  std::function<std::string(const std::string& name)> machine_of;

  /// What all instances show on the data plane; empty: nothing, it is plain. Before the first is added.
  std::filesystem::path bundle;

  /// Sees every report before the conductor does.
  std::function<void(const slot_id&, const report&)> on_report;

  /// Sees every effect before it is carried out, and may return false to drop a tell.
  std::function<bool(const effect&)> on_effect;

  /// Handles events until `done` holds; false if that took longer than the limit or the job ended before.
  bool run_until(const std::function<bool()>& done, milliseconds limit = milliseconds(60'000));
  bool run_until_ended(milliseconds limit = milliseconds(120'000));

  const job_view& view() const; ///< valid until the next event is handled
  bool ended() const { return ended_; }
  bool good() const { return good_; }
  const std::vector<std::string>& log() const { return log_; } ///< with the lines of the journal
  const std::vector<loader_record>& loads() const { return loads_; }
  const std::map<std::uint64_t, double>& losses() const { return losses_; } ///< by step, the last committed

  /// Digests of the final parameters joined, for comparison.
  std::string final_digest() const;

private:
  struct instance;

  void add(const std::string& name, bool keeper, fault_plan faults, std::uint64_t bytes_per_second = 0,
           std::uint64_t damaged = 0);
  void join(const instance& x);
  void handle(const conductor_event& x);
  void carry_out(effect x);
  executor_options options_for(instance& of, const slot_id& slot, bool keeper);
  void wait_for_test(instance& of);                  ///< on an executor's thread
  std::chrono::steady_clock::time_point now() const; ///< the conductor's clock
  void note_handling();                              ///< by the test's thread
  void push(conductor_event x);                      ///< any thread

  mutable std::optional<job_view> view_; ///< as computed since the last event
  const job_specification job_;
  const conductor_options options_;
  own_folder checkpoints_; ///< of the keepers
  durable_state journal_;
  std::unique_ptr<conductor> conductor_; ///< null: the manager is dead
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<conductor_event> queue_;                              ///< guarded by mutex_
  std::vector<loader_record> loads_;                                ///< guarded by mutex_ while executors live
  std::atomic<std::chrono::steady_clock::time_point> handled_at_{}; ///< by the test's thread, or it had nothing to
  std::chrono::steady_clock::duration stood_still_{};               ///< the conductor's clock
  std::map<std::string, std::unique_ptr<instance>> instances_;
  std::vector<std::unique_ptr<instance>> buried_;
  std::set<slot_id> thawed_; ///< whose reports come late
  std::uint64_t late_reports_ = 0;
  std::uint64_t lives_ = 0;
  std::uint64_t slots_ = 0;
  bool ended_ = false;
  bool good_ = false;
  std::vector<std::string> log_;
  std::map<std::uint64_t, double> losses_; ///< guarded by mutex_ while executors live
};

/// Holds each generation but the last at its second or third step until it is told to stop, so that a fast machine does
/// not end the job before a test took all shapes: generation g may begin steps below 2·g. Or, with `nccl`, at its
/// second step by NCCL. Waiting is bounded.
class step_gate {
public:
  explicit step_gate(std::uint64_t last, bool nccl = false) : last_(last), nccl_(nccl) {}

  void see(const effect& x);                ///< every effect, on the test's thread
  fault_action pass(const fault_point& at); ///< on executors' threads
  /// Whether the generation has done what it is to do before it is held. Any thread.
  bool may_stop(std::uint64_t generation);

private:
  const std::uint64_t last_; ///< generation that runs to the end
  const bool nccl_;
  std::map<std::uint64_t, std::uint64_t> taken_over_; ///< generations, and their first step by NCCL
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t stopping_ = 0; ///< newest generation that STOP was sent to
};

/// A small gpt with dropout, tied embeddings and clipping, over the repository's own text.
job_specification small_job();

/// A configuration with equal shares of layers, whatever the times.
configuration shape(const job_specification& job, std::uint32_t width, std::uint32_t depth);

/// final_digest of the same job undisturbed at 1×1.
std::string undisturbed_digest(const job_specification& job, const worker_kind& workers = {});

/// Width and depth of generations in turn.
using shapes = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

/// final_digest of a run that takes these shapes, a few steps each, the last one to the end; else, or if a step was
/// computed twice, what went wrong. Workers with NCCL change over to it in each shape but the last, which may.
std::string digest_after(const job_specification& job, const shapes& taken, const worker_kind& workers = {});

} // namespace parcae

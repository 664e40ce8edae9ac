#pragma once

// REGISTRY: knows the instances (instance_table) and the jobs (job_queue), serves clients, gives all slots to the
// running job. Created by the manager's main program, behind the FRONT; creates injector and job_managers.

#include "actors/conductor/conductor.hpp"
#include "actors/manager/cluster_news.hpp"
#include "actors/manager/crash_verdict.hpp"
#include "actors/manager/instance_table.hpp"
#include "actors/manager/interfaces.hpp"
#include "actors/manager/job_queue.hpp"
#include "actors/manager/journal_store.hpp"
#include "actors/manager/standstill_watch.hpp"
#include "protocols/base/line_limit.hpp"

#include <caf/actor_addr.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace parcae {

struct registry_config {
  milliseconds lease{10'000};       ///< how long lost instances are listed
  conductor_options conductor;      ///< limits for all jobs
  bool own_threads = true;          ///< as in job_manager_config
  std::uint64_t manager_life = 0;   ///< random per journal; told to everybody who says HELLO
  std::uint64_t manager = 0;        ///< random per process; told, too
  std::set<std::uint64_t> managers; ///< that had this journal, this one as well
  bool beyond_loopback = false;     ///< nodes may be on other machines: there are certificates
  secret_key secret;                ///< random per journal, never sent: all tokens follow from it
  milliseconds beat{500};           ///< of its timer
  /// A gap of more than this in the timer: all silent peers may have given this process up meanwhile, or it them.
  milliseconds standstill{1'500};
  milliseconds return_window{5'000}; ///< after that: a connection that ends then is not yet a loss
  /// A member that did not say HELLO for this long is lost, whatever its connection says. Longer than until a dial is
  /// given up, and no shorter than it takes to be back after a standstill.
  milliseconds silence{5'000};
  milliseconds end_limit{30'000};       ///< from the wish to end until `ended` at the latest
  journal_actor journal;                ///< null: nothing is kept
  std::map<job_id, recovered_job> jobs; ///< as the journal has them
  std::function<void()> ended;          ///< called once, when the process may end; may be empty. Must be quick.
  /// What people should know of the manager itself: its certificate is about to end. May be empty; must be quick.
  std::function<std::string()> own_warning;
  /// Whose instances wait until BROKER says that they may train, as they are in several places, or of several kinds.
  /// Empty: none.
  std::set<std::string> pools_that_wait;
  std::map<std::string, std::string> kinds; ///< of instances, by pool, if there are several
};

struct registry_state {
  static constexpr const char* name = "registry";

  /// Of lines that others cause.
  struct line_limits {
    line_limit refusals;
    line_limit warnings;
    line_limit failures;
    line_limit notices; ///< of instances that are under notice already
    line_limit comings{cluster_news::max_news / 2, std::chrono::seconds(1)}; ///< and goings
  };

  struct member {
    instance_actor handle;
    std::vector<slot_actor> slots;
    std::uint64_t order = 0;        ///< of joining
    time_point heard;               ///< its newest HELLO
    std::set<std::uint32_t> needed; ///< slots under notice that the job has not released
    bool given_back = false;        ///< it leaves because nobody needs it
    bool away = false;              ///< its connection ended after a standstill; lost if it does not return

    /// A life is of one process, and so of one of CAF's nodes.
    bool is_of(const caf::node_id& x) const { return handle.node() == x; }
  };

  registry_config config;
  instance_table table{milliseconds(0), 0, {}};
  std::map<instance_table::key, member> members; ///< of the living
  std::uint64_t joined = 0;                      ///< instances ever
  std::deque<fleet_news> fleet;                  ///< what happened to workers, oldest first, bounded
  cluster_news news;
  market_status market;
  std::vector<rented_worker> gone; ///< of pools, since BROKER asked last; bounded
  caf::actor_addr broker;          ///< none: it never asked
  std::set<std::string> training;  ///< of pools_that_wait, those that may train
  job_queue queue;
  std::optional<time_point> idle_since;   ///< the running job waits with nothing begun, and another could run; polled
  std::optional<time_point> look_at;      ///< when that is looked at again
  std::map<job_id, job_picture> pictures; ///< last one of each job that ran
  std::map<job_id, loss_record> losses;   ///< of each job that ended
  std::map<job_id, job_status> recovered; ///< the same of jobs that ended under a manager before
  std::set<job_id> kept;                  ///< that the journal has
  job_manager_actor manager;              ///< of the running job, or null
  job_id over;                            ///< that ended last
  std::vector<instance_crash> crashes;    ///< while the running job ran, oldest first, bounded
  standstill_watch standstill{milliseconds(0), milliseconds(0)};
  std::optional<time_point> end_at; ///< once the process is to end
  injector_actor injector;
  line_limits limits;
  std::string own_warning; ///< that was told
};

registry_actor::behavior_type registry(registry_actor::stateful_pointer<registry_state> self, registry_config config);

} // namespace parcae

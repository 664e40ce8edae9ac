#pragma once

// Runs the real actors of many processes in one thread, in virtual time. All are on one CAF system, whose test
// scheduler is made to run them in an order of chance; a process that is frozen runs nothing, and what is sent to it
// waits in its actors' mailboxes, as in the buffers of its kernel.

#include "tests/simulation/timeline.hpp"

#include <caf/actor_addr.hpp>
#include <caf/actor_system.hpp>
#include <caf/node_id.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace parcae::simulation {

/// One life of a process of the cluster.
struct process {
  std::string name;
  caf::node_id node;
  bool alive = true;
  bool frozen = false;
  time_point frozen_at;
  std::vector<caf::resumable*> held;                 ///< actors with messages, while it is frozen
  std::vector<std::function<void()>> late;           ///< what came due meanwhile
  std::vector<caf::actor_addr> actors;               ///< ever
  std::function<void(const std::string&)> disturbed; ///< by what; may be empty
};
using process_ptr = std::shared_ptr<process>;

class engine {
public:
  explicit engine(std::uint64_t seed);
  ~engine();

  caf::actor_system& system() { return system_; }
  dice& chance() { return dice_; }
  time_point now() const { return scheduler_.clock().now(); }

  process_ptr start_process(const std::string& name);

  /// What is spawned by `f` belongs to the process.
  template <class Function>
  auto within(const process_ptr& p, Function&& f) {
    const auto before = std::exchange(current_, p);
    const struct restore {
      engine& e;
      process_ptr to;
      ~restore() {
        e.collect();
        e.current_ = std::move(to);
      }
    } at_end{*this, before};
    return f();
  }

  /// By SIGKILL. Nobody hears of it here.
  void kill(const process_ptr& p);
  void freeze(const process_ptr& p);
  void thaw(const process_ptr& p);

  void at(time_point when, std::function<void()> what) { timeline_.at(when, {nullptr, std::move(what)}); }
  void after(nanoseconds delay, std::function<void()> what) { at(now() + delay, std::move(what)); }
  /// A thread of that process does it: later, if it is frozen then; never, if it is dead.
  void after(const process_ptr& p, nanoseconds delay, std::function<void()> what) {
    timeline_.at(now() + delay, {p, std::move(what)});
  }

  /// Its store takes so long.
  void slow_down(const caf::actor_addr& x, nanoseconds most);

  /// All that happens until then. Returns early if `stop` says so, which is asked after every event.
  void run_until(time_point end, const std::function<bool()>& stop);
  /// All that happens at this moment.
  void settle();

  std::uint64_t messages() const { return messages_; }
  std::size_t timers() const { return scheduler_.clock().schedule().size(); }

private:
  void collect();
  void run(caf::resumable* job);
  void happen(timeline::event x);

  dice dice_;
  caf::actor_system system_;
  caf::scheduler::test_coordinator& scheduler_;
  timeline timeline_;
  process_ptr current_;
  std::unordered_map<caf::actor_id, process_ptr> process_of_;
  std::unordered_map<caf::actor_id, nanoseconds> slow_;
  std::vector<caf::resumable*> runnable_;
  std::set<caf::resumable*> delayed_; ///< of those slowed down
  std::uint32_t processes_ = 0;
  std::uint64_t messages_ = 0;
};

} // namespace parcae::simulation

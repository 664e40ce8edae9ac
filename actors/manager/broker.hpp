#pragma once

// BROKER: rents instances for the running job, or the first that waits, by the market policy
// (planner/market/renting.hpp), and keeps the ledger. Created by the manager's main program, detached, as pricing
// progress takes long; feed and hook are threads of that program which send values in, and take orders out. Without a
// market there is none.

#include "actors/manager/interfaces.hpp"
#include "planner/market/ledger.hpp"
#include "planner/market/renting.hpp"

#include <caf/typed_event_based_actor.hpp>

#include <functional>
#include <optional>

namespace parcae {

struct broker_config {
  std::vector<instance_pool> pools; ///< as renter takes them
  std::vector<egress_price> paths;
  double fixed_usd_per_h = 0;    ///< of manager and keepers
  milliseconds interval{60'000}; ///< between decisions
  registry_actor registry;
  journal_actor journal; ///< null: nothing is kept
  ledger_record past;    ///< as the journal has it
  /// Has the hook told what is to be; must be quick. Level-triggered.
  std::function<void(std::uint64_t request, const std::vector<pool_order>&)> provide;
  std::function<std::int64_t()> wall_us; ///< this machine's clock since 1970, asked once; empty: as it is
};

struct broker_state {
  static constexpr const char* name = "broker";

  broker_config config;
  std::optional<market::renter> rents;
  std::optional<market::ledger> bill;
  feed_news feed;
  hook_news hook;                         ///< words that were not heeded yet
  std::map<std::string, std::string> why; ///< by pool, as the hook said last
  std::vector<pool_order> provided;       ///< that the hook was told last
  std::uint64_t request = 0;              ///< its number
  double begun_wall_s = 0;                ///< a wall's clock may jump: from here on the other counts
  time_point begun;
  std::set<std::string> billed;                 ///< while nodes return: those whose bill has begun, here or before
  std::map<std::string, double> billed_until_s; ///< of those that ended in the last day: they may return
  std::string said;                             ///< the last sentence of the log
  bool is_late = false;                         ///< and it said so
  /// The last job whose speed was measured on instances of a kind.
  std::map<std::string, std::shared_ptr<const rented_for>> known;
  job_id stopped;                          ///< whose money is spent
  bool is_deciding = false;                ///< the next look waits: what this one does follows from what it saw
  std::optional<std::uint64_t> kept_steps; ///< it stops when these are on disk,
  time_point stop_at;                      ///< or then
};

/// Throws std::invalid_argument if the pools cannot be rented together.
broker_actor::behavior_type broker(broker_actor::stateful_pointer<broker_state> self, broker_config config);

} // namespace parcae

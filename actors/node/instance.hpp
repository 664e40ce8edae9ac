#pragma once

// INSTANCE: the node's side of membership. Dials the manager, says HELLO, creates one SLOT per slot, carries notices,
// and ends the process. Created by the node's main program.
//
//   start → dialling → greeting → member → (manager lost) dialling …
//   any   → leaving → ended         a notice (SIGTERM, the cloud); ends when released or when the notice expires
//   HELLO refused: lost_incarnation → a new life, empty, greets again; duplicate_name → dialling, until the name is
//                  free, but not for ever if it never was a member; outdated_manager → dialling, until the manager
//                  that knows more is there; any other refusal → ended, failed
//
// Training goes on while the manager is away; only a refusal by it voids the state held here. An instance that has to
// leave meanwhile sends its state to the keepers, each second: nobody else can see to it.

#include "actors/node/slot.hpp"
#include "protocols/client/client.hpp"

#include <caf/atom.hpp>
#include <caf/replies_to.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <chrono>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace parcae {

/// Connects to the actor published at a host's port: CAF's middleman, or what stands before it.
using dialler_actor =
    caf::typed_actor<caf::replies_to<caf::connect_atom, std::string,
                                     std::uint16_t>::with<caf::node_id, caf::strong_actor_ptr, std::set<std::string>>>;

struct manager_place {
  std::string host;
  std::uint16_t port = 0;
};

/// Bounds of dialling: dial_limit for one attempt, back-off from first_pause doubling to longest_pause.
struct dial_limits {
  std::chrono::milliseconds dial{5'000};
  std::chrono::milliseconds greet{5'000};
  std::chrono::milliseconds first_pause{100};
  std::chrono::milliseconds longest_pause{2'000};
  std::chrono::milliseconds greet_again{1'000}; ///< from an answer to HELLO to the next HELLO
  std::chrono::milliseconds keep_again{1'000};  ///< leaving without a manager: from one snapshot to the next
  /// How long an instance that starts waits for its name: a process that had it may have died unnoticed, while the
  /// manager stood still.
  std::chrono::milliseconds name{10'000};

  /// For several managers: one that stands still must not keep it for long from the one that leads.
  void hurry() {
    dial = std::chrono::milliseconds(2'000);
    longest_pause = std::chrono::milliseconds(500);
  }
};

/// How an instance ended.
struct instance_ending {
  std::string failure;   ///< one line; empty: it did not fail
  bool released = false; ///< nothing needs what it held
};

struct instance_config {
  hello introduction;                  ///< all but the life and what changes in it
  std::vector<manager_place> managers; ///< at least one; dialled in turn, as of several only one leads
  dial_limits limits;
  std::uint64_t seed = 0; ///< random; lives are drawn from it
  executor_source source;
  dialler_actor dialler;
  /// What people should know of this node, as its certificate is about to end; may be empty, must be quick.
  std::function<std::string()> own_warning;
  std::function<std::vector<gpu_state>()> gpus; ///< how they are; may be empty, must be quick
  std::function<instance_ages()> ages;          ///< likewise
  /// What is to be done about a manager of another build; must be quick.
  std::function<std::string()> other_build;
  std::function<place_answer(const place_question&)> look; ///< may wait: called on a thread of its own
  std::function<void()> die;                               ///< ends the process at once, as a preemption does
  std::function<void(instance_ending)> ended;              ///< called once; must be quick
};

enum class instance_phase : std::uint8_t {
  dialling, ///< waits for a connection to the manager, or for the next attempt
  greeting, ///< HELLO sent
  member,   ///< welcome
  ended,
};

struct instance_actor_state {
  static constexpr const char* name = "instance";

  instance_config config;
  instance_phase phase = instance_phase::dialling;
  std::mt19937_64 random;
  incarnation life;
  std::vector<local_slot_actor> slots;
  manager_actor manager;                                        ///< null while not connected
  std::uint64_t manager_life = 0;                               ///< of the manager that welcomed this life; 0: none yet
  std::uint64_t last_manager = 0;                               ///< that process
  std::size_t turn = 0;                                         ///< which manager is dialled next, modulo their number
  std::uint64_t attempt = 0;                                    ///< number of the newest dial timer
  unsigned dials = 0;                                           ///< since it was welcome: pauses follow from them
  std::uint64_t dials_failed = 0;                               ///< since it was a member
  bool was_member = false;                                      ///< of this manager or another, in whatever life
  std::optional<std::chrono::steady_clock::time_point> name_by; ///< until then it waits for its name
  std::optional<std::chrono::steady_clock::time_point> expires; ///< end of the notice, while leaving
  std::chrono::steady_clock::time_point looks_at;               ///< while leaving: whether the manager is there
  std::string warning;                                          ///< of the cloud: why it leaves, or may have to
  std::string own_warning;                                      ///< that the log was told
  bool looks = false;                                           ///< it looks for what a job would use
  std::optional<report_request> failure;                        ///< not yet told to the manager
};

instance_actor::behavior_type instance(instance_actor::stateful_pointer<instance_actor_state> self,
                                       instance_config config);

} // namespace parcae

#pragma once

// The choreography of a job's generations as a pure state machine (HOW_IT_WORKS.md, "Changing generation"): events in,
// effects out, no clock, no CAF, no I/O. The migration_conductor actor hosts it; tests drive it with real executors or
// dummies.

#include "actors/conductor/conducted_job.hpp"
#include "actors/conductor/job_view.hpp"
#include "planner/choose/live_plan.hpp"
#include "protocols/choreography/choreography.hpp"
#include "protocols/choreography/messages.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace parcae {

// Events

/// A slot may be used. `keeper`: it only holds snapshots. One that was lost may join again with what it holds.
struct slot_joined {
  participant where;
  bool keeper = false;
  slot_memory memory = {};
  machine_facts machine = {};
  std::optional<std::string> gateway = {}; ///< it is one, and answers there
  std::string kind = {};                   ///< of instance; empty: all are alike
};

/// The registry declared the slot lost. Edge-triggered, once.
struct slot_lost {
  slot_id slot;
  std::string why;
};

/// The slot will vanish at `expires`.
struct slot_leaving {
  slot_id slot;
  time_point expires;
};

/// The slot has a new connection: commands to it and reports of it may have been lost with the one before.
struct slot_returned {
  slot_id slot;
};

struct slot_reported {
  slot_id from;
  report what;
};

/// Answer to request_plan.
struct plan_chosen {
  std::uint64_t request = 0;
  plan_answer what;
};

/// A reason to plan anew: a forecast, a user's command.
struct plan_wanted {
  std::string why;
};

/// The newest version that the keepers hold is to be written, unless a checkpoint has it.
struct checkpoint_wanted {};

/// The job ends now, good or not, as far as it is.
struct cancel_requested {
  std::string why = "cancelled";
};

/// The manager's process ends, at the latest at `until`: the job stops, and the keepers write to disk where. Ends in
/// job_ended, whose text says how to go on.
struct manager_ends {
  time_point until;
};

/// The time is deadline() or later.
struct tick {};

using conductor_event = std::variant<slot_joined, slot_lost, slot_leaving, slot_returned, slot_reported, plan_chosen,
                                     plan_wanted, checkpoint_wanted, cancel_requested, manager_ends, tick>;

// Effects

/// Send a command to a slot.
struct tell {
  slot_id to;
  std::shared_ptr<const command> what; ///< never null; one for all that are told the same
};

/// Ask the planner for a configuration. Answered by plan_chosen with the same number.
struct request_plan {
  std::uint64_t request = 0;
  situation now;
};

/// Put into the journal, in the place of what it has of the job. The effects that follow are carried out when that is
/// durable, unless they may come `before` it.
struct record {
  durable_state now;
  std::string what; ///< one line, for people; may be empty
  bool before = false;
};

/// The job's end. Last effect ever.
struct job_ended {
  bool good = false;
  std::string why;
};

enum class severity : std::uint8_t { information, warning, error };

struct log_line {
  severity level = severity::information;
  std::string text;
};

using effect = std::variant<tell, request_plan, record, job_ended, log_line>;

/// The conductor of one job. Single-threaded.
class conductor {
public:
  /// Is told of each transition taken, by its row; for tests.
  using observer = std::function<void(std::size_t row, phase from)>;

  static std::unique_ptr<conductor> make(conducted_job job, observer observe = {});
  virtual ~conductor() = default;

  /// The table that it runs; in order.
  static std::vector<transition> transitions();

  /// The effects are to be carried out in order.
  virtual std::vector<effect> handle(time_point now, const conductor_event& x) = 0;

  /// When to send the next tick, if nothing happens before.
  virtual std::optional<time_point> deadline() const = 0;

  struct standing {
    phase now = phase::waiting;
    generation current;           ///< running, or last that ran
    std::uint64_t steps_done = 0; ///< committed
  };
  virtual standing where() const = 0;

  /// What came of each step, as far as it was heard.
  virtual const loss_record& losses() const = 0;

  /// All that `status` shows. Not free: computed.
  virtual job_view view() const = 0;

  /// When the host cannot go on: ends the workers' part, and has the keepers write what they hold. Nothing is handled
  /// afterwards.
  virtual std::vector<effect> last_will() = 0;

  /// For people, after the last will or the job's end: "; go on with …", or empty.
  virtual std::string how_to_go_on() const = 0;

  /// Whether this keeper's share of a checkpoint is awaited, or will be.
  virtual bool writes(const slot_id& keeper) const = 0;

  /// Whether a slot under notice may go: it has no place in a generation that has committed a step, and writes
  /// nothing; or nobody trains, and the keepers have all that it holds.
  virtual bool can_go(const slot_id& slot) const = 0;

private:
  class machine;
};

} // namespace parcae

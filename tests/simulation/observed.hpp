#pragma once

// What was seen of a simulated cluster, and what must hold of it: pure functions of that and of what happens next.

#include "protocols/choreography/choreography.hpp"
#include "protocols/client/journal.hpp"
#include "protocols/model/snapshot.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

namespace parcae::simulation {

/// Stands for the bits of a layer: follows from the steps it was trained on, in their order, and from nothing else.
std::uint64_t initial_bits(std::uint32_t layer);
std::uint64_t trained_bits(std::uint64_t before, std::uint32_t layer, std::uint64_t step);
/// What every rank finds of a step.
inline double loss_of(std::uint64_t step) {
  return 1 / (1 + static_cast<double>(step));
}
/// Likewise of a version that is evaluated.
double validation_loss_of(std::uint64_t steps);
/// Where an undisturbed run ends: with all its steps, or when validation does not get better.
std::uint64_t last_version(const job_specification& job);
/// Of an undisturbed run.
std::uint64_t right_bits(std::uint32_t layer, std::uint64_t steps);
/// As keepers hold it, perhaps with the course of validation.
std::shared_ptr<const shard_bytes> shard_with(std::uint32_t layer, const version& at, std::uint64_t bits,
                                              bool has_course = false);

/// Of one generation.
struct generation_history {
  std::uint64_t checksum = 0; ///< of its plan
  placement grid;
  std::optional<std::uint64_t> base;        ///< once it was activated
  std::set<std::uint64_t> begun, exchanged; ///< steps that all ranks began; of which a rank knows the result
  std::map<std::uint64_t, std::set<std::uint32_t>> applied; ///< by version: layers
  std::optional<std::uint64_t> sure_at_abort;               ///< surely_held when its end was begun by ABORT
  /// surely_held when a keeper was last asked what it holds: once it has ended, it may be cut back then.
  std::optional<std::uint64_t> sure_when_asked;
  std::set<slot_id> serving;              ///< ranks that have said SERVED
  std::uint64_t prepared_under = 0;       ///< which manager prepared it
  std::optional<std::uint64_t> last_step; ///< once a rank was given STOP
  bool broken_off = false;                ///< ABORT came before the journal had its end
  bool stopped = false;                   ///< one of its ranks was: it trains no more
  bool disturbed = false; ///< something was done to one of its ranks, or one of them failed, since it was activated
};

struct observed {
  std::uint32_t layers = 0;
  bool serves = false;        ///< the job does
  durable_state durable;      ///< of the job, as the journal has it
  std::uint64_t managers = 0; ///< so many have begun
  std::map<generation, generation_history> generations;
  generation newest_begun;           ///< that has begun a step
  std::set<layer_version> ever_kept; ///< by keepers
  std::set<slot_id> pristine;        ///< living slots to which nothing was ever done
  /// Those that have said something to the present manager; keepers: what they hold.
  std::map<slot_id, std::optional<inventory>> heard;
  std::map<slot_id, inventory> held; ///< by executors that live
};

/// The newest version of g that those hold whole whom the manager has heard, and to whom nothing was ever done; `last`
/// if there is none after that, nor later than `newest`. Workers are asked when a generation ends; of keepers what they
/// have said counts.
std::uint64_t surely_held(const observed& seen, generation g, std::uint64_t last, std::uint64_t newest = UINT64_MAX);

// What must hold when that happens. Empty: it does.

/// The manager says it to an executor.
std::string problem_with(const observed& seen, const slot_id& to, const command& what);
/// It says it.
std::string problem_with(const observed& seen, const slot_id& from, const report& what);
/// The journal has this now, in the place of what it had.
std::string problem_with(const observed& seen, const durable_state& next);
/// Somebody has heard all contributions of a step: in the first one that says that all ranks are whole.
std::string problem_with_exchange(const observed& seen, generation g, std::uint64_t step);
/// All ranks of the generation begin the step.
std::string problem_with_begin(const observed& seen, generation g, std::uint64_t step);
/// From ACTIVATE to the first commit, or ABORT: each layer of the base is whole with somebody. After executors hold
/// something else.
std::string problem_with_base(const observed& seen);
/// An executor has this at that version.
std::string problem_with_bits(std::uint32_t layer, const version& at, std::uint64_t bits);

} // namespace parcae::simulation

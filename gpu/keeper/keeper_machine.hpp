#pragma once

// The rules of a keeper's side of the choreography: what it holds of its job, and its part in generations.

#include "gpu/keeper/shard_store.hpp"
#include "gpu/keeper/snapshot_admission.hpp"
#include "protocols/base/rule_table.hpp"
#include "protocols/choreography/choreography.hpp"
#include "protocols/model/snapshot.hpp"
#include "protocols/values/loss_record.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace parcae {

/// Two things have a phase.
enum class keeper_phase : std::uint8_t {
  // What it holds.
  no_job,  ///< no job was named yet, or it was to be forgotten
  holding, ///< state of one job
  // Its part in the generation that was prepared last.
  absent,    ///< there is none, or none any more
  preparing, ///< connects with all other participants
  prepared,  ///< is connected
  sending,   ///< shards
  delivered, ///< the network has all of them
  broken,    ///< it could not do its part, and said so
};

std::string to_string(keeper_phase x);

enum class keeper_trigger : std::uint8_t {
  // Of what it holds.
  named, ///< a command names the job
  guard,
  confirm,
  replicate,
  copied, ///< another keeper has what was to be replicated
  checkpoint,
  restore,
  arrived,   ///< a shard, of a snapshot or of a checkpoint
  caught_up, ///< no further shard waits
  read,      ///< all that can be read of a checkpoint has arrived
  // Of its part.
  prepare,       ///< of a generation newer than all before
  prepare_again, ///< of the newest
  connected,     ///< with all participants
  activate,
  sent,  ///< what ACTIVATE asked for
  broke, ///< it cannot connect, or send
  abort_generation,
  // Of both.
  forget, ///< the job is over, or another one is named
};

/// As in "PREPARE comes".
std::string to_string(keeper_trigger x);

using keeper_phases = enum_set<keeper_phase>;

/// Of the keeper's table. A trigger without a row is ignored.
using keeper_row = table_row<keeper_phase, keeper_trigger>;

/// What the machine's carrier is to do.
namespace keeper_effects {

/// Send this report to the conductor.
struct say {
  keeper_report what;
};
/// From now on take snapshots of the job from senders with a token of this key, and of no other key. Call arrived() for
/// each shard that `admits` lets in.
struct take_snapshots {
  job_id job;
  secret_key key;
  std::shared_ptr<const snapshot_admission> admits; ///< may be asked on any thread
};
/// Get connections for a part; then call connected() or broke().
struct connect {
  prepare plan;
};
/// End the part's connections, and all that uses them. Nothing more is told of it.
struct cut {
  generation of;
};
/// Send shards over the part's connections, in this order; then call sent() or broke().
struct send {
  generation of;
  version at;
  std::vector<std::pair<shard_move, shard_store::shard_ptr>> shards;
};
/// Send a snapshot to another keeper; call copied() once that one has it.
struct copy {
  replicate what;
  snapshot_permit permit; ///< of this keeper
  std::shared_ptr<const snapshot> sent;
};
/// Stop sending it.
struct end_copy {
  replicate what;
};
/// Write this keeper's share of a checkpoint, and report CHECKPOINTED.
struct write {
  checkpoint what;
  std::vector<shard_store::shard_ptr> shards;
  commit_result made_by; ///< the exchange that made the version
  loss_record losses{};  ///< of the steps before it
};
/// Read its losses and layers, calling arrived() for each; then call read().
struct read {
  restore what;
};
/// Take and send no more snapshots of the job.
struct forget_job {
  job_id job;
};

} // namespace keeper_effects

using keeper_effect =
    std::variant<keeper_effects::say, keeper_effects::take_snapshots, keeper_effects::connect, keeper_effects::cut,
                 keeper_effects::send, keeper_effects::copy, keeper_effects::end_copy, keeper_effects::write,
                 keeper_effects::read, keeper_effects::forget_job>;

/// Pure: no clock, thread, lock, file or socket. Its carrier (the keeper's thread, or the simulation) makes one call at
/// a time, and does the effects that a call returns, in their order, before the next call.
///
/// It serves one job, as its stage does; a command that names another one lets go of the first.
class keeper_machine {
public:
  using effects = std::vector<keeper_effect>;

  /// `has_folder`: for checkpoints.
  keeper_machine(slot_id self, bool has_folder) : self_(std::move(self)), has_folder_(has_folder) {}
  keeper_machine(const keeper_machine&) = delete;

  /// Throws std::invalid_argument for GUARD of a model that is not known, and does nothing then.
  effects take(const keeper_command& x);

  // What came of effects. What is not of its present job, or part, is ignored.

  effects connected(generation of);
  effects sent(generation of);
  /// `why` names the generation; what is held is the machine's to say.
  effects broke(failed why);
  effects copied(const replicate& x);
  /// The version's `result` came with it.
  effects arrived(job_id job, shard_store::shard_ptr shard, const commit_result& result);
  /// After arrived(), and before anything else, if no further shard waits: KEPT is said once for all that arrived.
  effects caught_up();
  effects read(const restored& x);

  const shard_store& shards() const { return shards_; }
  const loss_record& losses() const { return losses_; }
  keeper_phase holding_phase() const { return holding_; }
  keeper_phase part_phase() const { return part_.phase; }

  static std::vector<keeper_row> table();
  /// Called for each row taken, by its number and the phase it is taken from. For tests.
  std::function<void(std::size_t, keeper_phase)> observe;

private:
  struct part {
    keeper_phase phase = keeper_phase::absent;
    prepare plan;
    std::optional<failed> failure{}; ///< said again when asked again
  };
  struct arrival {
    shard_store::shard_ptr shard;
    const commit_result& result;
  };
  /// What came with a trigger, if anything did.
  using payload = std::variant<std::monostate, const guard*, const confirm*, const replicate*, const checkpoint*,
                               const restore*, const arrival*, const restored*, const prepare*, const activate*,
                               const abort_generation*, const failed*>;
  struct trigger {
    keeper_trigger on;
    payload with;

    template <class T>
    const T& as() const {
      return *std::get<const T*>(with);
    }
  };
  using row = machine_row<keeper_phase, keeper_trigger, bool (*)(const keeper_machine&, const trigger&),
                          void (*)(keeper_machine&, const trigger&)>;
  static const std::vector<row> rows;

  void on(keeper_phase& of, keeper_trigger what, payload with = {});
  effects done() { return std::exchange(effects_, {}); }
  bool takes_part_in(generation g) const { return part_.phase != keeper_phase::absent && part_.plan.next == g; }
  bool is_source(const shard_move& x) const { return part_.plan.target.participants[x.source].slot == self_; }
  /// A layer that it is to send, and does not hold at that version.
  std::optional<std::uint32_t> first_missing(const version& at) const;
  void serve(job_id job);
  void take_one(const guard& x);
  void take_one(const confirm& x);
  void take_one(const replicate& x);
  void take_one(const checkpoint& x);
  void take_one(const restore& x);
  void take_one(const forget& x);
  void take_one(const prepare& x);
  void take_one(const activate& x);
  void take_one(const abort_generation& x);
  void take_one(const recall& x);
  void take_one(const remember& x);
  /// Of what it knows the newest from this step on, as a block; empty: nothing.
  std::vector<char> losses_from(std::uint64_t step) const;

  struct conditions;
  struct actions;
  friend struct keeper_faults; // of tests, which run the machine with a row that is wrong

  const std::vector<row>* rules_ = &rows;
  const slot_id self_;
  const bool has_folder_;

  keeper_phase holding_ = keeper_phase::no_job;
  job_id job_;
  std::optional<secret_key> key_; ///< of the snapshots taken
  std::shared_ptr<snapshot_admission> admission_;
  std::optional<std::uint32_t> with_course_; ///< the layer that has a validation_course
  shard_store shards_;
  loss_record losses_;             ///< as far as they came with snapshots, or were read
  bool is_news_ = false;           ///< shards became more since KEPT was said
  std::optional<version> reading_; ///< of a checkpoint
  std::vector<replicate> copies_;  ///< on their way

  part part_;         ///< in the generation prepared last
  generation newest_; ///< of all PREPAREs of the job
  effects effects_;   ///< of the call in progress
};

} // namespace parcae

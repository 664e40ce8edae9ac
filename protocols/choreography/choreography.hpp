#pragma once

// The messages of the migration choreography (HOW_IT_WORKS.md, "Changing generation") between the conductor in the
// manager and the executors on the nodes. Commands go to an executor (a worker's device or a keeper), reports come
// back. The same structs are CAF messages and the vocabulary of the in-process tests.
//
// Repetition: every command may be repeated; an executor answers a repeated command again and changes nothing.
// Generations: a command for a generation older than the newest one seen is answered for that generation (ABORT,
// DECIDE) or ignored (all others).

#include "protocols/base/described.hpp"
#include "protocols/choreography/placement.hpp"
#include "protocols/choreography/serving_messages.hpp"
#include "protocols/values/costs.hpp"
#include "protocols/values/ids.hpp"
#include "protocols/values/job_specification.hpp"
#include "protocols/values/loss_record.hpp"
#include "protocols/values/secrets.hpp"
#include "protocols/values/state.hpp"
#include "protocols/values/step_parts.hpp"

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace parcae {

// --- Commands: the conductor tells an executor. To a worker, if nothing else is said; PREPARE, ACTIVATE, ABORT, FORGET
// and RECALL go to keepers, too, FORGET and ROUTE to gateways.
// A job that serves (`job_specification::serves`) is one that stays at version (0, 0): its ranks answer requests where
// others train, and say SERVED where others say PROGRESS. Such a job has no keepers.

/// Loads the job's data on a thread of its own, however long that takes, and keeps it until FORGET: a generation that
/// is prepared later finds it there. Answer: loaded, or failed. A worker takes part in generations once it has
/// answered. Of large data another `loaded` follows, with the digest of all of it. If the job serves there is no data:
/// weights are looked at, and sizes of passes proven.
struct load {
  job_id job;
  job_specification specification;
};
BOOST_DESCRIBE_STRUCT(load, (), (job, specification))

/// Builds modules, allocates, opens the communicator of `next`. A generation in progress goes on meanwhile. Supersedes
/// an unfinished PREPARE of a smaller generation. Answer: prepared, or failed.
struct prepare {
  generation next;
  data_token token; ///< that data connections of this generation must show
  job_id job;
  job_specification specification;
  std::string data_digest; ///< of the data that all train on, other data is refused; empty: any
  placement target;
  std::vector<shard_move> moves;
  std::vector<cache_move> caches{}; ///< if the job serves
};
BOOST_DESCRIBE_STRUCT(prepare, (), (next, token, job, specification, data_digest, target, moves, caches))

/// To participants, while the generation before trains: its ranks send the layers of PREPARE's plan, and then each
/// step's gradients, until ACTIVATE. Answer: warmed, from who is sent nothing at once.
struct warm {
  generation next;
};
BOOST_DESCRIBE_STRUCT(warm, (), (next))

/// Asks a healthy generation to stop by its stop bit. Answer: stopped, also sent by a rank that has no step left.
struct stop {
  generation current;
  bool snapshot = false;      ///< the version it stops at goes to the keepers
  std::uint64_t recorded = 0; ///< the journal has what came of the steps before
};
BOOST_DESCRIBE_STRUCT(stop, (), (current, snapshot, recorded))

/// To all participants: the shards of PREPARE's plan are sent and received, of version `at`, and each rank trains from
/// step `at.steps` on as soon as its layers are there, whoever else is ready. At version (0, 0) a rank makes the layers
/// that it needs and neither holds nor receives: from the job's seed, or from stored weights. Caches go behind shards;
/// of these nothing has to arrive. Answer: active, from ranks once they compute; those who only send do not answer.
struct activate {
  generation next;
  version at;
  std::vector<char> losses{}; ///< a loss_block of the last steps before, which the journal may lack; empty: of none
};
BOOST_DESCRIBE_STRUCT(activate, (), (next, at, losses))

/// Ends a generation, whether it is prepared, moves shards, or runs, and at a worker one that is newer and has not
/// begun. 0: none; what is held is asked for. Answer: aborted, the executor's last word on that generation.
struct abort_generation {
  generation current;
  std::uint64_t recorded = 0; ///< as in STOP
  /// Layers that went ahead to it are held from now on, at the version they were followed to: the generation that
  /// trains may be over as well. Said again without this: they go.
  bool keeps_followed = false;
};
BOOST_DESCRIBE_STRUCT(abort_generation, (), (current, recorded, keeps_followed))

/// The conductor's decision on a step left open by an abort. With a result: a rank at version result.step applies its
/// gradients and is at (result.step + 1, current). Without (result.step == no_step): gradients are dropped.
/// Answer: decided.
struct decide {
  generation current;
  commit_result result;
};
BOOST_DESCRIBE_STRUCT(decide, (), (current, result))

/// Shards that are not of `keep` may be freed. Sent when the first step of a new generation is committed, and to who
/// comes later without a place. No answer.
struct release {
  generation current;
  std::vector<std::uint32_t> keep;   ///< layers, sorted
  std::vector<std::uint32_t> room{}; ///< of a slot without a place: layers that it may take over, to have buffers for
};
BOOST_DESCRIBE_STRUCT(release, (), (current, keep, room))

/// What one keeper is to hold.
struct keeper_share {
  participant keeper;
  std::vector<std::uint32_t> layers; ///< sorted

  friend bool operator==(const keeper_share&, const keeper_share&) = default;
};
BOOST_DESCRIBE_STRUCT(keeper_share, (), (keeper, layers))

/// To workers: where snapshots go from the next commit on. Outlives generations. No answer.
struct protect {
  job_id job;
  std::vector<keeper_share> keepers;
  snapshot_permit permit; ///< of this slot
  bool now = false;       ///< asks for a snapshot at the next commit whatever its number (a bit of the exchange,
                          ///< so that all ranks take it at the same version)
  bool whole = false;     ///< a worker that does not train sends all it holds of its stage, not just its slice
};
BOOST_DESCRIBE_STRUCT(protect, (), (job, keepers, permit, now, whole))

/// Asks a rank for all spans of its next steps. Answer: traced, one for each. A rank that does not train does nothing.
struct trace_steps {
  static constexpr std::uint32_t most = 100;

  generation current;
  std::uint32_t steps = 0; ///< at most `most`
};
BOOST_DESCRIBE_STRUCT(trace_steps, (), (current, steps))

/// To keepers: expect snapshot streams of this job, of generations up to `newest`. Sent again before a newer one is
/// activated. No answer.
struct guard {
  job_id job;
  secret_key key; ///< the senders' tokens follow from it
  generation newest;
  job_specification specification; ///< says how large layers are, and how many steps there can be
};
BOOST_DESCRIBE_STRUCT(guard, (), (job, key, newest, specification))

/// To keepers: `newest` is in the chain and complete, `safe` is too and has all its copies, so older versions may go;
/// versions not in `chain` are void. Answer: kept, with digests of the parameters at `newest` if asked for.
struct confirm {
  job_id job;
  version newest;
  version safe;
  std::vector<chain_link> chain;
  bool digests = false;
};
BOOST_DESCRIBE_STRUCT(confirm, (), (job, newest, safe, chain, digests))

/// To keepers: send these layers at `at` to another one, as a snapshot. No answer: that one says kept.
struct replicate {
  job_id job;
  version at;
  participant to;
  std::vector<std::uint32_t> layers; ///< sorted

  friend bool operator==(const replicate&, const replicate&) = default;
};
BOOST_DESCRIBE_STRUCT(replicate, (), (job, at, to, layers))

/// To keepers: write what is held of version `at`, which is in the chain and complete, to `name` below the place that
/// the specification names, or else below the keeper's own folder. Then checkpoints of older versions beside it are
/// deleted, complete or not, but those of the steps in `kept`. Snapshots are taken meanwhile. Answer: checkpointed.
struct checkpoint {
  job_id job;
  version at;
  std::string name;
  job_specification specification;
  std::string data_digest;
  std::vector<std::uint64_t> kept;
};
BOOST_DESCRIBE_STRUCT(checkpoint, (), (job, at, name, specification, data_digest, kept))

/// To keepers: read what there is of a checkpoint, and hold it as version `at`. It is in `folder` (a path or a URL). If
/// that is not there, it is in the folder with the same last two names below the place that the specification names, or
/// below the keeper's own folder. Answer: kept, as the layers are read, then
/// restored.
struct restore {
  job_id job;
  version at;
  std::string folder;
  job_specification specification; ///< a checkpoint of another model is refused
};
BOOST_DESCRIBE_STRUCT(restore, (), (job, at, folder, specification))

/// To workers and keepers: what came of the steps from this one on, and of the version that it begins at. Answer:
/// recalled.
struct recall {
  job_id job;
  std::uint64_t from = 0;
};
BOOST_DESCRIBE_STRUCT(recall, (), (job, from))

/// To keepers, before CHECKPOINT: what came of steps that this one was not told of; written with what snapshots brought
/// of the others. No answer.
struct remember {
  job_id job;
  std::vector<char> losses; ///< a loss_block
};
BOOST_DESCRIBE_STRUCT(remember, (), (job, losses))

/// Drops everything of the job, but checkpoints. No answer.
struct forget {
  job_id job;
};
BOOST_DESCRIBE_STRUCT(forget, (), (job))

/// What a worker obeys, what a keeper does, and a gateway.
using worker_command = std::variant<load, prepare, warm, stop, activate, abort_generation, decide, release, protect,
                                    trace_steps, forget, recall>;
using keeper_command = std::variant<prepare, activate, abort_generation, guard, confirm, replicate, checkpoint, restore,
                                    forget, recall, remember>;
using gateway_command = std::variant<route, forget>;
using command = boost::mp11::mp_unique<boost::mp11::mp_append<worker_command, keeper_command, gateway_command>>;

/// The generation that a command is about: the one it prepares, else the current one; 0: it is about none.
template <class Command>
generation generation_of(const Command& x) {
  if constexpr (requires { x.next; })
    return x.next;
  else if constexpr (requires { x.current; })
    return x.current;
  else
    return {};
}

template <class... Commands>
generation generation_of(const std::variant<Commands...>& x) {
  return std::visit([](const auto& y) { return generation_of(y); }, x);
}

// --- Reports: an executor tells the conductor. From a worker, if nothing else is said; keepers say prepared,
// aborted and failed, too.

struct loaded {
  job_id job;
  std::string data_digest;    ///< of the data as found here; large data: of a sample of its bytes, and of all sizes
  std::string whole_digest{}; ///< large data, later: of every byte; else empty
  proven_sizes passes{};      ///< if the job serves
};
BOOST_DESCRIBE_STRUCT(loaded, (), (job, data_digest, whole_digest, passes))

struct prepared {
  generation next;
  std::uint64_t checksum = 0; ///< of the plan as understood (see checksum_of)
};
BOOST_DESCRIBE_STRUCT(prepared, (), (next, checksum))

/// The layers that it follows are there, and none is behind; what had no room on the link comes behind ACTIVATE.
struct warmed {
  generation next;
  std::uint64_t bytes = 0; ///< received
  double ms = 0;           ///< what that took
};
BOOST_DESCRIBE_STRUCT(warmed, (), (next, bytes, ms))

struct stopped {
  generation current;
  version at;
  inventory held;
  bool is_final = false;      ///< the job ends with this version: it is the last, or validation does not get better
  std::vector<char> losses{}; ///< a loss_block of what the conductor lacks; empty: nothing
};
BOOST_DESCRIBE_STRUCT(stopped, (), (current, at, held, is_final, losses))

struct active {
  generation current;
  /// From its last answer to PREPARE, STOP, ABORT or DECIDE to the moment it could compute, by its own clock; below 0:
  /// not known.
  double since_ms = -1;
  std::uint64_t early_bytes = 0; ///< received before
  double early_ms = 0;           ///< from ACTIVATE until all of that was there
};
BOOST_DESCRIBE_STRUCT(active, (), (current, since_ms, early_bytes, early_ms))

/// After this nothing changes a shard of `current` but DECIDE.
struct aborted {
  generation current;
  version at;                       ///< of the layers of this rank's stage; meaningless if not a rank
  std::uint64_t complete = no_step; ///< step whose gradients are complete here
  commit_result result;             ///< of the last exchange completed here; step == no_step: none
  inventory held;
  std::vector<char> losses{}; ///< as in STOPPED; of a keeper likewise
};
BOOST_DESCRIBE_STRUCT(aborted, (), (current, at, complete, result, held, losses))

struct decided {
  generation current;
  inventory held;
};
BOOST_DESCRIBE_STRUCT(decided, (), (current, held))

/// What one layer took: thread CPU time, means over the steps reported. A pass is "on waking" if its thread has slept
/// since its last pass of that kind, mostly to wait for a peer: caches are cold then.
struct layer_time {
  std::uint32_t layer = 0;
  pass_times all;
  pass_times awake;  ///< of passes that are not on waking; 0: there were none
  pass_times waking; ///< what passes on waking took more than others (below 0: less); 0: one sort did not occur
};
BOOST_DESCRIBE_STRUCT(layer_time, (), (layer, all, awake, waking))

/// How often a rank reports its progress at most, after its first step: all ranks together some 200 times a second at
/// most, and each often enough for the limits on progress.
std::chrono::milliseconds progress_interval(std::uint32_t ranks);

/// A commit happened here. Sent by every rank after its first commit of a generation, then as often as its
/// progress_interval says.
struct progress {
  generation current;
  version at;
  commit_result result;
  double step_ms = 0; ///< mean wall time of the steps since the last report
  std::vector<layer_time> times;
  double other_ms = 0;          ///< thread CPU time per step that is no layer's: communication
  double waited_ms = 0;         ///< per step: was ready to compute, and had no core
  std::uint64_t peak_bytes = 0; ///< most memory that tensors took at once since the generation began
  double data_wait_ms = 0;      ///< per step: waited for samples
  std::string data_wait_for{};  ///< the file that it waited for longest; empty: it did not wait
  transport_state transport{};  ///< of this rank
  std::uint64_t skipped = 0;    ///< steps of this generation that changed nothing, as they were not finite
  step_parts parts{};           ///< of the steps since the last report that are known; all 0: none is yet
  /// Most memory that LibTorch's library had of the device at once, beside tensors too; 0: not known, as of a host.
  std::uint64_t reserved_bytes = 0;
  // Of the generation's first step: moments that came behind it, which its apply needs. The wait is no part of step_ms.
  std::uint64_t late_bytes = 0;
  double late_ms = 0;      ///< from the moment it could compute until all of that was there
  double late_wait_ms = 0; ///< of that it had nothing else to do; with each report of the generation
};
BOOST_DESCRIBE_STRUCT(progress, (),
                      (current, at, result, step_ms, times, other_ms, waited_ms, peak_bytes, data_wait_ms,
                       data_wait_for, transport, skipped, parts, reserved_bytes, late_bytes, late_ms, late_wait_ms))

/// Where the time of one step went here.
struct traced {
  generation current;
  step_trace what;
};
BOOST_DESCRIBE_STRUCT(traced, (), (current, what))

/// From a rank of the last stage: the losses at a version. May come again, from a later generation.
struct evaluated {
  generation current;
  version at;
  std::uint32_t first_replica = 0;
  std::vector<double> sums; ///< of the samples' losses, by virtual replica; the same bits for every (D, P)
};
BOOST_DESCRIBE_STRUCT(evaluated, (), (current, at, first_replica, sums))

/// Why an executor could not do its part.
enum class failure : std::uint8_t {
  communication = 1, ///< a data connection of the generation broke; says nothing about who is at fault
  unreachable,       ///< PREPARE could not connect to participant `peer`
  data,              ///< the data is missing, unreadable or differs; it may be there when it is looked for again
  computation,       ///< LibTorch threw; this rank's shards of the generation are void
  refused,           ///< the command makes no sense here; `what` says why
  sample,            ///< a sample is not what the job can train on, wherever it is read
  not_finite,        ///< loss, gradients or parameters of a step are not finite, and would be so everywhere
};

struct failed {
  generation current;
  failure kind = failure::communication;
  std::uint32_t peer = 0; ///< participant, for `unreachable`
  std::string what;
  inventory held;
};
BOOST_DESCRIBE_STRUCT(failed, (), (current, kind, peer, what, held))

/// SHA-256 of one layer's parameters, followed by its buffers, in hexadecimal.
struct layer_digest {
  std::uint32_t layer = 0;
  std::string sha256;

  friend bool operator==(const layer_digest&, const layer_digest&) = default;
};
BOOST_DESCRIBE_STRUCT(layer_digest, (), (layer, sha256))

/// From a keeper: everything it holds of a job. Sent whenever a layer has arrived or was dropped.
struct kept {
  job_id job;
  inventory held;
  std::vector<commit_result> results; ///< of the exchanges that made the versions held
  std::vector<layer_digest> digests;  ///< only to answer a `confirm` that asks for them
};
BOOST_DESCRIBE_STRUCT(kept, (), (job, held, results, digests))

/// From a keeper: its share of a checkpoint is written, and will be there after a crash.
struct checkpointed {
  job_id job;
  version at;
  std::vector<std::uint32_t> layers; ///< written
  std::string folder;                ///< absolute, or a URL
  std::string problem;               ///< empty, or why it could not be written: one line
};
BOOST_DESCRIBE_STRUCT(checkpointed, (), (job, at, layers, folder, problem))

/// From a keeper: it holds all that it could read of a checkpoint. Which layers those are it said in kept.
struct restored {
  job_id job;
  version at;
  bool damaged = false; ///< what is there cannot be read
  std::string problem;  ///< empty, or why it has no share or could not read it: one line
  bool passing = false; ///< the place could not be reached: what is there is not known; ask again later
};
BOOST_DESCRIBE_STRUCT(restored, (), (job, at, damaged, problem, passing))

/// From a worker or a keeper.
struct recalled {
  job_id job;
  std::uint64_t from = 0; ///< as asked
  /// A loss_block of what it knows from there on, or from a later step; with the step before, if that was evaluated.
  /// Empty: nothing.
  std::vector<char> losses;
};
BOOST_DESCRIBE_STRUCT(recalled, (), (job, from, losses))

/// What a worker can say, what a keeper can, and a gateway.
using worker_report = std::variant<loaded, prepared, warmed, stopped, active, aborted, decided, progress, evaluated,
                                   traced, failed, recalled, served>;
using keeper_report = std::variant<prepared, aborted, failed, kept, checkpointed, restored, recalled>;
using gateway_report = std::variant<routed>;
using report = boost::mp11::mp_unique<boost::mp11::mp_append<worker_report, keeper_report, gateway_report>>;

// --- Roles

/// A role's command, or report, as one of all.
template <class All, class Own>
All widened(Own x) {
  return std::visit([](auto& y) { return All(std::move(y)); }, x);
}

/// As one of a role's; none if it is of the other role.
template <class Own, class All>
std::optional<Own> narrowed(All x) {
  return std::visit(
      []<class T>(T& y) -> std::optional<Own> {
        if constexpr (boost::mp11::mp_contains<Own, T>::value)
          return Own(std::move(y));
        else
          return std::nullopt;
      },
      x);
}

/// Layers of a rank's stage that it neither holds at that version nor is sent. What none was trained of yet it makes
/// by itself (`at` 0).
std::vector<std::uint32_t> lacking_layers(const prepare& x, std::uint32_t rank, const inventory& held,
                                          const version& at);

/// Why its caches cannot be moved as it says; empty: they can.
std::string problem_of_caches(const prepare& x);

/// Digest of all that the participants of a generation must agree on.
std::uint64_t checksum_of(const prepare& x);

} // namespace parcae

#pragma once

// Client requests and replies as plain values, and their bytes (Cap'n Proto, client.capnp). The bytes may come from
// another build or from anyone: decoding is bounded and throws std::runtime_error with one line on what is wrong. No
// CAF.

#include "protocols/base/described.hpp"
#include "protocols/client/market_status.hpp"
#include "protocols/client/service_status.hpp"
#include "protocols/client/traces.hpp"
#include "protocols/values/costs.hpp"
#include "protocols/values/decision.hpp"
#include "protocols/values/gpu_state.hpp"
#include "protocols/values/ids.hpp"
#include "protocols/values/job_specification.hpp"
#include "protocols/values/state.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace parcae {

/// Largest request or reply, bytes; a larger one is refused before it is looked at.
inline constexpr std::size_t client_message_limit_bytes = 1 << 20;

// --- requests ------------------------------------------------------------------------------------

/// Of two jobs that wait the one with the higher priority comes first.
inline constexpr std::int32_t max_priority = 1000; ///< and the least is its negative

struct submit_request {
  job_specification job;
  std::int32_t priority = 0;
};
BOOST_DESCRIBE_STRUCT(submit_request, (), (job, priority))

/// What would become of a job if it were submitted now.
struct check_request {
  job_specification job;
  std::int32_t priority = 0;
};
BOOST_DESCRIBE_STRUCT(check_request, (), (job, priority))

/// What happened before the numbers given is left out, so that a client can poll cheaply. Of all jobs only one is told
/// in detail: the one that runs, else the newest. A cluster that does not fit into one reply is told in pages
/// (pages.hpp): jobs and instances up to those named are left out.
struct status_request {
  std::uint64_t job = 0; ///< 0: all
  std::uint64_t changes_from = 0;
  std::uint64_t events_from = 0;
  std::uint64_t decisions_from = 0;
  std::uint64_t losses_from = 0; ///< versions
  std::uint64_t news_from = 0;
  std::uint64_t failures_from = 0;
  std::uint64_t after_job = 0;
  std::string after_instance{}; ///< and its life: in the order of names, then lives
  std::uint64_t after_life = 0;
};
BOOST_DESCRIBE_STRUCT(status_request, (),
                      (job, changes_from, events_from, decisions_from, losses_from, news_from, failures_from, after_job,
                       after_instance, after_life))

/// A synthetic preemption: of the instances named, or of `any` workers chosen by `seed`.
struct preempt_request {
  std::vector<std::string> names;
  std::uint32_t any = 0;
  std::uint64_t seed = 0;
  std::uint64_t notice_ms = 0; ///< 0: no notice at all
};
BOOST_DESCRIBE_STRUCT(preempt_request, (), (names, any, seed, notice_ms))

struct cancel_request {
  std::uint64_t job = 0;
};

/// Asks for a checkpoint of the newest version that the keepers hold, if there is none yet.
struct checkpoint_request {
  std::uint64_t job = 0;
};

/// A node failed at something, or has died of it: what, and the end of its log. May be repeated.
struct report_request {
  std::string instance;
  std::string what;               ///< one line
  std::vector<std::string> lines; ///< oldest first
  std::uint64_t job = 0;          ///< that the node worked for; 0: none, or unknown
  bool ended = false;             ///< it has died of it; else it lives
};
BOOST_DESCRIBE_STRUCT(report_request, (), (instance, what, lines, job, ended))

/// What came of a job's steps: each from one on, a block of them at most; or `points` (of a block at most) evenly from
/// there to the newest. One that ended has its losses still.
struct losses_request {
  std::uint64_t job = 0;
  std::uint64_t from = 0;
  std::uint64_t points = 0; ///< 0: each
};
BOOST_DESCRIBE_STRUCT(losses_request, (), (job, from, points))

using request = std::variant<submit_request, status_request, preempt_request, cancel_request, checkpoint_request,
                             report_request, check_request, trace_request, losses_request>;

// --- replies -------------------------------------------------------------------------------------

struct instance_status {
  std::string name;
  parcae::incarnation incarnation;
  std::string role;  ///< worker, keeper
  std::string state; ///< alive, leaving, lost
  std::uint32_t slots = 0;
  std::string host;
  std::uint16_t port = 0;
  std::string processor;
  std::uint64_t age_ms = 0;
  std::int64_t expires_in_ms = -1; ///< until a notice expires; -1: not under notice
  std::int64_t lost_at_us = -1;    ///< when declared lost, monotonic clock of the manager's machine; -1: not lost
  std::string warning{};           ///< why it leaves, or may have to, as its cloud says; empty: nothing is known
  std::uint32_t slots_needed = 0;  ///< under notice: slots whose work or state is yet to be moved, by the notice's end
  std::vector<gpu_state> gpus{};   ///< a slot's each, or one for all; of none: the processor computes
  std::string pool{};              ///< that it was rented of; empty: nobody's to give back
  std::uint64_t slot_bytes = 0;    ///< of memory, that each slot promises; 0: not known

  friend bool operator==(const instance_status&, const instance_status&) = default;
};
BOOST_DESCRIBE_STRUCT(instance_status, (),
                      (name, incarnation, role, state, slots, host, port, processor, age_ms, expires_in_ms, lost_at_us,
                       warning, slots_needed, gpus, pool, slot_bytes))

/// One change of generation. Times in ms from the start of the change, -1: did not happen.
struct change_status {
  std::uint64_t number = 0;  ///< 0, 1, … within the job
  std::uint64_t to = 0;      ///< generation
  std::string trigger;       ///< what started it; empty: no change
  std::string configuration; ///< "D×P"
  std::string kind;          ///< none, intra_stage, inter_stage, pipeline
  std::uint64_t bytes = 0;
  /// Committed steps lost (only if the chain was cut) or, 1, a step dropped by an abort.
  std::uint64_t replayed_steps = 0;
  double decided_ms = -1;
  double planned_ms = -1;
  double prepared_ms = -1;
  double stopped_ms = -1;
  double ready_ms = -1; ///< ACTIVATE, and the longest that a rank waited for state before it could begin
  double active_ms = -1;
  double first_commit_ms = -1;
  /// From STOPPED of the last rank (or the loss being declared) until the last rank begins, by its own word.
  double stall_ms = -1;
  double state_wait_ms = -1; ///< the longest that a rank waited in its first step for moments, by its own clock
  /// The stall as predicted when the change was first planned, from what earlier ones took; not mended later, however
  /// the change goes. 0 if nothing ran before.
  double predicted_ms = -1;
  std::uint32_t plans = 0; ///< times that it was planned; from the second on it is another than was predicted
  bool waited = false;     ///< for instances, which no prediction knows of
  std::int64_t at_us = 0;  ///< when it began; monotonic clock of the manager's machine

  friend bool operator==(const change_status&, const change_status&) = default;
};
BOOST_DESCRIBE_STRUCT(change_status, (),
                      (number, to, trigger, configuration, kind, bytes, replayed_steps, decided_ms, planned_ms,
                       prepared_ms, stopped_ms, ready_ms, active_ms, first_commit_ms, stall_ms, state_wait_ms,
                       predicted_ms, plans, waited, at_us))

/// How fast a configuration is: by the model, corrected by what was measured, or measured.
struct configuration_status {
  std::uint32_t width = 0;
  std::uint32_t depth = 0;
  double predicted_samples_per_s = 0; ///< by the model alone
  double samples_per_s = 0;           ///< measured, or the model's corrected by its error elsewhere
  double low_samples_per_s = 0;       ///< samples_per_s is in between with 95 %
  double high_samples_per_s = 0;
  std::uint64_t measured_steps = 0; ///< 0: samples_per_s is not measured
  std::uint64_t visits = 0;         ///< generations
  bool measured_by_cpu = false;     ///< cores were short: from executors' processor time and bytes over the link

  friend bool operator==(const configuration_status&, const configuration_status&) = default;
};
BOOST_DESCRIBE_STRUCT(configuration_status, (),
                      (width, depth, predicted_samples_per_s, samples_per_s, low_samples_per_s, high_samples_per_s,
                       measured_steps, visits, measured_by_cpu))

/// Memory of one rank's tensors, bytes.
struct memory_status {
  std::string slot;
  std::uint64_t peak_bytes = 0;      ///< since its generation began
  std::uint64_t estimated_bytes = 0; ///< what is planned with; with room for a change's arrivals
  std::uint64_t reserved_bytes = 0; ///< likewise since then, with what LibTorch keeps for tensors to come; 0: not known

  friend bool operator==(const memory_status&, const memory_status&) = default;
};
BOOST_DESCRIBE_STRUCT(memory_status, (), (slot, peak_bytes, estimated_bytes, reserved_bytes))

/// A line of a job's journal or log.
struct event_status {
  std::uint64_t number = 0;
  std::int64_t at_us = 0; ///< monotonic clock of the manager's machine
  std::string level;      ///< information, warning, error
  std::string text;
  std::uint64_t job = 0; ///< that it is of; 0: of none

  friend bool operator==(const event_status&, const event_status&) = default;
};
BOOST_DESCRIBE_STRUCT(event_status, (), (number, at_us, level, text, job))

/// Where one keeper put its share of a checkpoint.
struct checkpoint_folder {
  std::string keeper; ///< instance
  std::string folder; ///< absolute, on that machine

  friend bool operator==(const checkpoint_folder&, const checkpoint_folder&) = default;
};
BOOST_DESCRIBE_STRUCT(checkpoint_folder, (), (keeper, folder))

/// The loss of the step that made a version, or the mean of those of a few steps, the last of which made it.
struct loss_point {
  std::uint64_t steps = 0;
  double loss = 0;

  friend bool operator==(const loss_point&, const loss_point&) = default;
};
BOOST_DESCRIBE_STRUCT(loss_point, (), (steps, loss))

/// What one keeper holds of a job.
struct keeper_status {
  std::string keeper;       ///< instance
  std::uint64_t steps = 0;  ///< newest version that it holds something of
  std::uint32_t layers = 0; ///< of that version; several keepers share the layers

  friend bool operator==(const keeper_status&, const keeper_status&) = default;
};
BOOST_DESCRIBE_STRUCT(keeper_status, (), (keeper, steps, layers))

/// Changes by kind of migration.
struct migration_counts {
  std::uint64_t none = 0;
  std::uint64_t intra_stage = 0;
  std::uint64_t inter_stage = 0;
  std::uint64_t pipeline = 0;

  friend bool operator==(const migration_counts&, const migration_counts&) = default;
};
BOOST_DESCRIBE_STRUCT(migration_counts, (), (none, intra_stage, inter_stage, pipeline))

/// What moves one kind of tensors between a job's slots.
struct link_status {
  std::string kind{};   ///< "activations" (with their gradients), "all-reduce", "shards"
  std::string by{};     ///< "tcp", "nccl", or "peer": copies between GPUs of one process, where all these links are
  std::string reason{}; ///< where these links are, and why it is no better, one line; empty: nothing is

  friend bool operator==(const link_status&, const link_status&) = default;
};
BOOST_DESCRIBE_STRUCT(link_status, (), (kind, by, reason))

/// Where the time of a slot's steps goes: means of the last seconds.
struct slot_times : step_parts {
  std::string slot;

  friend bool operator==(const slot_times&, const slot_times&) = default;
};
BOOST_DESCRIBE_STRUCT(slot_times, (step_parts), (slot))

// What status tells of a job, in groups. Those that the conductor fills are its own (actors/conductor/job_view.hpp).

/// What was submitted, and what became of it in the queue.
struct submission_status {
  std::uint64_t id = 0;
  std::string name;
  std::string state;   ///< queued, running, done, failed, cancelled
  std::string problem; ///< why it waits or failed
  std::int32_t priority = 0;
  std::string owner;        ///< name of the certificate that submitted it; empty: it was without one
  std::string resumed_from; ///< the checkpoint's place; empty: it began anew
  std::uint64_t steps = 0;
  std::uint32_t global_batch = 0;         ///< samples in each step; 0: an older build does not tell
  std::uint64_t planning_interval_ms = 0; ///< likewise
  std::uint32_t min_instances = 0;        ///< asked for before it begins; likewise
  std::string gradient_sums;              ///< what they are made of: float32, bfloat16; empty: likewise
  std::string kind = "train";             ///< or "serve"

  friend bool operator==(const submission_status&, const submission_status&) = default;
};
BOOST_DESCRIBE_STRUCT(submission_status, (),
                      (id, name, state, problem, priority, owner, resumed_from, steps, global_batch,
                       planning_interval_ms, min_instances, gradient_sums, kind))

/// Where it runs.
struct placement_status {
  std::string phase; ///< of the choreography, while it runs
  std::uint64_t generation = 0;
  std::uint32_t width = 0; ///< of the generation running, or being changed; 0: none
  std::uint32_t depth = 0;
  std::vector<std::string> grid;              ///< slots by rank = pipeline · depth + stage
  std::vector<incarnation> grid_incarnations; ///< of their instances
  std::string idle;                           ///< why workers have no place; empty: all have one, or nothing is known
  double samples_per_s = 0;
  double time_left_ms = -1;          ///< at the pace of the last minute, stalls included; -1: unknown
  double data_wait_ms = 0;           ///< per step: the longest that a rank waited for samples
  std::string data_wait_for;         ///< that rank's slot, and the file; empty: none waited
  transport_state transport;         ///< of the present generation, as far as heard; a reason begins with the slot
  std::vector<link_status> links;    ///< of the kinds that it has; empty: nobody has said, or it is one slot
  std::vector<memory_status> memory; ///< by rank, as far as heard
  std::vector<configuration_status> configurations; ///< that the planner last chose from
  std::vector<slot_times> step_times;               ///< by rank, as far as heard; of many ranks 64
  std::string slowest_slot;                         ///< of these: the one that waits least for others

  friend bool operator==(const placement_status&, const placement_status&) = default;
};
BOOST_DESCRIBE_STRUCT(placement_status, (),
                      (phase, generation, width, depth, grid, grid_incarnations, idle, samples_per_s, time_left_ms,
                       data_wait_ms, data_wait_for, transport, links, memory, configurations, step_times, slowest_slot))

/// How its training went. The conductor's; the next manager's goes on from it.
struct training_status {
  std::uint64_t steps_done = 0; ///< committed
  double loss = 0;
  std::int64_t loss_steps = -1;      ///< version that `loss` is of; -1: there is no loss yet
  std::int64_t evaluated_steps = -1; ///< version last evaluated on the validation samples; -1: none
  double validation_loss = 0;        ///< mean over them
  double gradient_norm = 0;
  double learning_rate = 0;
  std::vector<loss_point> losses;                        ///< ascending, at most loss_curve::max_points
  std::vector<loss_point> validation_losses;             ///< likewise
  std::map<std::uint64_t, std::uint64_t> steps_by_depth; ///< committed steps by pipeline depth P

  friend bool operator==(const training_status&, const training_status&) = default;
};
BOOST_DESCRIBE_STRUCT(training_status, (),
                      (steps_done, loss, loss_steps, evaluated_steps, validation_loss, gradient_norm, learning_rate,
                       losses, validation_losses, steps_by_depth))

/// What steps and changes take. The conductor's.
struct pace_status {
  double step_ms = 0;
  double other_ms = 0; ///< processor time per step and rank that is no layer's, in the present configuration
  std::vector<layer_cost> layer_costs;   ///< as measured so far; empty before
  parcae::change_figures change_figures; ///< learnt from the changes that went through

  friend bool operator==(const pace_status&, const pace_status&) = default;
};
BOOST_DESCRIBE_STRUCT(pace_status, (), (step_ms, other_ms, layer_costs, change_figures))

/// Its generations. The conductor's; the next manager's goes on from it.
struct history_status {
  std::uint64_t change_count = 0; ///< all, also those left out
  std::vector<change_status> changes;
  migration_counts migrations;
  std::uint64_t replayed_steps = 0;
  std::uint64_t decision_count = 0; ///< all, also those left out
  std::vector<decision> decisions;
  std::vector<chain_link> chain;

  friend bool operator==(const history_status&, const history_status&) = default;
};
BOOST_DESCRIBE_STRUCT(history_status, (),
                      (change_count, changes, migrations, replayed_steps, decision_count, decisions, chain))

/// What keepers hold. The conductor's.
struct protection_status {
  std::uint64_t protected_steps = 0;  ///< newest version that they hold complete, and that is in the chain
  bool protected_now = false;         ///< a keeper is present and has, or will have, current snapshots
  std::uint32_t copies = 0;           ///< that each layer has at least
  std::uint64_t copied_steps = 0;     ///< of this version: the newest with as many as asked for, unless that one is old
  std::string copies_problem;         ///< why there are fewer than the job asks for; empty: there are enough
  std::vector<keeper_status> keepers; ///< those present
  std::uint32_t layers = 0;           ///< of the model

  friend bool operator==(const protection_status&, const protection_status&) = default;
};
BOOST_DESCRIBE_STRUCT(protection_status, (),
                      (protected_steps, protected_now, copies, copied_steps, copies_problem, keepers, layers))

/// What is on disk. The conductor's, but for the last.
struct checkpoint_status {
  std::uint64_t checkpoint_steps = 0; ///< newest complete one that it wrote, or was started from; 0: there is none
  std::vector<checkpoint_folder> checkpoint_folders; ///< where each keeper put its share of it
  std::string checkpoint_problem;                    ///< why the last attempt to write one failed
  std::string not_on_disk; ///< why there is no checkpoint of a job that runs; empty: there is one, or none is due yet

  friend bool operator==(const checkpoint_status&, const checkpoint_status&) = default;
};
BOOST_DESCRIBE_STRUCT(checkpoint_status, (), (checkpoint_steps, checkpoint_folders, checkpoint_problem, not_on_disk))

/// All that status tells of a job: flat in JSON, and in the schema.
struct job_status : submission_status,
                    placement_status,
                    training_status,
                    pace_status,
                    history_status,
                    protection_status,
                    checkpoint_status,
                    service_status {
  bool detailed = false;         ///< else losses, changes, events and decisions are left out
  std::string parameters_sha256; ///< once done
  std::uint64_t event_count = 0;
  std::vector<event_status> events;

  friend bool operator==(const job_status&, const job_status&) = default;
};
BOOST_DESCRIBE_STRUCT(job_status,
                      (submission_status, placement_status, training_status, pace_status, history_status,
                       protection_status, checkpoint_status, service_status),
                      (detailed, parameters_sha256, event_count, events))

/// A node's last words.
struct failure_status {
  std::uint64_t number = 0; ///< 0, 1, … since the manager started
  std::int64_t at_us = 0;   ///< when it was heard; monotonic clock of the manager's machine
  std::string instance;
  std::string what;               ///< one line
  std::vector<std::string> lines; ///< its log up to then, the last of it, oldest first
  std::uint64_t job = 0;          ///< that ran, or ran last; 0: none did
  bool ended = false;             ///< its process died of it; else it was living then

  friend bool operator==(const failure_status&, const failure_status&) = default;
};
BOOST_DESCRIBE_STRUCT(failure_status, (), (number, at_us, instance, job, what, lines, ended))

struct status_reply {
  std::int64_t now_us = 0;  ///< monotonic clock of the manager's machine
  std::int64_t wall_us = 0; ///< the same moment there, since 1970; 0: from an older build
  std::vector<instance_status> instances;
  std::vector<job_status> jobs;
  std::uint64_t news_count = 0;         ///< all, also those left out
  std::vector<event_status> news;       ///< of the instances: joins, notices, losses, failures; the newest
  std::uint64_t failure_count = 0;      ///< all, also those left out
  std::vector<failure_status> failures; ///< the newest of each instance, oldest first
  std::string warning;                  ///< of the manager itself: its certificate is about to end; empty: all is well
  market_status market;
  /// Random per journal: a job's number of another manager is another job's. 0: from an older build. Beside the status
  /// in the schema, and not in JSON.
  std::uint64_t manager_life = 0;
  bool more = false; ///< there are jobs or instances behind the last of these; likewise

  friend bool operator==(const status_reply&, const status_reply&) = default;
};
BOOST_DESCRIBE_STRUCT(status_reply, (),
                      (now_us, wall_us, jobs, instances, news_count, news, failure_count, failures, warning, market))

struct submitted_reply {
  std::uint64_t job = 0;
  std::uint64_t manager_life = 0; ///< as in status_reply
};

struct preempted_reply {
  std::vector<std::string> names;
};

struct cancelled_reply {
  std::uint64_t job = 0;
};

struct error_reply {
  std::string code; ///< a name of parcae_error
  std::string text; ///< one line: what is wrong and what to do
};
BOOST_DESCRIBE_STRUCT(error_reply, (), (code, text))

/// A checkpoint was asked for; the status says when it is there.
struct checkpointing_reply {
  std::uint64_t job = 0;
};

struct reported_reply {};

struct checked_reply {
  std::string obstacle;              ///< why it cannot run on what is there now; empty: it can
  std::vector<std::string> before;   ///< the jobs that would run before it, one line each
  std::vector<std::string> problems; ///< what it would not find on a node, one line each
  std::vector<std::string> unknown;  ///< what could not be found out, likewise
};
BOOST_DESCRIBE_STRUCT(checked_reply, (), (obstacle, before, problems, unknown))

struct losses_reply {
  std::uint64_t every = 1; ///< steps from one in the block to the next
  std::vector<char> block; ///< a loss_block; empty: there are none
  /// Of the versions that were evaluated `points` at most, too, by the steps that made them.
  std::vector<loss_point> validation_losses{};
};

using reply = std::variant<error_reply, submitted_reply, status_reply, preempted_reply, cancelled_reply,
                           checkpointing_reply, reported_reply, checked_reply, trace_reply, losses_reply>;

// --- bytes ---------------------------------------------------------------------------------------

std::vector<char> encode(const request& x);
std::vector<char> encode(const reply& x);

/// The specification is decoded as it is: check it with problem_of.
request decode_request(std::span<const char> bytes);
reply decode_reply(std::span<const char> bytes);

} // namespace parcae

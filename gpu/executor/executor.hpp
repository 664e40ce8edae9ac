#pragma once

// What does the work of a slot: a worker's holds shards, computes a stage, moves shards; a keeper's holds snapshots; a
// gateway's gives requests to pipelines.

#include "protocols/choreography/choreography.hpp"

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace parcae {

class device;
struct nccl_slot;

/// Names a moment inside the executor at which tests may make it fail. Called on the executor's threads.
/// `phase` is one of: "load", "prepare", "forward", "backward", "reduced" (gradients are complete), "exchange_send"
/// (`index` contributions sent), "exchanged" (after the last receive, before the apply), "apply" (`index` layers
/// applied), "committed", "evaluate" (`index`: micro-batch), "transfer_send" (`index` shards sent), "transfer_receive",
/// "late_send", "late_receive" (their moments), of a feed, `index` a layer, "feed_base", "feed_gradient", "feed_note",
/// "feed_end" (sent), "follow_base", "follow_gradient" (received), "follow" (a step applied), "activate", "snapshot",
/// "take_over" (NCCL does from here). "Sent": to the communicator, no more: a hook changes nothing of the order in
/// which a worker sends and waits. It may throw (a failing computation), not return for a while (a frozen process), or
/// end the process.
struct fault_point {
  const char* phase;
  generation at;
  std::uint64_t step;
  std::uint32_t index;
};

/// Thrown by a fault hook: the executor ends without a word and its connections close, as if its process were killed.
struct killed {};

/// One micro-batch as the first stage gave it to the model, or the last stage compared the output with; for the test
/// that no sample is skipped or counted twice.
struct loader_record {
  generation at;
  std::uint64_t step;
  std::uint32_t micro_batch;
  std::vector<std::uint64_t> samples; ///< sample numbers
  bool targets;                       ///< of the last stage: what the output is compared with
  std::uint64_t hash;                 ///< XXH3-64 of the bytes
};

/// Whether jobs that leave the transport open use NCCL: not before gpu/README.md has a run on two GPUs.
inline constexpr bool nccl_by_itself = false;

/// NCCL on a worker's GPU.
struct nccl_access {
  std::shared_ptr<nccl_slot> slot; ///< of the node's slot, for one executor after the other; null: none
  std::string problem{};           ///< why there is none, for people; one line
  bool trusts_network = false;     ///< it may reach other hosts, though it neither authenticates nor encrypts
  bool by_itself = nccl_by_itself;
};

struct executor_options {
  slot_id self;
  std::uint32_t cores = 1;        ///< of the slot: as many threads compute for jobs that leave that open
  device* on = nullptr;           ///< what a worker's slot computes on; null: the processor. Outlives the executor
  std::uint64_t device_bytes = 0; ///< of its memory, that the slot may take; 0: not known
  nccl_access nccl{};
  std::function<void(report)> report_to;                  ///< called on the executor's threads; must not block
  std::function<void(const fault_point&)> on_fault_point; ///< may be empty
  std::function<void(const loader_record&)> on_load;      ///< may be empty
  std::function<void(const version&, const commit_result&)> on_commit; ///< after each apply of a step; may be empty
  /// Something was computed in another way in this process for want of memory, and will be again: nothing that it makes
  /// may count. The process should end. Called on the executor's threads, with why, on one line; may be empty.
  std::function<void(const std::string&)> on_spoilt;
  /// How long the thread sleeps before each second run of eight passes, as if it waited for a peer: so one slot alone
  /// shows what passes take on waking. For profiles.
  std::chrono::microseconds naps{0};
  std::vector<std::filesystem::path> data; ///< what jobs name must be below these folders and URLs; empty: anywhere
  std::filesystem::path checkpoints;       ///< a keeper's folder for them; empty: it writes none, and says so
};

/// A worker's device, a keeper or a gateway: see executor_of. Both methods may be called from any thread, and never
/// block. Commands are done in order, except that ABORT interrupts a running step between two layers and PREPARE runs
/// beside it. Destruction aborts everything and joins the executor's threads, which may take as long as a layer.
///
/// `want_snapshot` has the next commit send a snapshot to the keepers that this executor knows; a later commit does, if
/// an earlier snapshot is still on its way. Nothing happens if it does not train. May be repeated.
class executor {
public:
  virtual ~executor() = default;
  virtual void submit(command x) = 0;
  virtual void want_snapshot() = 0;
};

/// Logs an error: a command came that is not its role's. `role`: "worker".
void refuse_command(const char* role);

template <class Own>
inline constexpr const char* name_of_role = "worker";
template <>
inline constexpr const char* name_of_role<keeper_command> = "keeper";
template <>
inline constexpr const char* name_of_role<gateway_command> = "gateway";

/// One of a role. What comes here and is of another role goes no further.
template <class Own>
class executor_of : public executor {
public:
  void submit(command x) final {
    if (auto own = narrowed<Own>(std::move(x)))
      obey(std::move(*own));
    else
      refuse_command(name_of_role<Own>);
  }

private:
  virtual void obey(Own x) = 0;
};

} // namespace parcae

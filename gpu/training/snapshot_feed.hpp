#pragma once

// Snapshots of a device's stage, to the keepers of its job (HOW_IT_WORKS.md, "Keepers").

#include "gpu/dataplane/data_port.hpp"
#include "gpu/dataplane/snapshot_departure.hpp"
#include "gpu/training/generation_state.hpp"
#include "protocols/choreography/choreography.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace parcae {

/// Whether a device has room for a copy of `copy` bytes, of which a slot may take `all` (0: not known), had taken
/// `peak` at most when it trained, and may be sent `state` more by a change meanwhile. An eighth stays free: sizes
/// differ from step to step in what LibTorch rounds up.
bool has_room_for_copy(std::uint64_t all, std::uint64_t peak, std::uint64_t state, std::uint64_t copy);

/// The streams to a job's keepers; they outlive generations. Executor's main thread.
class snapshot_feed {
public:
  /// What the states it is given are on, which outlives the feed, and how much of its memory they and all else may
  /// take.
  snapshot_feed(const tensor_device& on, std::uint64_t device_bytes) : on_(on), device_bytes_(device_bytes) {}

  /// From now on to these keepers. The same ones again, and no snapshot asked for: nothing changes.
  void begin(const protect& x, data_port& port);
  /// The job is over; nothing if the feed is another one's.
  void forget(job_id job);
  void close() {
    leaving_.reset();
    streams_.clear();
  }

  /// An earlier one leaves the device, or is on its way to a keeper that takes it.
  bool busy() const;

  bool has_keepers() const { return !streams_.empty(); }

  /// If there are keepers: this replica's slice of the stage of `g` at the version
  /// just made goes to the streams, and true is returned. On the host it has been copied then; so it has on a device
  /// with room for a copy, in the order of what that computes, and on others each layer's `leaving` says when. Layers
  /// are spread over the replicas as senders (unless this one sends the `whole` stage). What came of the steps before
  /// goes with it, as far as the keeper may not have it. Snapshots that are given a share take no more of the link; 0:
  /// they are waited for.
  bool send(const generation_state& g, layer_store& store, const commit_result& result, const loss_record& losses,
            bool whole = false, double share_of_link = 0);

  /// Making one has taken so much of the training thread's processor time. A processor rests until that is
  /// `copying_share` of its time; a device copies behind the next step.
  void rest_after(double cpu_ms);
  bool rests() const { return std::chrono::steady_clock::now() < rests_until_; }

private:
  /// Has the device copy what leaves from it; `state`: bytes of the stage. False: there is no room, and nothing has
  /// changed.
  bool copy_there(departure& x, std::uint64_t state) const;

  const tensor_device on_;
  const std::uint64_t device_bytes_;
  protect protection_;
  std::vector<std::shared_ptr<snapshot_stream>> streams_;
  /// By stream: of how many steps the results were sent, and have arrived.
  std::vector<std::uint64_t> told_, arrived_;
  std::chrono::steady_clock::time_point rests_until_;
  std::optional<snapshot_departures> leaving_; ///< of a device, from the first on
};

} // namespace parcae

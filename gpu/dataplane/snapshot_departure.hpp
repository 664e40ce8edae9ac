#pragma once

// Snapshots on their way from a slot's memory to the streams to keepers.

#include "gpu/dataplane/data_port.hpp"
#include "gpu/device/device.hpp"
#include "protocols/base/mailbox.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace parcae {

/// A replica's slice of a stage at one version, and whom it is for.
struct departure {
  struct part {
    const_memory_view bytes; ///< not written to until the layer was `copied`
    std::shared_ptr<const void> owner;
  };
  struct layer {
    std::uint32_t number = 0;
    version at;
    std::vector<part> parts;
    std::vector<std::size_t> takers; ///< which of the streams
    std::promise<void> copied;       ///< or what the device failed by: device_error
  };

  job_id job;
  commit_result result;
  std::vector<std::shared_ptr<snapshot_stream>> streams;
  std::vector<layer> layers;
  /// What it returns lives as long as the copy, which is of `bytes` bytes.
  std::function<std::shared_ptr<const void>(std::uint64_t bytes)> account;
  /// By stream: what goes before the layers, if any go. As long as `streams`, or empty.
  std::vector<std::vector<std::shared_ptr<const snapshot_shard>>> before{};
  double share_of_link = 0; ///< as in `snapshot`
};

/// From memory of the host: copied and handed to the streams when this returns.
void depart_at_once(departure x);

/// From a device straight into pinned memory, which is what the streams send from: by a thread and a stream of its own,
/// so that the device goes on with the next step meanwhile. That memory is the device's to keep: the next snapshot
/// takes it again. Too little of it is a snapshot that is not sent. One thread calls; the device outlives it, and the
/// streams that took something.
class snapshot_departures {
public:
  explicit snapshot_departures(device& on);
  /// What is not yet under way is dropped.
  ~snapshot_departures();
  snapshot_departures(const snapshot_departures&) = delete;

  /// Layers leave in order, as they are after what the compute stream was given until now.
  void depart(departure x);
  /// Some have not been handed to their streams.
  bool under_way() const { return under_way_ > 0; }

private:
  struct request {
    departure what;
    std::shared_ptr<event> written;
  };

  void run();
  void copy(request& x, stream& by);

  device& on_;
  std::atomic<int> under_way_ = 0;
  mailbox<request> queue_;
  std::thread thread_;
};

} // namespace parcae

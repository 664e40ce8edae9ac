#pragma once

// A process's end of the data plane: one listening socket and the I/O thread that serves all its connections.

#include "gpu/dataplane/communicator.hpp"
#include "gpu/dataplane/frames.hpp"
#include "gpu/dataplane/peer_communicator.hpp"
#include "protocols/choreography/choreography.hpp"
#include "protocols/model/snapshot.hpp"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace parcae {

/// Sends snapshots to one keeper over a connection of its own that outlives generations; reconnects when it broke.
/// Holds at most two snapshots not yet acknowledged, the newest and the one before it, or the one being written: that
/// is finished, so that a slow link gets some through; others are dropped whole. `send` never blocks and may be called
/// from any thread. Memory is kept until acknowledged.
class snapshot_stream {
public:
  virtual ~snapshot_stream() = default;
  virtual void send(std::shared_ptr<const snapshot> x) = 0;
  /// Something waits for its acknowledgement: over a connection that stands, or for two seconds at most. Any thread.
  virtual bool busy() const = 0;
  /// Until nothing waits for an acknowledgement; false if something still does after `limit`.
  virtual bool wait_until_idle(std::chrono::milliseconds limit) = 0;
};

/// Until a participant of PREPARE has all its connections. All connect at the same moment, and none has more to do
/// before than to build modules and allocate. One that does not answer in this time is named as unreachable.
inline constexpr std::chrono::seconds connect_limit{10};

/// The same for connections of state, which ranks make once they have those among each other: who waits for a rank that
/// waits for another one is not to name the former.
inline constexpr auto state_limit = 2 * connect_limit;

/// Sizes in bytes of the shard's parts.
using snapshot_check =
    std::function<std::string(std::uint32_t layer, const version& at, const std::vector<std::uint64_t>& sizes)>;

/// Which end of a pipeline a gateway is connected with.
enum class pass_end : std::uint32_t {
  rows,   ///< its first stage, which is sent rows
  tokens, ///< its last, which sends tokens
};

/// On either side of such a connection the other one is this participant.
inline constexpr std::uint32_t pass_peer = 1;

/// Where a gateway connects with.
struct pass_call {
  job_id job;
  generation of;
  data_token token; ///< of the generation
  std::uint32_t rank = 0;
  participant to; ///< that rank
  pass_end end = pass_end::rows;
};

/// What a rank has of gateways: of each end the newest connection. A gateway may come, go and come again: that is no
/// matter of the generation. Any thread.
class pass_gate {
public:
  virtual ~pass_gate() = default; ///< closes all
  /// Null: none was there yet.
  virtual std::shared_ptr<communicator> newest(pass_end end) = 0;
  /// Its connections end, and no other one comes in.
  virtual void close() noexcept = 0;
};

/// Communicators, gates and streams must be destroyed before their port.
class data_port {
public:
  virtual ~data_port() = default;

  virtual std::uint16_t port() const = 0;

  /// Connects a rank of x.target to every other one (the smaller number dials). Blocks until all connections stand,
  /// `limit` passed (unreachable_peer), or *cancelled became true (communication_error; noticed within 50 ms).
  virtual std::unique_ptr<communicator> connect(const prepare& x, const slot_id& self, std::chrono::milliseconds limit,
                                                const std::atomic<bool>& cancelled) = 0;

  /// Likewise, a participant to those that it has shards for, or that have some for it, by connections of their own: no
  /// activation waits behind state.
  virtual std::unique_ptr<communicator> connect_state(const prepare& x, const slot_id& self,
                                                      std::chrono::milliseconds limit,
                                                      const std::atomic<bool>& cancelled) = 0;

  /// Likewise, to those that it has caches for, or that have some for it.
  virtual std::unique_ptr<communicator> connect_caches(const prepare& x, const slot_id& self,
                                                       std::chrono::milliseconds limit,
                                                       const std::atomic<bool>& cancelled) = 0;

  /// Lets gateways in, as this rank.
  virtual std::unique_ptr<pass_gate> accept_passes(const prepare& x, std::uint32_t rank) = 0;

  /// A gateway's connection with an end of a pipeline, tried until it stands. Blocks; throws communication_error: it is
  /// refused for good, `limit` passed, or *cancelled became true.
  virtual std::unique_ptr<communicator> connect_passes(const pass_call& x, std::chrono::milliseconds limit,
                                                       const std::atomic<bool>& cancelled) = 0;

  /// Where slots of this process that have devices find each other.
  virtual peer_meeting& peers() = 0;

  virtual std::unique_ptr<snapshot_stream> open_snapshot_stream(job_id job, const participant& keeper,
                                                                const snapshot_permit& permit) = 0;

  /// Accepts snapshot streams of a job from senders with a token that follows from `key`. Before a shard is read
  /// `check` (may be empty) says, by its header, why it is not taken; empty: it is. If it is not, the stream is closed:
  /// its sender keeps what was not acknowledged, and tries again. `on_shard` is called for each complete, checksummed
  /// shard. Both are called on the I/O thread and must be quick (move shards away). A second call for the same job
  /// replaces the first. Returns a number for end_snapshots, not 0.
  virtual std::uint64_t accept_snapshots(job_id job, const secret_key& key, snapshot_check check,
                                         std::function<void(const commit_result&, shard_bytes)> on_shard) = 0;

  /// Returns when no call is under way. Nothing if that acceptance was replaced: a keeper's new life may be quicker
  /// than the end of the old one.
  virtual void end_snapshots(std::uint64_t number) = 0;

  /// The bundle's files have changed: reads them again, as network_side's does on the control plane. Returns what is
  /// wrong, in one line, or nothing. Any thread.
  virtual std::string read_bundle_again() = 0;
};

/// Listens on host:port (a name or an address; 0: any free port) and starts the I/O thread. With a bundle
/// (protocols/trust) all connections are TLS, between nodes under the names that their certificates allow; without one
/// there is only loopback. Throws std::runtime_error with the address and the reason if that fails. Connections that do
/// not open with a well-formed greeting are closed and logged; a greeting of a generation not yet prepared here waits
/// at most 60 s, and at most 1024 of them. Each connection sends at most `link_bytes_per_s`, if that is not 0.
std::unique_ptr<data_port> make_data_port(const std::string& host, std::uint16_t port = 0,
                                          const std::filesystem::path& bundle = {}, std::uint64_t link_bytes_per_s = 0);

} // namespace parcae

#pragma once

// Both ends of snapshot streams; used by the data port only. Everything here runs on its I/O thread.

#include "gpu/dataplane/data_port.hpp"
#include "gpu/dataplane/port_side.hpp"
#include "protocols/base/line_limit.hpp"

#include <boost/asio/awaitable.hpp>

#include <memory>
#include <vector>

namespace parcae {

/// One accept_snapshots: who may send, and where the shards go.
struct snapshot_gate {
  std::uint64_t number = 0;
  job_id job;
  secret_key key;
  snapshot_check check; ///< may be empty
  std::function<void(const commit_result&, shard_bytes)> on_shard;
  bool open = true; ///< false: no further call of on_shard
  line_limit problems;
  std::vector<std::weak_ptr<secure_socket>> streams;

  /// Ends the streams that came through it.
  void close();
};

/// Serves one accepted stream until it ends, or the gate closes.
boost::asio::awaitable<void> receive_snapshots(socket_ptr socket, std::shared_ptr<snapshot_gate> gate);

std::unique_ptr<snapshot_stream> make_snapshot_stream(port_side& side, job_id job, participant keeper,
                                                      const snapshot_permit& permit);

} // namespace parcae

#pragma once

// Both ends of snapshot streams; used by the data port only. Everything here runs on its I/O thread.

#include "gpu/dataplane/data_port.hpp"
#include "protocols/base/line_limit.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

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
  std::vector<std::weak_ptr<boost::asio::ip::tcp::socket>> streams;

  /// Ends the streams that came through it.
  void close();
};

/// Serves one accepted stream until it ends, or the gate closes.
boost::asio::awaitable<void> receive_snapshots(std::shared_ptr<boost::asio::ip::tcp::socket> socket,
                                               std::shared_ptr<snapshot_gate> gate);

std::unique_ptr<snapshot_stream> make_snapshot_stream(boost::asio::io_context& io, job_id job, participant keeper,
                                                      const snapshot_pass& pass);

} // namespace parcae

#pragma once

// Bytes between the participants of one generation. Torch-free; implemented over TCP (tcp_communicator.hpp), and on top
// of that for the memory of devices: through the host (staged_communicator.hpp), or from device to device, within a
// process (peer_communicator.hpp) or by NCCL (nccl_communicator.hpp).

#include "gpu/device/device.hpp"
#include "protocols/model/snapshot.hpp"
#include "protocols/values/ids.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

namespace parcae {

/// The generation's communication ended: a connection broke, a peer sent what was not expected, or abort() was called.
/// The communicator is of no further use. Says nothing about which instance is at fault.
class communication_error : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// PREPARE could not connect to a participant within the limit.
class unreachable_peer : public communication_error {
public:
  unreachable_peer(std::uint32_t participant, const std::string& what) : communication_error(what), peer(participant) {}

  std::uint32_t peer;
};

/// What a message is for; both ends must agree, a mismatch is a communication_error.
enum class channel : std::uint16_t {
  activation = 1, ///< output of a stage for a micro-batch
  gradient,       ///< gradient of that output
  reduction,      ///< partial sums and results of an all-reduce
  tied,           ///< gradients of tied embeddings
  exchange,       ///< contributions to the commit exchange
  shard,          ///< state in a migration
  statistics,     ///< what micro-batches add to running statistics
  evaluation,     ///< output of a stage for a micro-batch of the validation samples
  nccl,           ///< what ranks tell each other about NCCL
  pass,           ///< what goes round a pipeline that serves a model
  cache,          ///< what requests have in the caches of its layers, at a change
};

/// What a frame says about its payload besides its length; checked by the receiver.
struct tag {
  channel kind;
  std::uint64_t step = 0;  ///< step or, for shards, version
  std::uint32_t index = 0; ///< micro-batch, layer, chunk …

  friend bool operator==(const tag&, const tag&) = default;
};

/// Of a part of a layer's state in a migration.
inline tag shard_tag(const version& at, std::uint32_t layer, std::size_t part) {
  return {channel::shard, at.steps, layer * std::uint32_t{max_parts} + static_cast<std::uint32_t>(part)};
}

/// A send or receive under way.
class transmission {
public:
  virtual ~transmission() = default;
};
using ticket = std::shared_ptr<transmission>;

/// Connections to all ranks of one generation, or to those participants that it has shards for or from. Messages
/// between two participants keep their order: the n-th receive posted for a peer takes the n-th message that peer sent,
/// and their tags and lengths must agree. Any number of sends and receives may be under way, in both directions at
/// once. A send may last until its receive is posted.
///
/// Memory of a device is used in the order of its compute stream: what is sent is what the work given before leaves
/// there, and what came is there for the work given after wait().
///
/// When a connection ends, what came before its end is still received; only transmissions that need more of it fail.
/// Others go on until abort(). Of what goes from device to device nothing comes before its receive is posted.
///
/// Threads: any; for the messages to one participant, or from it, one at a time posts. Buffers must stay alive until
/// their ticket was waited for, or until the communicator is destroyed.
class communicator {
public:
  virtual ~communicator() = default;

  virtual std::uint32_t self() const = 0; ///< this participant's number
  virtual std::uint32_t size() const = 0; ///< number of participants

  virtual ticket send(std::uint32_t peer, tag what, const_memory_view bytes) = 0;
  virtual ticket receive(std::uint32_t peer, tag what, memory_view bytes) = 0;

  /// These are moved next, at once, as far as they are in memory of a device: where that takes its messages in an order
  /// that all know beforehand (nccl_communicator.hpp), none is moved before it was given, nor may it be waited for. The
  /// others have nothing to do with that. Who has the other end of one of these gives the same ones of the two, and
  /// nobody gives another before it that comes after it there.
  virtual void give(std::span<const ticket>) {}

  /// Returns when the transmission is done; throws communication_error when the communicator was aborted, its
  /// connection broke, or `limit` passed.
  virtual void wait(const ticket& x, std::chrono::milliseconds limit) = 0;
  /// Whether wait() would return or throw at once. Moves what can be moved.
  virtual bool done(const ticket& x) = 0;

  /// When the first bytes of what was received came; nullopt: not known. After wait().
  virtual std::optional<std::chrono::steady_clock::time_point> began(const ticket&) const { return {}; }

  /// Throws communication_error if what came to a device before the last wait() may be anything, as some of the work of
  /// this communicator there was cut off: that ends as if nothing was wrong. To be called once the device's work is
  /// done.
  virtual void check() {}

  /// Closes all connections; pending and later transmissions fail at once. Returns when no
  /// buffer of the host is touched any more; those of a device may be until this object is destroyed.
  virtual void abort() noexcept = 0;
};

} // namespace parcae

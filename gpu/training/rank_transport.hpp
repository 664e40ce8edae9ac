#pragma once

// What moves tensors between the ranks of a generation: TCP, and NCCL once all of them are ready for it.

#include "gpu/dataplane/nccl_communicator.hpp"
#include "gpu/executor/executor.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace parcae {

class data_port;

/// As one participant sees it. connect() is for the thread of the preparation; the rest for that which trains, when the
/// preparation is over. With TCP only, which most jobs have, all of it does nothing.
class rank_transport {
public:
  rank_transport(const prepare& what, std::uint32_t self, const executor_options& options);

  /// The generation's communicator, over its connections in `below`. Blocks until the connections that NCCL's needs
  /// stand as well. All ranks make them, also those that cannot use NCCL: the others hear by their end not to wait.
  /// Whatever fails there, training needs none of it.
  std::unique_ptr<communicator> connect(std::unique_ptr<communicator> below, data_port& port,
                                        const std::atomic<bool>& cancelled);

  /// Before shards are moved to version `at` over connect()'s communicator, of a job that says "nccl": makes NCCL's
  /// communicator, which takes nccl_limits::make at most, and if that is so for all ranks it moves shards. All ranks
  /// call it. Throws communication_error.
  void begin_transfer(communicator& comm, const version& at);
  /// Whether NCCL moves what this rank and that participant have for each other.
  bool moves_shards(std::uint32_t peer) const { return moves_shards_ && peer < what_.target.ranks(); }
  /// After that. Steps begin without NCCL, as begin_step() says. Throws communication_error.
  void end_transfer();
  /// Its generation has stopped: there can be another communicator of NCCL's.
  void leave();
  /// Its generation was aborted, or its transfer failed: counts if NCCL moved tensors then (nccl_breaks).
  void note_end();

  /// Whether all that is to be computed while NCCL moves tensors has to be loaded in the step that comes. Loading may
  /// wait for what the device has to do, NCCL's work for another rank, and that for what this one loads.
  bool may_load() const { return nccl_ && steps_ == 0; }
  /// Before a step. NCCL is made behind the second one. True: from here on NCCL moves tensors. Throws
  /// communication_error.
  bool begin_step();
  /// What goes into the commit exchange: NCCL is made and its connections are tried.
  bool is_ready() const;
  /// All ranks said so in one exchange: the next step takes over.
  void agree() { agreed_ = true; }

  transport_state state() const;

private:
  std::string obstacle() const;
  std::vector<slot_id> ranks() const;
  void take_over();

  const prepare& what_;
  const std::uint32_t self_;
  const executor_options& options_;
  const bool wanted_;
  nccl_communicator* nccl_ = nullptr;   ///< null: TCP only
  std::string reason_;                  ///< null, though wanted: why; one line
  std::vector<std::byte> said_, heard_; ///< before a transfer: of this rank, and of all
  bool moves_shards_ = false;
  bool moves_ = false; ///< NCCL, something
  std::uint64_t steps_ = 0;
  bool begun_ = false;
  bool agreed_ = false;
};

} // namespace parcae

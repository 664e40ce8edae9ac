#pragma once

// What moves tensors between the ranks of a generation: TCP, copies between GPUs of one process, and NCCL once all of
// them are ready for it.

#include "gpu/dataplane/nccl_communicator.hpp"
#include "gpu/executor/executor.hpp"
#include "protocols/model/model_description.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

/// The ranks with which this one has tensors to exchange: stages beside its own, replicas of it, and who has the other
/// one of tied tensors.
std::vector<std::uint32_t> peers_of(const placement& grid, std::uint32_t rank, const std::optional<tied_tensors>& tied);

/// As one participant sees it. connect() is for the thread of the preparation; the rest for that which trains, when the
/// preparation is over. With TCP only, which most jobs have, all of it does nothing.
class rank_transport {
public:
  rank_transport(const prepare& what, std::uint32_t self, const executor_options& options);

  /// How tensors go within this process, by the communicator that is below. Before connect().
  void note_peers(peer_copies x) { peers_ = std::move(x); }

  /// The generation's communicator, over its connections in `below`.
  std::unique_ptr<communicator> connect(std::unique_ptr<communicator> below, const std::optional<tied_tensors>& tied);

  /// Its generation has stopped: there can be another communicator of NCCL's. Counts if NCCL failed (nccl_failures).
  void leave();
  /// Its generation was aborted: counts if NCCL was begun.
  void note_end();

  /// Whether all that is to be computed while NCCL moves tensors has to be loaded in the step that comes. Loading may
  /// wait for what the device has to do, NCCL's work for another rank, and that for what this one loads.
  bool may_load() const { return nccl_ && !stepped_; }
  /// Before a step. True: from here on NCCL moves tensors. Throws communication_error.
  bool begin_step();
  /// What goes into the commit exchange: first that NCCL can be made here, behind the first step, then that it is, and
  /// its connections are tried.
  bool is_ready() const;
  /// All ranks said so in one exchange: the next step makes it, or takes over.
  void agree() { agreed_ = true; }

  transport_state state() const;

private:
  std::string obstacle() const;
  std::vector<slot_id> ranks() const;

  const prepare& what_;
  const std::uint32_t self_;
  const executor_options& options_;
  const bool wanted_;
  peer_copies peers_;
  nccl_communicator* nccl_ = nullptr; ///< null: without NCCL
  std::string reason_;                ///< null, though wanted: why; one line
  bool stepped_ = false;              ///< a step was begun
  bool begun_ = false;
  bool agreed_ = false;
  bool ended_ = false; ///< and that was counted
};

} // namespace parcae

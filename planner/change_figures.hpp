#pragma once

namespace parcae {

/// Figures of a cluster, measured on the running system or given. Phases without the bytes they move. The defaults are
/// for a local network.
struct change_figures {
  double link_bytes_per_ms = 1.25e6; ///< of one instance, in each direction at the same time
  double detect_ms = 1;              ///< from a loss to its being declared
  double settle_ms = 5;              ///< ABORT until the last DECIDED
  double plan_ms = 1;                ///< until the next configuration is known
  double prepare_ms = 10;            ///< PREPARE until the last PREPARED: modules, memory, connections
  double transfer_ms = 2;            ///< TRANSFER until the last READY, if nothing is to be moved
  double activate_ms = 2;            ///< ACTIVATE until the last ACTIVE, and for each rank besides:
  double rank_ms = 0.1;              ///< ranks are told one after the other, and the first of them train already
};

} // namespace parcae

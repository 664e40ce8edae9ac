#pragma once

// Varuna (EuroSys'22), Bamboo (NSDI'23) and Oobleck (SOSP'23) on a trace: event by event, in whole steps, with the
// throughput and costs that Oobleck's authors measured. The rules are those of the simulators in their public artifact.
// Pure.

#include "planner/cost/profile.hpp"
#include "planner/simulation/trace.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

/// From a node's addition until it can work, as the artifact has it.
inline constexpr std::uint64_t peer_node_start_ms = 45'000;

enum class peer_kind : std::uint8_t {
  varuna,  ///< restarts everything after a loss; checkpoints every few steps
  bamboo,  ///< each node can stand in for the one before it; restarts to rebalance, or when both are lost
  oobleck, ///< regroups into prepared pipelines after a loss
};

std::string to_string(peer_kind kind);
std::optional<peer_kind> parse_peer_kind(std::string_view text);

/// What the artifact does otherwise than the systems would.
struct peer_rules {
  /// Steps go on while nodes regroup: the step in flight ends, and more begin, until the new group stands.
  bool steps_while_regrouping = false;
  /// Each loss ends a regrouping of its own. Of two losses at the same moment the first ends with all nodes and the
  /// second with none: nothing is trained until the next event. Else the last loss starts the only regrouping.
  bool overlapping_regroupings = false;
  /// A loss throws Varuna back to its last finished checkpoint.
  bool falls_back = true;
  /// The loss of a node without a place slows Bamboo down, too, as if a neighbour stood in for it.
  bool idle_nodes_slow = false;

  /// The artifact's. It falls back only for its two largest models.
  static peer_rules published(const std::string& model);
};

/// Time and samples so far. Lower than before after falling back; straight from one to the next.
struct peer_progress {
  double seconds = 0;
  double samples = 0;
};

struct peer_outcome {
  double samples = 0;
  double samples_per_s = 0; ///< from the first start to the last step, as the artifact averages
  std::uint32_t regroupings = 0;
  std::vector<peer_progress> progress; ///< in order of time
};

/// A node works from peer_node_start_ms after it joined. A node that joins while training goes on waits for the next
/// regrouping, which only a loss starts (Bamboo: also a step's end). Ends with the trace. Nothing is trained where the
/// system has no figures.
peer_outcome replay_peer(peer_kind kind, const peer_model& model, std::span<const trace_event> trace,
                         const peer_rules& rules);

/// Samples so far, from the beginning to the end of the trace, if at every moment the fastest of the systems trained
/// with all nodes that have started, free of cost. Straight from one to the next. Requires a trace with an event.
std::vector<peer_progress> ideal_progress(const peer_model& model, const std::vector<trace_event>& trace);

/// Between the points of a progress, which must have one; before and behind them the first or last.
double samples_at(std::span<const peer_progress> progress, double seconds);

/// Samples/s with that many nodes: the table's nearest entry; 0 below one pipeline or without figures.
double peer_throughput(const peer_system& system, std::uint32_t nodes);

} // namespace parcae

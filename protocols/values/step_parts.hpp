#pragma once

// Where the time of a rank's step goes.

#include "protocols/base/described.hpp"

#include <boost/describe/enum.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace parcae {

/// At each moment a rank is in one of them.
enum class step_part : std::uint8_t {
  forward,
  backward,  ///< with the loss, and with adding up gradients of micro-batches
  recompute, ///< forward passes that are run again
  pipeline,  ///< waiting for the stages beside its own: the bubble
  transfer,  ///< activations and gradients between stages
  reduction, ///< sums over replicas, over both uses of a tied tensor, and running statistics, with waiting for those
  data,      ///< waiting for samples
  exchange,  ///< the commit exchange, with waiting for all ranks
  snapshot,  ///< copies for the keepers
  optimizer, ///< norms, clipping, apply
  other,     ///< none of these: commands and reports between steps
  core,      ///< ready to compute, but others had the core; on a processor
};
BOOST_DESCRIBE_ENUM(step_part, forward, backward, recompute, pipeline, transfer, reduction, data, exchange, snapshot,
                    optimizer, other, core)

/// Means per step, ms.
struct step_parts {
  double forward_ms = 0;
  double backward_ms = 0;
  double recompute_ms = 0;
  double pipeline_ms = 0;
  double transfer_ms = 0;
  double reduction_ms = 0;
  double data_ms = 0;
  double exchange_ms = 0;
  double snapshot_ms = 0;
  double optimizer_ms = 0;
  double other_ms = 0;
  double core_ms = 0;

  friend bool operator==(const step_parts&, const step_parts&) = default;
};
BOOST_DESCRIBE_STRUCT(step_parts, (),
                      (forward_ms, backward_ms, recompute_ms, pipeline_ms, transfer_ms, reduction_ms, data_ms,
                       exchange_ms, snapshot_ms, optimizer_ms, other_ms, core_ms))

/// By step_part.
inline constexpr double step_parts::*members_of_step_parts[] = {
    &step_parts::forward_ms,  &step_parts::backward_ms,  &step_parts::recompute_ms, &step_parts::pipeline_ms,
    &step_parts::transfer_ms, &step_parts::reduction_ms, &step_parts::data_ms,      &step_parts::exchange_ms,
    &step_parts::snapshot_ms, &step_parts::optimizer_ms, &step_parts::other_ms,     &step_parts::core_ms};
inline constexpr std::size_t step_part_count = std::size(members_of_step_parts);
static_assert(step_part_count == static_cast<std::size_t>(step_part::core) + 1);

inline double part_of(const step_parts& x, step_part which) {
  return x.*members_of_step_parts[static_cast<std::size_t>(which)];
}

/// All of a step.
inline double total_ms(const step_parts& x) {
  double result = 0;
  for (const auto member : members_of_step_parts)
    result += x.*member;
  return result;
}

/// What a rank waits for others. Steps take equally long on all ranks: the slowest is the one that waits least.
inline double waiting_ms(const step_parts& x) {
  return x.pipeline_ms + x.reduction_ms + x.exchange_ms;
}

/// An uninterrupted stretch of one part. Of a micro-batch, or of none.
struct step_span {
  static constexpr std::uint32_t no_micro_batch = UINT32_MAX;

  step_part part = step_part::other;
  std::uint32_t micro_batch = no_micro_batch;
  std::uint64_t from_ns = 0; ///< since the rank began to train
  std::uint64_t ns = 0;

  friend bool operator==(const step_span&, const step_span&) = default;
};
BOOST_DESCRIBE_STRUCT(step_span, (), (part, micro_batch, from_ns, ns))

/// One step, in order.
struct step_trace {
  static constexpr std::size_t max_spans = 4096;

  std::uint64_t step = 0;
  std::vector<step_span> spans;
  bool is_cut = false; ///< there were more spans

  friend bool operator==(const step_trace&, const step_trace&) = default;
};
BOOST_DESCRIBE_STRUCT(step_trace, (), (step, spans, is_cut))

} // namespace parcae

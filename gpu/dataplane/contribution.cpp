#include "gpu/dataplane/contribution.hpp"

#include "protocols/base/text.hpp"
#include "protocols/model/model_description.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace parcae {

namespace {

constexpr std::size_t flags = 6; ///< bytes of a contribution before its numbers

} // namespace

replica_range exchange_shape::micro_batches(std::uint32_t pipeline) const {
  const auto per_replica = job.micro_batches() / job.virtual_replicas;
  const auto owned = owned_replicas(job.virtual_replicas, grid.width, pipeline);
  return {owned.first * per_replica, owned.last * per_replica};
}

std::size_t exchange_shape::layers(std::uint32_t rank) const {
  const auto stage = grid.stage_of(rank);
  return grid.first_layer[stage + 1] - grid.first_layer[stage];
}

std::size_t exchange_shape::losses(std::uint32_t rank) const {
  if (grid.stage_of(rank) + 1 != grid.depth)
    return 0;
  const auto own = micro_batches(grid.pipeline_of(rank));
  return own.last - own.first;
}

std::size_t exchange_shape::bytes(std::uint32_t rank) const {
  return flags + (layers(rank) + losses(rank)) * sizeof(double);
}

std::vector<std::byte> encode(const contribution& x) {
  const auto& asks = x.asks;
  std::vector<std::byte> bytes{std::byte{asks.stop}, std::byte{asks.snapshot}, std::byte{asks.due},
                               std::byte{asks.busy}, std::byte{x.ready},       std::byte{asks.rests}};
  for (const auto* numbers : {&x.squared_norms, &x.losses}) {
    const auto raw = std::as_bytes(std::span(*numbers));
    bytes.insert(bytes.end(), raw.begin(), raw.end());
  }
  return bytes;
}

contribution decode(std::span<const std::byte> bytes, std::uint32_t rank, const exchange_shape& shape) {
  contribution x;
  x.asks.stop = bytes[0] != std::byte{0};
  x.asks.snapshot = bytes[1] != std::byte{0};
  x.asks.due = bytes[2] != std::byte{0};
  x.asks.busy = bytes[3] != std::byte{0};
  x.ready = bytes[4] != std::byte{0};
  x.asks.rests = bytes[5] != std::byte{0};
  x.squared_norms.resize(shape.layers(rank));
  x.losses.resize(shape.losses(rank));
  auto from = bytes.subspan(flags);
  for (auto* numbers : {&x.squared_norms, &x.losses}) {
    const auto to = std::as_writable_bytes(std::span(*numbers));
    std::copy_n(from.begin(), to.size(), to.begin());
    from = from.subspan(to.size());
  }
  return x;
}

commit_result combine(std::span<const contribution> by_rank, std::uint64_t step, const exchange_shape& shape) {
  const auto& job = shape.job;
  commit_result x;
  x.step = step;
  wishes all;
  double squared_norm = 0;
  std::vector<double> losses(job.micro_batches());
  for (std::uint32_t r = 0; r < by_rank.size(); ++r) {
    const auto& theirs = by_rank[r];
    const auto pipeline = shape.grid.pipeline_of(r);
    all |= theirs.asks;
    if (pipeline == 0) // ranks of pipeline 0 come in layer order; all replicas have the same norms
      for (auto squared : theirs.squared_norms)
        squared_norm += squared;
    std::ranges::copy(theirs.losses, losses.begin() + shape.micro_batches(pipeline).first);
  }
  for (auto loss : losses)
    x.loss += loss;
  x.loss /= static_cast<double>(losses.size());
  x.gradient_norm = std::sqrt(squared_norm);
  if (const auto most = job.optimizer.clip_norm; most > 0)
    x.clip_factor = std::min(1.0, most / (x.gradient_norm + 1e-6));
  x.learning_rate = learning_rate(job.optimizer, step, job.steps);
  x.stop = all.stop;
  x.snapshot = goes_to_keepers(all, step, job);
  return x;
}

step_end becomes_of(const commit_result& x, const job_specification& job) {
  if (x.is_finite() || job.on_not_finite == "go_on")
    return step_end::applied;
  return job.on_not_finite == "skip" ? step_end::skipped : step_end::ends_job;
}

std::string problem_of(const commit_result& x) {
  const auto step = " at step " + std::to_string(x.step + 1);
  return std::isfinite(x.loss)
             ? "the gradients are not finite" + step + ", though the loss is (" + text_of_quantity(x.loss) + ")"
             : "the loss is not finite" + step;
}

bool all_are_ready(std::span<const contribution> by_rank) {
  return std::ranges::all_of(by_rank, &contribution::ready);
}

} // namespace parcae

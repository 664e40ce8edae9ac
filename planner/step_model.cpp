#include "planner/step_model.hpp"

#include "protocols/pipeline_schedule.hpp"
#include "protocols/replica_tree.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace parcae {

namespace {

constexpr double not_yet = -1;

// One stage of the busiest pipeline.
struct stage_cost {
  pass_times awake = {};
  pass_times waking = {};                             // so much more
  double messages_ms = 0;                             // in either pass of a micro-batch
  double wire_ms = 0;                                 // of an output to the next stage, or of its gradient back
  bool forward_wakes = false, backward_wakes = false; // the next one
};

// Messages of one direction between two stages: one after the other, each `latency` on its way besides.
struct wire {
  double free = 0;

  double arrival(double sent, double ms, double latency) {
    free = std::max(free, sent) + ms;
    return free + latency;
  }
};

// Bytes that a member of an all-reduce sends for each byte of gradients. In tree order: its sums of the chunks of
// others to their owners, and the results of its own chunks to all; as a ring: twice its share.
double sent_share(const job_specification& job, std::uint32_t width) {
  const double others = static_cast<double>(width - 1) / width;
  return job.reproducible ? (partial_sums(job, width) + 1) * others : 2 * others;
}

// When each stage has done its backward passes, and when the stage's gradients are reduced. The apply of the step
// before comes first.
class schedule {
public:
  schedule(const job_specification& job, std::span<const layer_cost> layers, std::span<const std::uint32_t> first_layer,
           std::uint32_t width, const platform_cost& platform) :
      layers_(layers),
      first_(first_layer), platform_(platform), depth_(static_cast<std::uint32_t>(first_layer.size() - 1)),
      count_(busiest_micro_batches(job, width)), crowding_(platform.crowding_of(width * depth_)),
      sent_share_(width > 1 ? sent_share(job, width) : 0), stages_(depth_), free_(depth_), reduced_(depth_),
      arrived_(depth_, std::vector<double>(count_, not_yet)), answered_(arrived_), there_(depth_), back_(depth_) {
    for (std::uint32_t s = 0; s < depth_; ++s) {
      auto& stage = stages_[s];
      for (auto i = first_[s]; i < first_[s + 1]; ++i) {
        for (const auto ms : pass_kinds) {
          stage.awake.*ms += crowding_ * layers_[i].*ms;
          stage.waking.*ms += crowding_ * layers_[i].waking.*ms;
        }
      }
      const auto bytes_after = [&](std::uint32_t layer) { return static_cast<double>(layers_[layer].output_bytes); };
      if (s > 0)
        stage.messages_ms += crowding_ * platform_.processing_ms(bytes_after(first_[s] - 1));
      if (s + 1 < depth_)
        stage.messages_ms += crowding_ * platform_.processing_ms(bytes_after(first_[s + 1] - 1));
      stage.wire_ms = platform_.wire_ms(bytes_after(first_[s + 1] - 1));
      // The commit exchange was waited for.
      stage.forward_wakes = stage.backward_wakes = width * depth_ > 1;
      compute(s, stage.awake.optimizer_ms + (stage.forward_wakes ? stage.waking.optimizer_ms : 0));
    }
    std::fill(arrived_.front().begin(), arrived_.front().end(), 0.0);
  }

  /// When the gradients of the last stage to be ready are.
  double run() {
    std::vector<std::vector<pipeline_operation>> operations;
    for (std::uint32_t s = 0; s < depth_; ++s)
      operations.push_back(one_forward_one_backward(depth_, s, count_));
    std::vector<std::size_t> next(depth_, 0);
    // Some stage can always go on, since 1F1B never waits in a circle.
    for (std::size_t left = depth_ * operations.front().size(); left > 0;)
      for (std::uint32_t s = 0; s < depth_; ++s)
        for (; next[s] < operations[s].size() && carry_out(s, operations[s][next[s]]); ++next[s])
          --left;
    exchange_tied();
    return *std::max_element(reduced_.begin(), reduced_.end());
  }

  /// What its stages computed, on average; where it is known which cores there are.
  double mean_busy_ms() const { return busy_ / depth_; }

private:
  void compute(std::uint32_t s, double ms) {
    free_[s] += ms;
    if (platform_.machine_cores > 0) // nobody asks else, and this is where planning spends its time
      busy_ += ms;
  }

  void wait_until(std::uint32_t s, double arrived) {
    if (arrived <= free_[s])
      return;
    free_[s] = arrived;
    stages_[s].forward_wakes = stages_[s].backward_wakes = true;
  }

  bool carry_out(std::uint32_t s, const pipeline_operation& x) {
    auto& stage = stages_[s];
    const bool last_stage = s + 1 == depth_;
    if (x.forward) {
      if (arrived_[s][x.position] == not_yet)
        return false;
      wait_until(s, arrived_[s][x.position]);
      compute(s, stage.messages_ms + stage.awake.forward_ms +
                     (std::exchange(stage.forward_wakes, false) ? stage.waking.forward_ms : 0));
      if (!last_stage)
        arrived_[s + 1][x.position] = there_[s].arrival(free_[s], stage.wire_ms, platform_.latency_ms);
      return true;
    }
    if (!last_stage) {
      if (answered_[s][x.position] == not_yet)
        return false;
      wait_until(s, answered_[s][x.position]);
    }
    compute(s, stage.messages_ms + (std::exchange(stage.backward_wakes, false) ? stage.waking.backward_ms : 0));
    if (x.position + 1 == count_)
      end_backward(s);
    else
      compute(s, stage.awake.backward_ms);
    if (s > 0)
      answered_[s - 1][x.position] = back_[s].arrival(free_[s], stages_[s - 1].wire_ms, platform_.latency_ms);
    return true;
  }

  // The last backward pass: each layer's gradients go on their way behind the backward pass of the layers before.
  void end_backward(std::uint32_t s) {
    wire network;
    double arrived = 0;
    for (auto i = first_[s + 1]; i-- > first_[s];) {
      const auto whole = static_cast<double>(layers_[i].gradient_bytes);
      const double bytes = sent_share_ * whole;
      // As many messages come as go.
      const double messages = 2 * sent_share_ * std::ceil(whole / (reduction_chunk_floats * sizeof(float)));
      compute(s, crowding_ *
                     (layers_[i].backward_ms + platform_.reduce_ms_per_byte * bytes + platform_.message_ms * messages));
      if (bytes > 0) // reduce-scatter, then all-gather
        arrived = network.arrival(free_[s], platform_.wire_ms(bytes), 2 * platform_.latency_ms);
    }
    reduced_[s] = std::max(free_[s], arrived);
  }

  void exchange_tied() {
    std::vector<std::uint32_t> ends; // stages
    double bytes = 0;
    for (std::uint32_t s = 0; s < depth_; ++s)
      for (auto i = first_[s]; i < first_[s + 1]; ++i)
        if (layers_[i].tied_bytes > 0) {
          bytes = static_cast<double>(layers_[i].tied_bytes);
          ends.push_back(s);
        }
    if (ends.size() != 2 || ends[0] == ends[1])
      return;
    const double done = std::max(reduced_[ends[0]], reduced_[ends[1]]) + platform_.wire_ms(bytes) +
                        platform_.latency_ms + 2 * crowding_ * platform_.processing_ms(bytes);
    reduced_[ends[0]] = reduced_[ends[1]] = done;
  }

  std::span<const layer_cost> layers_;
  std::span<const std::uint32_t> first_;
  const platform_cost& platform_;
  std::uint32_t depth_;
  std::uint32_t count_; // micro-batches
  double crowding_;
  double sent_share_;
  std::vector<stage_cost> stages_;
  std::vector<double> free_;                  // by stage: what was begun has ended
  std::vector<double> reduced_;               // by stage
  double busy_ = 0;                           // all stages
  std::vector<std::vector<double>> arrived_;  // by stage and position: the input
  std::vector<std::vector<double>> answered_; // the gradient of the output
  std::vector<wire> there_;                   // to the next stage
  std::vector<wire> back_;                    // to the stage before
};

} // namespace

std::uint32_t platform_cost::side_by_side(std::uint32_t slots) const {
  return machine_cores > 0 ? std::min(slots, machine_slots) : slots;
}

double platform_cost::crowding_of(std::uint32_t slots) const {
  const auto k = side_by_side(slots);
  return crowding.empty() || k == 0 ? 1 : crowding[std::min<std::size_t>(k, crowding.size()) - 1];
}

std::uint32_t partial_sums(const job_specification& job, std::uint32_t width) {
  if (!job.reproducible)
    return 1;
  std::size_t most = 1;
  for (std::uint32_t d = 0; d < std::min(width, job.virtual_replicas); ++d)
    most =
        std::max(most, maximal_subtrees(job.virtual_replicas, owned_replicas(job.virtual_replicas, width, d)).size());
  return static_cast<std::uint32_t>(most);
}

double layers_ms(const job_specification& job, std::span<const layer_cost> layers) {
  double sum = 0;
  for (const auto& x : layers)
    sum += job.micro_batches() * (x.forward_ms + x.backward_ms) + x.optimizer_ms;
  return sum;
}

double step_ms(const job_specification& job, std::span<const layer_cost> layers,
               std::span<const std::uint32_t> first_layer, std::uint32_t width, const platform_cost& platform) {
  const auto ranks = width * static_cast<std::uint32_t>(first_layer.size() - 1);
  schedule pipeline(job, layers, first_layer, width, platform);
  double ready = pipeline.run();
  // Cores that are short are never idle while somebody has something to compute.
  if (const auto k = platform.side_by_side(ranks); platform.machine_cores > 0 && k > platform.machine_cores)
    ready = std::max(ready, pipeline.mean_busy_ms() * k / platform.machine_cores);
  const double exchange_ms = platform.step_ms + 2 * (ranks - 1) * platform.message_ms; // each rank with each other
  return ready + platform.crowding_of(ranks) * exchange_ms + (ranks > 1 ? platform.latency_ms : 0);
}

} // namespace parcae

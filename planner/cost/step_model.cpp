#include "planner/cost/step_model.hpp"

#include "protocols/schedule/replica_tree.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace parcae {

namespace {

// One stage of the busiest pipeline: what its passes take.
struct stage_cost {
  pass_times awake = {};
  pass_times waking = {};  // what they take more
  double messages_ms = 0;  // in either pass of a micro-batch
  double wire_ms = 0;      // of an output to the next stage, or of its gradient back
  std::uint32_t ahead = 0; // forward passes before its first backward pass is due, that one's own not counted
};

// Messages of one direction between two stages: one after the other, each `latency` on its way besides.
struct wire {
  double free = 0;

  double arrival(double sent, double ms, double latency) {
    free = std::max(free, sent) + ms;
    return free + latency;
  }
};

// Where a stage is. Of what it waits for there is never more than one that has come and is not used.
struct stage_progress {
  double free = 0;                                    // what was begun has ended
  double busy = 0;                                    // computed so far
  double input = 0;                                   // when the next forward pass's is there
  double gradient = 0;                                // when that of the next backward pass's output is there
  double reduced = 0;                                 // when the stage's gradients are
  wire there;                                         // to the next stage
  wire back;                                          // to the stage before
  bool forward_wakes = false, backward_wakes = false; // the next one
};

// Bytes that a member of an all-reduce sends for each byte of gradients. In tree order: its sums of the chunks of
// others to their owners, and the results of its own chunks to all; as a ring: twice its share.
double sent_fraction(const job_specification& job, std::uint32_t width) {
  const double others = static_cast<double>(width - 1) / width;
  return job.reproducible ? (partial_sums(job, width) + 1) * others : 2 * others;
}

// When each stage has done its backward passes, and when its gradients are reduced. The apply of the step before comes
// first. Operations come in the order of one_forward_one_backward (protocols/schedule/pipeline_schedule.hpp), carried
// out in rounds: in round n a stage does the backward pass that is due, if one is, and the forward pass of micro-batch
// n. So nothing is asked for before it was worked out, and steps of any number of micro-batches are the same until the
// last one was begun.
class schedule {
public:
  // `alone`: no other rank is waited for.
  schedule(const job_specification& job, std::span<const layer_cost> layers, std::span<const std::uint32_t> first_layer,
           const platform_cost& platform, double crowding, bool alone) :
      job_(&job),
      layers_(layers), first_(first_layer), platform_(platform),
      depth_(static_cast<std::uint32_t>(first_layer.size() - 1)), crowding_(crowding), alone_(alone), costs_(depth_),
      stages_(depth_) {
    for (std::uint32_t s = 0; s < depth_; ++s) {
      costs_[s] = cost_of(s);
      // The commit exchange was waited for.
      stages_[s].forward_wakes = stages_[s].backward_wakes = !alone;
      compute(stages_[s], costs_[s].awake.optimizer_ms + (alone ? 0 : costs_[s].waking.optimizer_ms));
    }
  }

  bool is_for(double crowding, bool alone) const { return crowding == crowding_ && alone == alone_; }

  /// Up to the forward passes of micro-batch `count` − 1.
  void begin(std::uint32_t count) {
    for (; begun_ < count; ++begun_)
      for (std::uint32_t s = 0; s < depth_; ++s) {
        if (begun_ > costs_[s].ahead) {
          start_backward(s);
          compute(stages_[s], costs_[s].awake.backward_ms);
          answer(s);
        }
        forward(s);
      }
  }

  /// There are no more micro-batches than were begun. `sent_fraction`: see sent_fraction().
  void finish(double sent_fraction) {
    for (auto round = begun_; round < begun_ + depth_; ++round)
      for (std::uint32_t s = 0; s < depth_; ++s) {
        const auto ended = round - std::min(round, costs_[s].ahead); // backward passes, with this one
        if (ended == 0 || ended > begun_)
          continue;
        start_backward(s);
        if (ended == begun_)
          end_backward(s, sent_fraction);
        else
          compute(stages_[s], costs_[s].awake.backward_ms);
        answer(s);
      }
    exchange_tied();
  }

  /// When the gradients of the last stage to be ready are.
  double ready_ms() const {
    double most = 0;
    for (const auto& x : stages_)
      most = std::max(most, x.reduced);
    return most;
  }

  /// What its stages computed, on average.
  double mean_busy_ms() const {
    double sum = 0;
    for (const auto& x : stages_)
      sum += x.busy;
    return sum / depth_;
  }

private:
  stage_cost cost_of(std::uint32_t s) const {
    stage_cost result;
    for (auto i = first_[s]; i < first_[s + 1]; ++i) {
      for (const auto ms : pass_kinds) {
        result.awake.*ms += crowding_ * layers_[i].*ms;
        result.waking.*ms += crowding_ * layers_[i].waking.*ms;
      }
    }
    const auto bytes_after = [&](std::uint32_t layer) { return static_cast<double>(layers_[layer].output_bytes); };
    if (s > 0)
      result.messages_ms += crowding_ * platform_.processing_ms(bytes_after(first_[s] - 1));
    if (s + 1 < depth_)
      result.messages_ms += crowding_ * platform_.processing_ms(bytes_after(first_[s + 1] - 1));
    result.wire_ms = platform_.wire_ms(bytes_after(first_[s + 1] - 1));
    result.ahead = depth_ - s - 1;
    return result;
  }

  static void compute(stage_progress& x, double ms) {
    x.free += ms;
    x.busy += ms;
  }

  static void wait_until(stage_progress& x, double arrived) {
    if (arrived <= x.free)
      return;
    x.free = arrived;
    x.forward_wakes = x.backward_wakes = true;
  }

  void forward(std::uint32_t s) {
    auto& x = stages_[s];
    const auto& cost = costs_[s];
    wait_until(x, x.input);
    compute(x, cost.messages_ms + cost.awake.forward_ms +
                   (std::exchange(x.forward_wakes, false) ? cost.waking.forward_ms : 0));
    if (s + 1 < depth_)
      stages_[s + 1].input = x.there.arrival(x.free, cost.wire_ms, platform_.latency_ms);
  }

  void start_backward(std::uint32_t s) {
    auto& x = stages_[s];
    wait_until(x, x.gradient); // 0 on the last stage
    compute(x, costs_[s].messages_ms + (std::exchange(x.backward_wakes, false) ? costs_[s].waking.backward_ms : 0));
  }

  void answer(std::uint32_t s) {
    auto& x = stages_[s];
    if (s > 0)
      stages_[s - 1].gradient = x.back.arrival(x.free, costs_[s - 1].wire_ms, platform_.latency_ms);
  }

  // The last backward pass: each layer's gradients go on their way behind the backward pass of the layers before.
  void end_backward(std::uint32_t s, double sent_fraction) {
    auto& x = stages_[s];
    wire network;
    double arrived = 0;
    for (auto i = first_[s + 1]; i-- > first_[s];) {
      const auto whole = static_cast<double>(job_->sum_bytes(layers_[i].gradient_bytes));
      const double bytes = sent_fraction * whole;
      // As many messages come as go.
      const double messages = 2 * sent_fraction * std::ceil(whole / platform_.chunk_bytes);
      compute(x, crowding_ *
                     (layers_[i].backward_ms + platform_.reduce_ms_per_byte * bytes + platform_.message_ms * messages));
      if (bytes > 0) // reduce-scatter, then all-gather
        arrived = network.arrival(x.free, platform_.wire_ms(bytes), 2 * platform_.latency_ms);
    }
    x.reduced = std::max(x.free, arrived);
  }

  void exchange_tied() {
    std::vector<std::uint32_t> ends; // stages
    double bytes = 0;
    for (std::uint32_t s = 0; s < depth_; ++s)
      for (auto i = first_[s]; i < first_[s + 1]; ++i)
        if (layers_[i].tied_bytes > 0) {
          bytes = static_cast<double>(job_->sum_bytes(layers_[i].tied_bytes));
          ends.push_back(s);
        }
    if (ends.size() != 2 || ends[0] == ends[1])
      return;
    const double done = std::max(stages_[ends[0]].reduced, stages_[ends[1]].reduced) + platform_.wire_ms(bytes) +
                        platform_.latency_ms + 2 * crowding_ * platform_.processing_ms(bytes);
    stages_[ends[0]].reduced = stages_[ends[1]].reduced = done;
  }

  const job_specification* job_;
  std::span<const layer_cost> layers_;
  std::span<const std::uint32_t> first_;
  const platform_cost& platform_;
  std::uint32_t depth_;
  double crowding_;
  bool alone_;
  std::uint32_t begun_ = 0; // micro-batches
  std::vector<stage_cost> costs_;
  std::vector<stage_progress> stages_;
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

std::vector<double> steps_ms(const job_specification& job, std::span<const layer_cost> layers,
                             std::span<const std::uint32_t> first_layer, std::uint32_t least_width,
                             std::uint32_t max_width, const platform_cost& platform) {
  const auto depth = static_cast<std::uint32_t>(first_layer.size() - 1);
  std::vector<double> result(max_width >= least_width ? max_width - least_width + 1 : 0);
  std::optional<schedule> common; // the narrower, the more micro-batches: from the widest on it only goes on
  for (auto n = static_cast<std::uint32_t>(result.size()); n-- > 0;) {
    const auto width = least_width + n;
    const auto ranks = width * depth;
    const double crowding = platform.crowding_of(ranks);
    if (!common || !common->is_for(crowding, ranks == 1))
      common.emplace(job, layers, first_layer, platform, crowding, ranks == 1);
    common->begin(busiest_micro_batches(job, width));
    auto pipeline = *common;
    pipeline.finish(width > 1 ? sent_fraction(job, width) : 0);
    double ready = pipeline.ready_ms();
    // With more ranks than cores no core is idle while some rank could compute.
    if (const auto k = platform.side_by_side(ranks); platform.machine_cores > 0 && k > platform.machine_cores)
      ready = std::max(ready, pipeline.mean_busy_ms() * k / platform.machine_cores);
    const double exchange_ms = platform.step_ms + 2 * (ranks - 1) * platform.message_ms; // each rank with each other
    result[n] = ready + crowding * exchange_ms + (ranks > 1 ? platform.latency_ms : 0);
  }
  return result;
}

double step_ms(const job_specification& job, std::span<const layer_cost> layers,
               std::span<const std::uint32_t> first_layer, std::uint32_t width, const platform_cost& platform) {
  return steps_ms(job, layers, first_layer, width, width, platform).front();
}

} // namespace parcae

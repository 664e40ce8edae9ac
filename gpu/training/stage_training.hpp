#pragma once

// Training steps of one stage of one pipeline in one generation (design, sections 4 and 5).

#include "gpu/dataplane/communicator.hpp"
#include "gpu/dataplane/contribution.hpp"
#include "gpu/dataplane/reduction.hpp"
#include "gpu/executor/executor.hpp"
#include "gpu/layers/model.hpp"
#include "gpu/training/batch_statistics.hpp"
#include "gpu/training/gradient_sums.hpp"
#include "gpu/training/host_results.hpp"
#include "gpu/training/layer_state.hpp"
#include "gpu/training/rank_transport.hpp"
#include "gpu/training/sample_reader.hpp"
#include "gpu/training/stage_clock.hpp"
#include "protocols/model/parameter_runs.hpp"
#include "protocols/schedule/pipeline_schedule.hpp"

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace parcae {

/// Thrown between two layers when the generation is to end.
struct generation_aborted {};

// The conductor's watchdog ends a generation that makes no progress long before this; it only keeps waits for peers
// bounded if the manager is gone too.
inline constexpr std::chrono::hours peer_limit{1};

/// Bound to one rank. Single-threaded but for request_stop, request_snapshot, want_snapshot and the abort flag. After
/// an exception the communicator must be aborted before this is destroyed: transmissions under way use its buffers.
// Large: the state of one step, which every phase of it reads or makes.
class stage_training {
public:
  struct context {
    const prepare* what; ///< outlives this object
    std::uint32_t rank;
    const model_description* model; ///< outlives this object
    layer_store* store;             ///< outlives this object
    communicator* comm;             ///< outlives this object
    rank_transport* transport;      ///< what is behind it; outlives this object
    std::shared_ptr<const dataset> data;
    tensor_device on;                 ///< the slot's
    host_results* results;            ///< of it; outlives this object
    const executor_options* options;  ///< outlives this object
    const std::atomic<bool>* aborted; ///< the generation is to end; outlives this object
  };

  explicit stage_training(context c);

  /// All layers of the stage are in the store at `at`; binds them. Call before the first step. `streaming` says whether
  /// an earlier snapshot is still on its way to the keepers.
  void start(const version& at, std::function<bool()> streaming = {});

  /// Computes the gradients of the next step, exchanges, applies. Returns the result. Throws communication_error,
  /// generation_aborted, or what LibTorch throws; afterwards version(), complete_step() and result() tell how far it
  /// got.
  const commit_result& step();

  /// Carries out a decision on the open step: with its result, gradients must be complete; else drops them.
  void apply(const commit_result& result);
  void drop_gradients();

  /// Sums of losses over the validation samples of some virtual replicas.
  struct evaluation {
    std::uint32_t first_replica = 0;
    std::vector<double> sums; ///< one for each of this pipeline's replicas; empty but in the last stage
  };

  /// Whether the present version is to be evaluated. A generation that begins there does it, whether or not another
  /// did.
  bool evaluation_is_due() const;

  /// Losses at the present version, without a trace in anything that training uses. Micro-batch j of the validation
  /// samples belongs to virtual replica j mod V, so that the sums do not depend on (D, P). All ranks call it between
  /// the same two steps. Throws as step() does.
  evaluation evaluate();

  /// No step follows: it is the job's last, or the evaluation here, once done, says that validation does not get
  /// better.
  bool is_final() const { return at_.steps >= job_.steps || ends_at_ == at_.steps; }

  version at() const { return at_; }
  std::uint64_t complete_step() const { return complete_; }
  const commit_result& result() const { return result_; }
  bool voided() const { return voided_; } ///< an apply threw: the stage's shards are worth nothing
  std::uint32_t first_layer() const { return first_; }
  std::uint32_t last_layer() const { return last_; } ///< one past

  void request_stop() { stop_ = true; }
  /// At the next commit, whatever is on its way to the keepers; nobody trains after it.
  void request_snapshot() { snapshot_ = true; }
  /// At the next commit at which no earlier one is on its way.
  void want_snapshot() { due_ = true; }
  /// One is due and was put off. A generation that follows has to be told.
  bool wants_snapshot() const { return due_; }

  stage_clock::times take_times() { return clock_.take(); }
  /// Time spent waiting for samples, per step, since the last call.
  sample_reader::waits take_waits();

private:
  struct layer_activation {
    at::Tensor input;
    at::Tensor output; ///< with its graph, or, if activations are recomputed, without
  };

  struct micro_batch_state {
    std::vector<layer_activation> layers;
    at::Tensor loss;
    at::Tensor targets;             ///< if the last layer returns the loss
    std::vector<at::Tensor> extras; ///< if a layer of the stage reads them
    ticket sent_output;
    at::Tensor sent_tensor;
  };

  void bind(std::uint32_t number);
  void forward(std::uint32_t position);
  void backward(std::uint32_t position);
  void post_input(std::uint32_t position);
  void post_gradient(std::uint32_t position);
  sample_tensors load(std::uint32_t micro_batch);
  /// Whether this rank reads samples, and inputs of them.
  bool reads_samples() const { return reads_inputs() || stage_ + 1 == grid_.depth; }
  bool reads_inputs() const { return stage_ == 0 || reads_extras_; }
  sample_tensors load_validation(std::uint64_t first, std::int64_t count) const;
  at::Tensor run_layer(std::uint32_t layer, const at::Tensor& input, std::uint32_t position,
                       const at::Tensor& statistics) const;
  std::vector<std::int64_t> batch_shape(std::uint32_t layer, std::int64_t samples) const;
  void add_gradient(std::uint32_t layer, std::uint32_t position);
  void reduce();
  void add_tied();
  void gather_statistics();
  void exchange(contribution mine);
  at::Tensor on_host(const at::Tensor& x) const;
  at::Tensor run_evaluation(const sample_tensors& samples, at::Tensor input) const;
  at::Tensor losses_of_evaluation(std::uint64_t micro_batches) const;
  void rehearse_evaluation() const;
  void conclude(const std::vector<double>& sums);
  contribution own_contribution();
  void limit_lead();
  std::vector<at::Tensor> counted_once(std::uint32_t layer) const;
  void fault(const char* phase, std::uint32_t index = 0) const;
  void check_abort() const;
  std::uint32_t micro_batch_id(std::uint32_t position) const { return first_micro_batch_ + position; }

  context c_;
  const job_specification& job_;
  const placement& grid_;
  std::uint32_t pipeline_;
  std::uint32_t stage_;
  std::uint32_t first_; ///< layers [first_, last_)
  std::uint32_t last_;
  std::uint32_t first_micro_batch_; ///< id of position 0
  std::uint32_t micro_batches_;     ///< of this pipeline
  std::uint32_t per_sum_;           ///< micro-batches that autograd sums: a virtual replica's
  exchange_shape shape_;
  std::vector<std::uint32_t> replicas_;        ///< ranks of this stage, by pipeline
  std::vector<std::unique_ptr<layer>> layers_; ///< of the whole model; stateless
  std::vector<pipeline_operation> schedule_;
  bool reads_extras_ = false; ///< a layer of the stage does
  pixel_scale pixels_;
  std::optional<sample_reader> reader_; ///< if it reads samples
  sample_source validation_;
  batch_statistics statistics_;

  std::vector<std::vector<parameter_run>> runs_;    ///< per layer of the stage: how the optimizer treats its parameters
  std::vector<std::vector<at::Tensor>> parameters_; ///< per layer of the stage: leaves that share the store's memory,
  std::vector<at::Tensor> copies_; ///< or, matrices in bfloat16, that of these: rounded parameters; else undefined
  gradient_sums gradients_;
  std::optional<tree_all_reduce> reduction_; ///< of the step in progress
  device_scratch scratch_;

  std::vector<micro_batch_state> in_flight_; ///< by position
  std::vector<at::Tensor> losses_;           ///< by position; scalars
  at::Tensor posted_input_, posted_gradient_, posted_tied_;
  ticket input_ticket_, gradient_ticket_;
  std::vector<std::pair<ticket, at::Tensor>> sent_gradients_;
  std::vector<ticket> sent_contributions_;
  std::vector<std::byte> sent_contribution_;

  std::vector<std::vector<double>> said_;   ///< of an evaluation, by rank of the last stage
  std::optional<validation_course> course_; ///< with the evaluation of this version; part of the next one's state
  std::optional<std::uint64_t> ends_at_;

  version at_;
  std::uint64_t complete_ = no_step;
  commit_result result_;
  bool voided_ = false;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> snapshot_ = false;
  std::atomic<bool> due_ = false;
  std::function<bool()> streaming_;

  stage_clock clock_;
  std::deque<std::shared_ptr<event>> passes_; ///< ends of those that the device may not have done
  std::uint64_t waits_since_ = 0;             ///< step
};

} // namespace parcae

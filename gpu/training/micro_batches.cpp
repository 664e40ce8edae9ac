#include "gpu/training/micro_batches.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace parcae {

micro_batches::micro_batches(const stage_context& c, stage_parameters& parameters, stage_sums& sums, stage_clock& clock,
                             device_lead& lead) :
    c_(c),
    parameters_(parameters), sums_(sums), clock_(clock), lead_(lead), owned_(c.shape().micro_batches(c.pipeline())),
    count_(owned_.last - owned_.first), schedule_(one_forward_one_backward(c.grid().depth, c.stage(), count_)),
    reads_extras_(c.reads_extras()), in_flight_(count_), losses_(c.is_last_stage() ? count_ : 0) {
  if (c.reads_samples())
    reader_.emplace(sample_reader::plan{&c.job(), c.model, c.data, c.on, owned_.first, count_, c.reads_inputs()});
}

void micro_batches::start(std::uint64_t step) {
  if (reader_ && step < c_.job().steps)
    reader_->begin(step);
}

void micro_batches::run(std::uint64_t step) {
  step_ = step;
  post_input(0);
  std::uint32_t next_gradient = 0; // posted as soon as the one before was used and the output's shape is known
  const pipeline_operation* before = nullptr;
  for (const auto& operation : schedule_) {
    meet(std::exchange(before, &operation), &operation);
    if (operation.forward)
      forward(operation.position);
    else
      backward(operation.position);
    lead_.limit();
    if (!operation.forward) {
      gradient_.arrived = {};
      ++next_gradient;
    }
    if (!gradient_.arrived && next_gradient < count_ && !in_flight_[next_gradient].layers.empty())
      post_gradient(next_gradient);
  }
  meet(before, nullptr);
  if (!c_.is_first_stage()) { // not before the stage ahead of it has what it waits for
    const auto part = clock_.parts().in(step_part::reduction);
    for (auto i = c_.last_layer(); i-- > c_.first_layer();)
      sums_.begin_reduction(i);
  }
  for (auto& [sent, tensor] : sent_gradients_)
    end_sending(sent);
  sent_gradients_.clear();
}

void micro_batches::meet(const pipeline_operation* made, const pipeline_operation* needs) {
  for (const auto& x : meetings_between(made, needs, c_.grid().depth, c_.stage())) {
    std::vector<ticket> messages;
    if (x.output)
      messages.push_back(x.ahead ? in_flight_[*x.output].sent_output : input_.arrived);
    if (x.gradient)
      messages.push_back(x.ahead ? gradient_.arrived : sent_gradients_.back().first);
    c_.comm->give(messages);
  }
}

sample_tensors micro_batches::load(std::uint32_t micro_batch) {
  const auto part = clock_.parts().in(step_part::data, micro_batch);
  auto result = reader_->take(*c_.aborted);
  c_.check_abort();
  if (c_.options->on_load)
    record_load(result, micro_batch);
  return result;
}

void micro_batches::record_load(const sample_tensors& loaded, std::uint32_t micro_batch) const {
  const auto& job = c_.job();
  loader_record record{c_.what->next, step_, micro_batch, {}, false, 0};
  for (std::uint32_t i = 0; i < job.micro_batch; ++i)
    record.samples.push_back(step_ * job.global_batch + std::uint64_t{micro_batch} * job.micro_batch + i);
  for (const auto* given : {&loaded.inputs, &loaded.targets}) {
    record.targets = given == &loaded.targets;
    if (!(record.targets ? c_.is_last_stage() : c_.is_first_stage()))
      continue;
    const auto read = given->to(at::kCPU);
    record.hash = XXH3_64bits(read.data_ptr(), read.nbytes());
    c_.options->on_load(record);
  }
}

void micro_batches::post_input(std::uint32_t position) {
  if (c_.is_first_stage() || position >= count_)
    return;
  const auto part = in(step_part::transfer, position);
  input_.to = c_.empty_input(c_.job().micro_batch);
  input_.arrived =
      c_.comm->receive(c_.rank - 1, {channel::activation, step_, id(position)}, c_.on.memory_of(input_.to));
}

void micro_batches::post_gradient(std::uint32_t position) {
  if (c_.is_last_stage() || position >= count_)
    return;
  const auto part = in(step_part::transfer, position);
  const auto& output = in_flight_[position].layers.back().output;
  gradient_.to = at::empty(output.sizes(), c_.on.floats());
  gradient_.arrived =
      c_.comm->receive(c_.rank + 1, {channel::gradient, step_, id(position)}, c_.on.memory_of(gradient_.to));
}

// What is waited for before the first bytes come is the pipeline's; then it is on its way.
at::Tensor micro_batches::arrived(posted& x, std::uint32_t position) {
  const auto part = in(step_part::pipeline, position);
  const auto from = std::chrono::steady_clock::now();
  c_.comm->wait(x.arrived, peer_limit);
  if (const auto began = c_.comm->began(x.arrived))
    clock_.parts().was_in(step_part::transfer, std::chrono::steady_clock::now() - std::max(*began, from));
  return std::move(x.to);
}

void micro_batches::end_sending(const ticket& x) {
  const auto part = clock_.parts().in(step_part::transfer);
  c_.comm->wait(x, peer_limit);
}

at::Tensor micro_batches::run_layer(std::uint32_t layer, const at::Tensor& input, std::uint32_t position,
                                    const at::Tensor& statistics) const {
  forward_pass pass{.position = {c_.job().seed, step_, id(position)},
                    .statistics = statistics,
                    .extras = in_flight_[position].extras};
  if (layer + 1 == c_.model->layers.size())
    pass.targets = in_flight_[position].targets;
  return parameters_.forward(layer, input, std::move(pass));
}

void micro_batches::forward(std::uint32_t position) {
  auto& state = in_flight_[position];
  at::Tensor input, targets;
  if (reader_) {
    auto samples = load(id(position));
    input = first_input(*c_.model, samples.inputs);
    targets = std::move(samples.targets);
    if (reads_extras_)
      state.extras = extra_inputs(*c_.model, samples.inputs);
  }
  if (!c_.is_first_stage()) {
    input = arrived(input_, position);
    post_input(position + 1);
  }
  if (c_.model->loss == loss_kind::in_last_layer)
    state.targets = targets;
  const auto part = in(step_part::forward, position);
  clock_.begin(pass_kind::forward);
  for (auto i = c_.first_layer(); i < c_.last_layer(); ++i) {
    c_.check_abort();
    c_.fault("forward", step_, position);
    const stopwatch time(clock_.of_layer(i, pass_kind::forward));
    // Every layer is a graph of its own, cut at both ends, wherever stages begin: so the bits cannot depend on the
    // partition, and an abort is noticed between two layers of the backward pass too.
    if (i > 0)
      input = input.detach().requires_grad_();
    auto output = run_layer(i, input, position, sums_.statistics_row(i, id(position)));
    if (c_.job().recompute)
      output = output.detach(); // what lies within the layer is freed
    state.layers.push_back({input, output});
    input = std::move(output);
  }
  if (c_.is_last_stage()) {
    const stopwatch time(clock_.of_layer(c_.last_layer() - 1, pass_kind::forward));
    // The loss has a leaf of its own too.
    state.layers.push_back({state.layers.back().output.detach().requires_grad_(), {}});
    state.loss = loss_of(*c_.model, state.layers.back().input, targets);
    losses_[position] = state.loss.detach();
  } else {
    const auto sending = in(step_part::transfer, position);
    state.sent_tensor = state.layers.back().output.detach();
    state.sent_output =
        c_.comm->send(c_.rank + 1, {channel::activation, step_, id(position)}, c_.on.memory_of(state.sent_tensor));
  }
}

at::Tensor micro_batches::gradient_of_loss(micro_batch_state& state) {
  const stopwatch time(clock_.of_layer(c_.last_layer() - 1, pass_kind::backward));
  const auto scale = at::full({}, 1.0 / c_.job().micro_batches(), c_.on.floats());
  torch::autograd::backward({state.loss}, {scale});
  auto gradient = state.layers.back().input.grad();
  state.layers.pop_back();
  return gradient;
}

void micro_batches::backward(std::uint32_t position) {
  auto& state = in_flight_[position];
  at::Tensor gradient;
  if (!c_.is_last_stage())
    gradient = arrived(gradient_, position);
  const auto part = in(step_part::backward, position);
  clock_.begin(pass_kind::backward);
  if (c_.is_last_stage())
    gradient = gradient_of_loss(state);
  for (auto i = c_.last_layer(); i-- > c_.first_layer();) {
    c_.check_abort();
    c_.fault("backward", step_, position);
    {
      const stopwatch time(clock_.of_layer(i, pass_kind::backward));
      auto& kept = state.layers[i - c_.first_layer()];
      if (c_.job().recompute) {
        const auto again = in(step_part::recompute, position);
        kept.output = run_layer(i, kept.input, position, {});
      }
      torch::autograd::backward({kept.output}, {gradient});
      if (i > 0)
        gradient = kept.input.grad().contiguous();
      kept = {};
      sums_.add(i, position, parameters_.take_gradients(i)); // while the cache still has them
    }
    if (position + 1 == count_ && c_.is_first_stage()) {
      const auto reducing = clock_.parts().in(step_part::reduction);
      sums_.begin_reduction(i);
    }
  }
  if (!c_.is_first_stage()) {
    const auto sending = in(step_part::transfer, position);
    sent_gradients_.emplace_back(
        c_.comm->send(c_.rank - 1, {channel::gradient, step_, id(position)}, c_.on.memory_of(gradient)), gradient);
  }
  if (state.sent_output)
    end_sending(state.sent_output);
  state = {};
}

} // namespace parcae

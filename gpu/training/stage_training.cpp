#include "gpu/training/stage_training.hpp"

#include "gpu/layers/optimizer.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <xxhash.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace parcae {

stage_training::stage_training(context c) :
    c_(c), job_(c.what->specification), grid_(c.what->target), pipeline_(grid_.pipeline_of(c.rank)),
    stage_(grid_.stage_of(c.rank)), first_(grid_.first_layer[stage_]),
    last_(grid_.first_layer[stage_ + 1]), shape_{job_, grid_}, layers_(make_layers(job_.model, c.on)),
    pixels_(pixel_scale_of(job_, c.on)), validation_(job_, c.data),
    statistics_(*c.model, first_, last_, job_.micro_batches(), c.on),
    // With plain all-reduce, one sum over all micro-batches of the pipeline.
    gradients_(*c.model, first_, last_, job_.reproducible ? job_.virtual_replicas : 1,
               job_.reproducible ? owned_replicas(job_.virtual_replicas, grid_.width, pipeline_) : replica_range{0, 1},
               c.on),
    scratch_(c.on.of()), clock_(first_, last_, c.options->naps, c.options->on ? &c.on.compute() : nullptr) {
  const auto own = shape_.micro_batches(pipeline_);
  first_micro_batch_ = own.first;
  micro_batches_ = own.last - own.first;
  per_sum_ = job_.reproducible ? job_.micro_batches() / job_.virtual_replicas : micro_batches_;
  for (std::uint32_t d = 0; d < grid_.width; ++d)
    replicas_.push_back(grid_.rank(d, stage_));
  schedule_ = one_forward_one_backward(grid_.depth, stage_, micro_batches_);
  for (auto i = first_; i < last_; ++i) {
    runs_.push_back(parameter_runs(*c_.model, i, job_.optimizer));
    reads_extras_ |= c_.model->layers[i].reads_extras;
  }
  if (reads_samples())
    reader_.emplace(
        sample_reader::plan{&job_, c_.model, c.data, c.on.place(), first_micro_batch_, micro_batches_, reads_inputs()});
  in_flight_.resize(micro_batches_);
  losses_.resize(micro_batches_);
}

void stage_training::start(const version& at, std::function<bool()> streaming) {
  at_ = at;
  waits_since_ = at.steps;
  streaming_ = std::move(streaming);
  clock_.start();
  if (reader_ && at.steps < job_.steps)
    reader_->begin(at.steps);
  parameters_.clear();
  copies_.clear();
  for (auto i = first_; i < last_; ++i)
    bind(i);
}

// Copies do not move: wherever a layer comes from, they are made again, by what the optimizer rounds with.
void stage_training::bind(std::uint32_t number) {
  const auto& layer = c_.model->layers[number];
  const auto& flat = c_.store->at(number).parameters;
  auto leaves = views_of(layer, flat);
  at::Tensor copy;
  if (job_.in_bfloat16() && layer.has_matrices()) {
    copy = at::empty_like(flat, at::kBFloat16);
    c_.on.compute().round_values(c_.on.halves_of(copy), c_.on.values_of(flat), static_cast<std::size_t>(flat.numel()));
    const auto rounded = views_of(layer, copy);
    for (std::size_t t = 0; t < leaves.size(); ++t)
      if (layer.tensors[t].is_matrix)
        leaves[t] = rounded[t];
  }
  for (auto& leaf : leaves)
    leaf = leaf.detach().requires_grad_();
  parameters_.push_back(std::move(leaves));
  copies_.push_back(std::move(copy));
}

void stage_training::check_abort() const {
  if (c_.aborted->load(std::memory_order_relaxed))
    throw generation_aborted{};
}

/// When the device has computed it.
at::Tensor stage_training::on_host(const at::Tensor& x) const {
  return c_.results->bring(x, [this] { check_abort(); });
}

void stage_training::fault(const char* phase, std::uint32_t index) const {
  if (c_.options->on_fault_point)
    c_.options->on_fault_point({phase, c_.what->next, at_.steps, index});
}

// --- one micro-batch

sample_tensors stage_training::load(std::uint32_t micro_batch) {
  auto result = reader_->take(*c_.aborted);
  check_abort();
  if (!c_.options->on_load)
    return result;
  loader_record record{c_.what->next, at_.steps, micro_batch, {}, false, 0};
  for (std::uint32_t i = 0; i < job_.micro_batch; ++i)
    record.samples.push_back(at_.steps * job_.global_batch + std::uint64_t{micro_batch} * job_.micro_batch + i);
  for (const auto* given : {&result.inputs, &result.targets}) {
    record.targets = given == &result.targets;
    if (stage_ != (record.targets ? grid_.depth - 1 : 0))
      continue;
    const auto read = given->to(at::kCPU);
    record.hash = XXH3_64bits(read.data_ptr(), read.nbytes());
    c_.options->on_load(record);
  }
  return result;
}

sample_reader::waits stage_training::take_waits() {
  auto result = reader_ ? reader_->take_waits() : sample_reader::waits{};
  result.ms /= static_cast<double>(std::max<std::uint64_t>(1, at_.steps - std::exchange(waits_since_, at_.steps)));
  return result;
}

/// Of the output of a layer.
std::vector<std::int64_t> stage_training::batch_shape(std::uint32_t layer, std::int64_t samples) const {
  auto shape = c_.model->layers[layer].output;
  shape.insert(shape.begin(), samples);
  return shape;
}

void stage_training::post_input(std::uint32_t position) {
  if (stage_ == 0 || position >= micro_batches_)
    return;
  posted_input_ = at::empty(batch_shape(first_ - 1, job_.micro_batch), c_.on.floats());
  input_ticket_ = c_.comm->receive(c_.rank - 1, {channel::activation, at_.steps, micro_batch_id(position)},
                                   c_.on.memory_of(posted_input_));
}

void stage_training::post_gradient(std::uint32_t position) {
  if (stage_ + 1 == grid_.depth || position >= micro_batches_)
    return;
  const auto& output = in_flight_[position].layers.back().output;
  posted_gradient_ = at::empty(output.sizes(), c_.on.floats());
  gradient_ticket_ = c_.comm->receive(c_.rank + 1, {channel::gradient, at_.steps, micro_batch_id(position)},
                                      c_.on.memory_of(posted_gradient_));
}

at::Tensor stage_training::run_layer(std::uint32_t layer, const at::Tensor& input, std::uint32_t position,
                                     const at::Tensor& statistics) const {
  forward_pass pass{.position = {job_.seed, at_.steps, micro_batch_id(position)},
                    .statistics = statistics,
                    .extras = in_flight_[position].extras,
                    .pixels = &pixels_,
                    .on = c_.on};
  if (layer + 1 == c_.model->layers.size())
    pass.targets = in_flight_[position].targets;
  return layers_[layer]->forward(parameters_[layer - first_], input, pass).contiguous();
}

void stage_training::forward(std::uint32_t position) {
  auto& state = in_flight_[position];
  at::Tensor input, targets;
  if (reader_) {
    auto samples = load(micro_batch_id(position));
    input = first_input(*c_.model, samples.inputs);
    targets = std::move(samples.targets);
    if (reads_extras_)
      state.extras = extra_inputs(*c_.model, samples.inputs);
  }
  if (stage_ > 0) {
    c_.comm->wait(input_ticket_, peer_limit);
    input = std::move(posted_input_);
    post_input(position + 1);
  }
  if (c_.model->loss == loss_kind::in_last_layer)
    state.targets = targets;
  clock_.begin(pass_kind::forward);
  for (auto i = first_; i < last_; ++i) {
    check_abort();
    fault("forward", position);
    const stopwatch time(clock_.of_layer(i, pass_kind::forward));
    // Every layer is a graph of its own, cut at both ends, wherever stages begin: so the bits cannot depend on the
    // partition, and an abort is noticed between two layers of the backward pass too.
    if (i > 0)
      input = input.detach().requires_grad_();
    auto output = run_layer(i, input, position, statistics_.row(i, micro_batch_id(position)));
    if (job_.recompute)
      output = output.detach(); // what lies within the layer is freed
    state.layers.push_back({input, output});
    input = std::move(output);
  }
  if (stage_ + 1 == grid_.depth) {
    const stopwatch time(clock_.of_layer(last_ - 1, pass_kind::forward));
    // The loss has a leaf of its own too.
    state.layers.push_back({state.layers.back().output.detach().requires_grad_(), {}});
    state.loss = loss_of(*c_.model, state.layers.back().input, targets);
    losses_[position] = state.loss.detach();
  } else {
    state.sent_tensor = state.layers.back().output.detach();
    state.sent_output = c_.comm->send(c_.rank + 1, {channel::activation, at_.steps, micro_batch_id(position)},
                                      c_.on.memory_of(state.sent_tensor));
  }
}

// Gradients are added while the cache still has them.
void stage_training::add_gradient(std::uint32_t layer, std::uint32_t position) {
  std::vector<at::Tensor> pieces;
  for (auto& parameter : parameters_[layer - first_])
    if (auto piece = std::exchange(parameter.mutable_grad(), at::Tensor()); piece.defined())
      pieces.push_back(std::move(piece));
    else // nothing of the output depends on it, in this micro-batch
      pieces.push_back(at::zeros(parameter.sizes(), c_.on.floats()));
  gradients_.add(layer, std::move(pieces));
  if (position % per_sum_ == per_sum_ - 1)
    gradients_.end_replica(layer);
}

void stage_training::backward(std::uint32_t position) {
  auto& state = in_flight_[position];
  at::Tensor gradient;
  if (stage_ + 1 == grid_.depth) {
    clock_.begin(pass_kind::backward);
    const stopwatch time(clock_.of_layer(last_ - 1, pass_kind::backward));
    const auto scale = at::full({}, 1.0 / job_.micro_batches(), c_.on.floats());
    torch::autograd::backward({state.loss}, {scale});
    gradient = state.layers.back().input.grad();
    state.layers.pop_back();
  } else {
    c_.comm->wait(gradient_ticket_, peer_limit);
    gradient = std::move(posted_gradient_);
    clock_.begin(pass_kind::backward);
  }
  for (auto i = last_; i-- > first_;) {
    check_abort();
    fault("backward", position);
    {
      const stopwatch time(clock_.of_layer(i, pass_kind::backward));
      auto& part = state.layers[i - first_];
      if (job_.recompute)
        part.output = run_layer(i, part.input, position, {});
      torch::autograd::backward({part.output}, {gradient});
      if (i > 0)
        gradient = part.input.grad().contiguous();
      part = {};
      add_gradient(i, position);
    }
    if (position + 1 == micro_batches_ && reduction_) { // on its way behind the backward of the layers before
      reduction_->add(gradients_.spans(i));
      reduction_->advance();
    }
  }
  if (stage_ > 0)
    sent_gradients_.emplace_back(
        c_.comm->send(c_.rank - 1, {channel::gradient, at_.steps, micro_batch_id(position)}, c_.on.memory_of(gradient)),
        gradient);
  if (state.sent_output)
    c_.comm->wait(state.sent_output, peer_limit);
  state = {};
}

// --- one step

const commit_result& stage_training::step() {
  const stopwatch time(clock_.of_step());
  drop_gradients();
  if (c_.transport->may_load() && job_.evaluate_every > 0)
    rehearse_evaluation();
  if (c_.transport->begin_step())
    fault("take_over");
  if (job_.reproducible)
    reduction_.emplace(*c_.comm, replicas_, pipeline_, job_.virtual_replicas, at_.steps, scratch_);
  post_input(0);
  std::uint32_t next_gradient = 0; // posted as soon as the one before was used and the output's shape is known
  for (const auto& operation : schedule_) {
    if (operation.forward)
      forward(operation.position);
    else
      backward(operation.position);
    limit_lead();
    const auto awaited = operation.forward ? next_gradient : next_gradient + 1;
    if (!operation.forward)
      gradient_ticket_ = {};
    if (!gradient_ticket_ && awaited < micro_batches_ && !in_flight_[awaited].layers.empty())
      post_gradient(awaited);
    next_gradient = awaited;
  }
  for (auto& [sent, tensor] : sent_gradients_)
    c_.comm->wait(sent, peer_limit);
  sent_gradients_.clear();
  reduce();
  add_tied();
  gather_statistics();
  auto mine = own_contribution();
  complete_ = at_.steps; // the norms came, so nothing was cut off
  fault("reduced");
  exchange(std::move(mine));
  fault("exchanged");
  apply(result_);
  return result_;
}

// An abort has to wait for what the device was given (generation_state::end_work).
void stage_training::limit_lead() {
  constexpr std::size_t most_ahead = 2;
  constexpr std::chrono::milliseconds look{20};
  if (c_.on.of().facts().host)
    return;
  passes_.push_back(c_.on.compute().record());
  for (; passes_.size() > most_ahead; passes_.pop_front())
    while (!passes_.front()->wait(look))
      check_abort();
}

void stage_training::reduce() {
  check_abort();
  if (reduction_)
    reduction_->finish();
  else
    for (auto i = first_; i < last_; ++i)
      all_reduce_ring(*c_.comm, replicas_, pipeline_, gradients_.spans(i).front(), at_.steps, i, scratch_);
}

void stage_training::gather_statistics() {
  std::vector<replica_range> micro_batches;
  for (std::uint32_t d = 0; d < grid_.width; ++d)
    micro_batches.push_back(shape_.micro_batches(d));
  statistics_.gather(*c_.comm, replicas_, micro_batches, pipeline_, at_.steps, peer_limit);
}

// Both uses' gradients are kept apart until here, also when one stage has both, and added input use first.
void stage_training::add_tied() {
  if (!c_.model->tied)
    return;
  const auto& tie = *c_.model->tied;
  const bool has_first = first_ <= tie.first_layer && tie.first_layer < last_;
  const bool has_second = first_ <= tie.second_layer && tie.second_layer < last_;
  if (!has_first && !has_second)
    return;
  auto slice = [&](std::uint32_t layer, std::uint32_t tensor) {
    return views_of(c_.model->layers[layer], gradients_.first(layer))[tensor];
  };
  if (has_first && has_second) {
    auto first = slice(tie.first_layer, tie.first_tensor);
    auto second = slice(tie.second_layer, tie.second_tensor);
    first.add_(second);
    second.copy_(first);
    return;
  }
  auto mine = has_first ? slice(tie.first_layer, tie.first_tensor) : slice(tie.second_layer, tie.second_tensor);
  auto stage_with = [&](std::uint32_t layer) {
    std::uint32_t s = 0;
    while (grid_.first_layer[s + 1] <= layer)
      ++s;
    return s;
  };
  const auto peer = grid_.rank(pipeline_, stage_with(has_first ? tie.second_layer : tie.first_layer));
  auto& theirs = posted_tied_; // until nobody writes it any more
  theirs = at::empty_like(mine);
  const tag what{channel::tied, at_.steps, 0};
  auto received = c_.comm->receive(peer, what, c_.on.memory_of(theirs));
  auto sent = c_.comm->send(peer, what, c_.on.memory_of(mine));
  c_.comm->wait(received, peer_limit);
  c_.comm->wait(sent, peer_limit);
  if (has_first)
    mine.add_(theirs);
  else
    mine.copy_(theirs.add_(mine));
}

// --- the commit exchange

// Norms and losses stay on the device until all are computed, and come in one copy: the only time in a step that the
// host waits for the device's work.
contribution stage_training::own_contribution() {
  contribution mine;
  clock_.begin(pass_kind::apply);
  const bool last_stage = stage_ + 1 == grid_.depth;
  std::vector<std::size_t> parts; // of each layer's norm
  for (auto i = first_; i < last_; ++i)
    parts.push_back(counted_once(i).size());
  const auto norms = std::accumulate(parts.begin(), parts.end(), std::size_t{0});
  const auto numbers = at::empty({static_cast<std::int64_t>(norms + (last_stage ? micro_batches_ : 0))},
                                 c_.on.floats().dtype(at::kDouble));
  auto* next = numbers.data_ptr<double>();
  for (auto i = first_; i < last_; ++i) {
    const stopwatch time(clock_.of_layer(i, pass_kind::apply));
    for (const auto& x : counted_once(i))
      c_.on.compute().squared_norm(c_.on.values_of(x), static_cast<std::size_t>(x.numel()), next++);
  }
  if (last_stage)
    numbers.narrow(0, static_cast<std::int64_t>(norms), micro_batches_).copy_(at::stack(losses_));
  const auto here = on_host(numbers);
  c_.comm->check(); // before these numbers count: what was cut off on the device ended without an error
  const auto* came = here.const_data_ptr<double>();
  for (const auto n : parts) {
    mine.squared_norms.push_back(std::accumulate(came, came + n, 0.0));
    came += n;
  }
  if (last_stage)
    mine.losses.assign(came, came + micro_batches_);
  return mine;
}

/// Of a layer's gradient: a tied tensor counts with its first use.
std::vector<at::Tensor> stage_training::counted_once(std::uint32_t layer) const {
  const auto& gradient = gradients_.first(layer);
  const auto& tie = c_.model->tied;
  if (!tie || tie->second_layer != layer)
    return {gradient};
  auto tensors = views_of(c_.model->layers[layer], gradient);
  tensors.erase(tensors.begin() + tie->second_tensor);
  return tensors;
}

void stage_training::exchange(contribution mine) {
  mine.stop = stop_;
  mine.snapshot = snapshot_;
  mine.due = due_;
  mine.busy = streaming_ && streaming_();
  mine.ready = c_.transport->is_ready();
  const auto ranks = grid_.ranks();
  const tag what{channel::exchange, at_.steps, 0};
  std::vector<std::vector<std::byte>> bytes(ranks);
  std::vector<ticket> received(ranks);
  check_abort();
  // A rank that has everyone's contribution goes on, whether or not all of its own have left: so they live until the
  // next exchange.
  for (auto& sent : sent_contributions_)
    c_.comm->wait(sent, peer_limit);
  sent_contributions_.clear();
  sent_contribution_ = encode(mine);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    if (r == c_.rank)
      continue;
    bytes[r].resize(shape_.bytes(r));
    received[r] = c_.comm->receive(r, what, bytes[r]);
  }
  std::uint32_t count = 0;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    if (r == c_.rank)
      continue;
    sent_contributions_.push_back(c_.comm->send(r, what, sent_contribution_));
    fault("exchange_send", ++count);
  }
  for (std::uint32_t r = 0; r < ranks; ++r)
    if (r != c_.rank)
      c_.comm->wait(received[r], peer_limit);

  std::vector<contribution> by_rank;
  for (std::uint32_t r = 0; r < ranks; ++r)
    by_rank.push_back(r == c_.rank ? mine : decode(bytes[r], r, shape_));
  result_ = combine(by_rank, at_.steps, shape_);
  if (all_are_ready(by_rank))
    c_.transport->agree();
  if (result_.snapshot)
    snapshot_ = due_ = false;
  else if ((at_.steps + 1) % job_.keeper_every == 0)
    due_ = true;
}

void stage_training::apply(const commit_result& result) {
  if (complete_ != at_.steps || result.step != at_.steps)
    throw std::logic_error("apply of step " + std::to_string(result.step) + " at version " + to_string(at_));
  result_ = result;
  voided_ = true;
  const c10::NoGradGuard no_gradient;
  for (auto i = first_; i < last_; ++i) {
    const stopwatch time(clock_.of_layer(i, pass_kind::apply));
    auto& state = c_.store->at(i);
    if (state.leaving.valid())
      std::exchange(state.leaving, {}).get();
    apply_optimizer(job_.optimizer, state.parameters, state.moments, gradients_.first(i), at_.steps,
                    result.learning_rate, result.clip_factor, runs_[i - first_], c_.on, copies_[i - first_]);
    statistics_.add_to(state.buffers, i);
    if (course_ && state.course.defined())
      set_course(state, *course_);
    fault("apply", i - first_ + 1);
  }
  course_.reset();
  clock_.end_step();
  at_ = {at_.steps + 1, c_.what->next};
  for (auto i = first_; i < last_; ++i)
    c_.store->at(i).at = at_;
  voided_ = false;
  drop_gradients();
}

void stage_training::drop_gradients() {
  complete_ = no_step;
  reduction_.reset();
  gradients_.clear();
}

} // namespace parcae

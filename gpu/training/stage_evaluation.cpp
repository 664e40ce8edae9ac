#include "gpu/training/stage_training.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>

namespace parcae {

bool stage_training::evaluation_is_due() const {
  return job_.evaluate_every > 0 && (at_.steps % job_.evaluate_every == 0 || at_.steps == job_.steps);
}

sample_tensors stage_training::load_validation(std::uint64_t first, std::int64_t count) const {
  auto result = empty_samples(*c_.model, count);
  for (std::int64_t i = 0; i < count; ++i)
    validation_.validation(first + static_cast<std::uint64_t>(i), sample_values(result.inputs, i),
                           sample_values(result.targets, i));
  return {sent_to(c_.on.place(), result.inputs), sent_to(c_.on.place(), result.targets)};
}

/// What the stage makes of a micro-batch, the last one its loss. `input` is the stage's, if that is not the first.
at::Tensor stage_training::run_evaluation(const sample_tensors& samples, at::Tensor input) const {
  forward_pass pass{.training = false, .pixels = &pixels_, .on = c_.on};
  if (reads_samples()) {
    if (stage_ == 0)
      input = first_input(*c_.model, samples.inputs);
    pass.extras = extra_inputs(*c_.model, samples.inputs);
    pass.targets = samples.targets;
  }
  for (auto i = first_; i < last_; ++i) {
    check_abort();
    pass.buffers = c_.store->at(i).buffers;
    input = layers_[i]->forward(parameters_[i - first_], input, pass).contiguous();
  }
  return stage_ + 1 == grid_.depth ? loss_of(*c_.model, input, pass.targets) : input;
}

at::Tensor stage_training::losses_of_evaluation(std::uint64_t micro_batches) const {
  return at::empty({static_cast<std::int64_t>(micro_batches)}, c_.on.floats().dtype(at::kDouble));
}

// On zeros of all sizes that there will be: libraries choose kernels by them, and load what they choose.
void stage_training::rehearse_evaluation() const {
  const c10::NoGradGuard no_gradient;
  const auto samples = job_.data.validation_samples();
  for (const auto count : {std::min<std::uint64_t>(samples, job_.micro_batch), samples % job_.micro_batch}) {
    if (count == 0)
      continue;
    const auto n = static_cast<std::int64_t>(count);
    sample_tensors zeros;
    if (reads_samples()) {
      zeros = empty_samples(*c_.model, n);
      zeros = {at::zeros_like(zeros.inputs, c_.on.place()), at::zeros_like(zeros.targets, c_.on.place())};
    }
    const auto x =
        run_evaluation(zeros, stage_ > 0 ? at::zeros(batch_shape(first_ - 1, n), c_.on.floats()) : at::Tensor());
    if (stage_ + 1 == grid_.depth)
      losses_of_evaluation(1).select(0, 0).copy_(x.squeeze());
  }
}

stage_training::evaluation stage_training::evaluate() {
  const c10::NoGradGuard no_gradient;
  const auto samples = job_.data.validation_samples();
  const auto micro_batches = (samples + job_.micro_batch - 1) / job_.micro_batch;
  const auto owned = owned_replicas(job_.virtual_replicas, grid_.width, pipeline_);
  const bool last_stage = stage_ + 1 == grid_.depth;
  std::vector<double> sums(last_stage ? owned.last - owned.first : 0);
  struct counted_loss {
    double& sum;
    std::int64_t samples;
  };
  std::vector<counted_loss> counted;
  const auto means = losses_of_evaluation(micro_batches); // likewise
  // As many outputs as there are stages may be on their way; then the next stage is waited for.
  std::deque<std::pair<ticket, at::Tensor>> sent;
  for (auto replica = owned.first; replica < owned.last; ++replica)
    for (std::uint64_t j = replica; j < micro_batches; j += job_.virtual_replicas) {
      const auto first = j * job_.micro_batch;
      const auto count = static_cast<std::int64_t>(std::min<std::uint64_t>(job_.micro_batch, samples - first));
      const tag what{channel::evaluation, at_.steps, static_cast<std::uint32_t>(j)};
      const auto loaded = reads_samples() ? load_validation(first, count) : sample_tensors{};
      at::Tensor x;
      if (stage_ > 0) {
        x = posted_input_ = at::empty(batch_shape(first_ - 1, count), c_.on.floats());
        c_.comm->wait(c_.comm->receive(c_.rank - 1, what, c_.on.memory_of(x)), peer_limit);
      }
      fault("evaluate", static_cast<std::uint32_t>(j));
      x = run_evaluation(loaded, std::move(x));
      limit_lead();
      if (last_stage) {
        means.select(0, static_cast<std::int64_t>(counted.size())).copy_(x.squeeze());
        counted.push_back({sums[replica - owned.first], count});
      } else {
        sent.emplace_back(c_.comm->send(c_.rank + 1, what, c_.on.memory_of(x)), x);
        if (sent.size() > grid_.depth) {
          c_.comm->wait(sent.front().first, peer_limit);
          sent.pop_front();
        }
      }
    }
  for (const auto& [ticket, tensor] : sent)
    c_.comm->wait(ticket, peer_limit);
  const auto here = counted.empty() ? means : on_host(means); // none was waited for before
  c_.comm->check();                                           // before these count, as in own_contribution
  for (std::size_t i = 0; i < counted.size(); ++i)
    counted[i].sum += here.const_data_ptr<double>()[i] * static_cast<double>(counted[i].samples);
  if (job_.patience > 0)
    conclude(sums);
  return {owned.first, std::move(sums)};
}

// All ranks hear all sums of the last stage, and what its state says of evaluations before. So all conclude the same,
// and a generation that evaluates this version again concludes it again.
void stage_training::conclude(const std::vector<double>& sums) {
  constexpr std::size_t of_course = 2;
  const tag what{channel::evaluation, at_.steps, UINT32_MAX};
  std::vector<ticket> under_way;
  said_.assign(grid_.width, {});
  for (std::uint32_t d = 0; d < grid_.width; ++d) {
    const auto rank = grid_.rank(d, grid_.depth - 1);
    auto& said = said_[d];
    if (rank != c_.rank) {
      const auto replicas = owned_replicas(job_.virtual_replicas, grid_.width, d);
      said.resize(replicas.last - replicas.first + of_course);
      under_way.push_back(c_.comm->receive(rank, what, std::as_writable_bytes(std::span(said))));
      continue;
    }
    const auto course = course_of(c_.store->at(last_ - 1));
    said = sums;
    said.insert(said.end(), {course.best, course.worse});
    for (std::uint32_t r = 0; r < grid_.ranks(); ++r)
      if (r != c_.rank)
        under_way.push_back(c_.comm->send(r, what, std::as_bytes(std::span(said))));
  }
  for (const auto& x : under_way)
    c_.comm->wait(x, peer_limit);
  double loss = 0;
  for (const auto& said : said_)
    for (std::size_t i = 0; i + of_course < said.size(); ++i)
      loss += said[i];
  const auto& any = said_.front();
  const validation_course before{static_cast<float>(any[any.size() - 2]), static_cast<float>(any.back())};
  course_ = after(before, loss / static_cast<double>(job_.data.validation), job_);
  if (ends(*course_, job_))
    ends_at_ = at_.steps;
}

} // namespace parcae

#include "gpu/training/stage_evaluation.hpp"

#include "gpu/training/usual_bits.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <span>
#include <utility>

namespace parcae {

stage_evaluation::stage_evaluation(const stage_context& c, const stage_parameters& parameters, device_lead& lead) :
    c_(c), parameters_(parameters), lead_(lead), samples_(c.job(), c.data) {}

std::vector<stage_evaluation::micro_batch> stage_evaluation::own_micro_batches() const {
  const auto& job = c_.job();
  const auto samples = job.data.validation_samples();
  const auto owned = owned_replicas(job.virtual_replicas, c_.grid().width, c_.pipeline());
  std::vector<micro_batch> result;
  for (auto replica = owned.first; replica < owned.last; ++replica)
    for (std::uint64_t j = replica; j * job.micro_batch < samples; j += job.virtual_replicas) {
      const auto first = j * job.micro_batch;
      const auto count = std::min<std::uint64_t>(job.micro_batch, samples - first);
      result.push_back({static_cast<std::uint32_t>(j), replica - owned.first, first, static_cast<std::int64_t>(count)});
    }
  return result;
}

sample_tensors stage_evaluation::load(const micro_batch& x) const {
  auto result = empty_samples(*c_.model, x.samples);
  for (std::int64_t i = 0; i < x.samples; ++i)
    samples_.validation(x.first_sample + static_cast<std::uint64_t>(i), sample_values(result.inputs, i),
                        sample_values(result.targets, i));
  return {sent_to(c_.on.place(), result.inputs), sent_to(c_.on.place(), result.targets)};
}

at::Tensor stage_evaluation::run(const sample_tensors& samples, at::Tensor input) const {
  forward_pass pass{.training = false};
  if (c_.reads_samples()) {
    if (c_.is_first_stage())
      input = first_input(*c_.model, samples.inputs);
    pass.extras = extra_inputs(*c_.model, samples.inputs);
    pass.targets = samples.targets;
  }
  for (auto i = c_.first_layer(); i < c_.last_layer(); ++i) {
    c_.check_abort();
    pass.buffers = c_.layer(i).buffers;
    input = parameters_.forward(i, input, pass);
  }
  return c_.is_last_stage() ? loss_of(*c_.model, input, pass.targets) : input;
}

at::Tensor stage_evaluation::room_for_losses(std::size_t count) const {
  return at::empty({static_cast<std::int64_t>(count)}, c_.on.floats().dtype(at::kDouble));
}

void stage_evaluation::rehearse() const {
  const c10::NoGradGuard no_gradient;
  const auto samples = c_.job().data.validation_samples();
  const std::uint64_t whole = c_.job().micro_batch;
  for (const auto count : {std::min(samples, whole), samples % whole}) {
    if (count == 0)
      continue;
    const auto n = static_cast<std::int64_t>(count);
    sample_tensors zeros;
    if (c_.reads_samples()) {
      zeros = empty_samples(*c_.model, n);
      zeros = {at::zeros_like(zeros.inputs, c_.on.place()), at::zeros_like(zeros.targets, c_.on.place())};
    }
    const auto x = run(zeros, c_.is_first_stage() ? at::Tensor() : c_.empty_input(n).zero_());
    if (c_.is_last_stage())
      room_for_losses(1).select(0, 0).copy_(x.squeeze());
  }
}

void stage_evaluation::evaluate_one(const micro_batch& x, std::uint64_t steps, const at::Tensor& loss) {
  const tag what{channel::evaluation, steps, x.number};
  const auto samples = c_.reads_samples() ? load(x) : sample_tensors{};
  if (!c_.is_first_stage()) {
    posted_input_ = c_.empty_input(x.samples);
    const auto arrives = c_.comm->receive(c_.rank - 1, what, c_.on.memory_of(posted_input_));
    c_.comm->give({&arrives, 1});
    c_.comm->wait(arrives, peer_limit);
  }
  c_.fault("evaluate", steps, x.number);
  auto output = run(samples, posted_input_);
  lead_.limit();
  if (c_.is_last_stage()) {
    loss.copy_(output.squeeze());
    return;
  }
  // As many outputs as there are stages may be on their way; then the next stage is waited for.
  sent_.emplace_back(c_.comm->send(c_.rank + 1, what, c_.on.memory_of(output)), output);
  c_.comm->give({&sent_.back().first, 1});
  if (sent_.size() > c_.grid().depth) {
    c_.comm->wait(sent_.front().first, peer_limit);
    sent_.pop_front();
  }
}

stage_evaluation::sums_of_losses stage_evaluation::evaluate(std::uint64_t steps) {
  const c10::NoGradGuard no_gradient;
  const auto& job = c_.job();
  const auto own = own_micro_batches();
  const auto means = room_for_losses(own.size());
  for (std::size_t i = 0; i < own.size(); ++i)
    evaluate_one(own[i], steps, means.select(0, static_cast<std::int64_t>(i)));
  for (const auto& [ticket, tensor] : sent_)
    c_.comm->wait(ticket, peer_limit);
  sent_.clear();
  sums_of_losses result;
  const auto owned = owned_replicas(job.virtual_replicas, c_.grid().width, c_.pipeline());
  result.first_replica = owned.first;
  if (c_.is_last_stage()) {
    result.sums.resize(owned.last - owned.first);
    const auto here = own.empty() ? means : c_.on_host(means); // none was waited for before
    for (std::size_t i = 0; i < own.size(); ++i)
      result.sums[own[i].replica] += here.const_data_ptr<double>()[i] * static_cast<double>(own[i].samples);
  }
  require_usual_bits(c_.on, *c_.options);
  c_.comm->check(); // before these count, as in commit_exchange::contribution_of
  result.mean = conclude(result.sums, steps);
  return result;
}

// All ranks hear all sums of the last stage, and what its state says of evaluations before. So all conclude the same,
// and a generation that evaluates this version again concludes it again. Who commits the next step knows what came of
// this, and so does everybody who has a later version from it.
double stage_evaluation::conclude(const std::vector<double>& sums, std::uint64_t steps) {
  const auto& job = c_.job();
  const std::size_t of_course = job.patience > 0 ? 2 : 0;
  const auto& grid = c_.grid();
  const tag what{channel::evaluation, steps, UINT32_MAX};
  std::vector<ticket> under_way;
  said_.assign(grid.width, {});
  for (std::uint32_t d = 0; d < grid.width; ++d) {
    const auto rank = grid.rank(d, grid.depth - 1);
    auto& said = said_[d];
    if (rank != c_.rank) {
      const auto replicas = owned_replicas(job.virtual_replicas, grid.width, d);
      said.resize(replicas.last - replicas.first + of_course);
      under_way.push_back(c_.comm->receive(rank, what, std::as_writable_bytes(std::span(said))));
      continue;
    }
    said = sums;
    if (of_course > 0) {
      const auto course = course_of(c_.layer(c_.last_layer() - 1));
      said.insert(said.end(), {course.best, course.worse});
    }
    for (std::uint32_t r = 0; r < grid.ranks(); ++r)
      if (r != c_.rank)
        under_way.push_back(c_.comm->send(r, what, std::as_bytes(std::span(said))));
  }
  for (const auto& x : under_way)
    c_.comm->wait(x, peer_limit);
  double loss = 0;
  for (const auto& said : said_)
    for (std::size_t i = 0; i + of_course < said.size(); ++i)
      loss += said[i];
  loss /= static_cast<double>(job.data.validation_samples());
  if (job.patience == 0)
    return loss;
  const auto& any = said_.front();
  const validation_course before{static_cast<float>(any[any.size() - 2]), static_cast<float>(any.back())};
  course_ = after(before, loss, job);
  if (ends(*course_, job))
    ends_at_ = steps;
  return loss;
}

} // namespace parcae

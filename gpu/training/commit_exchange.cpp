#include "gpu/training/commit_exchange.hpp"

#include <ATen/ATen.h>

#include <numeric>
#include <string>

namespace parcae {

// Norms and losses stay on the device until all are computed, and come in one copy: the only time in a step that the
// host waits for all of the device's work.
contribution commit_exchange::contribution_of(const stage_sums& sums, std::span<const at::Tensor> losses,
                                              stage_clock& clock) const {
  contribution mine;
  clock.begin(pass_kind::apply);
  std::vector<std::size_t> parts; // of each layer's norm
  for (auto i = c_.first_layer(); i < c_.last_layer(); ++i)
    parts.push_back(sums.counted_once(i).size());
  const auto norms = std::accumulate(parts.begin(), parts.end(), std::size_t{0});
  const auto numbers = at::empty({static_cast<std::int64_t>(norms + losses.size())}, c_.on.floats().dtype(at::kDouble));
  auto* next = numbers.data_ptr<double>();
  for (auto i = c_.first_layer(); i < c_.last_layer(); ++i) {
    const stopwatch time(clock.of_layer(i, pass_kind::apply));
    for (const auto& x : sums.counted_once(i))
      c_.on.compute().squared_norm(c_.on.values_of(x), static_cast<std::size_t>(x.numel()), next++);
  }
  if (!losses.empty())
    numbers.narrow(0, static_cast<std::int64_t>(norms), static_cast<std::int64_t>(losses.size()))
        .copy_(at::stack(at::TensorList(losses.data(), losses.size())));
  const auto here = c_.on_host(numbers);
  c_.comm->check(); // before these numbers count: what was cut off on the device ended without an error
  const auto* came = here.const_data_ptr<double>();
  for (const auto n : parts) {
    mine.squared_norms.push_back(std::accumulate(came, came + n, 0.0));
    came += n;
  }
  mine.losses.assign(came, came + losses.size());
  return mine;
}

commit_result commit_exchange::exchange(contribution mine, std::uint64_t step, const stage_parameters& parameters) {
  mine.asks = {.stop = stop_,
               .snapshot = snapshot_,
               .due = due_,
               .busy = streaming_ && streaming_(),
               .rests = resting_ && resting_()};
  mine.ready = c_.transport->is_ready();
  const auto by_rank = hear_all(mine, step);
  auto result = combine(by_rank, step, c_.shape());
  require_finite(result, parameters);
  if (all_are_ready(by_rank))
    c_.transport->agree();
  if (result.snapshot)
    snapshot_ = due_ = false;
  else if (is_put_off(step, c_.job()))
    due_ = true;
  return result;
}

std::vector<contribution> commit_exchange::hear_all(const contribution& mine, std::uint64_t step) {
  const auto shape = c_.shape();
  const auto ranks = c_.grid().ranks();
  const tag what{channel::exchange, step, 0};
  std::vector<ticket> received(ranks);
  c_.check_abort();
  // A rank that has everyone's contribution goes on, whether or not all of its own have left: so they live until the
  // next exchange.
  for (auto& sent : sent_)
    c_.comm->wait(sent, peer_limit);
  sent_.clear();
  said_ = encode(mine);
  heard_.resize(ranks);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    if (r == c_.rank)
      continue;
    heard_[r].resize(shape.bytes(r));
    received[r] = c_.comm->receive(r, what, heard_[r]);
  }
  std::uint32_t count = 0;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    if (r == c_.rank)
      continue;
    sent_.push_back(c_.comm->send(r, what, said_));
    c_.fault("exchange_send", step, ++count);
  }
  for (std::uint32_t r = 0; r < ranks; ++r)
    if (r != c_.rank)
      c_.comm->wait(received[r], peer_limit);
  std::vector<contribution> by_rank;
  for (std::uint32_t r = 0; r < ranks; ++r)
    by_rank.push_back(r == c_.rank ? mine : decode(heard_[r], r, shape));
  return by_rank;
}

// All ranks come to the same. Before the result is one that is known: a step that ends the job is in no version.
void commit_exchange::require_finite(const commit_result& result, const stage_parameters& parameters) const {
  const auto becomes = becomes_of(result, c_.job());
  if (becomes == step_end::applied)
    return;
  auto problem = problem_of(result);
  const auto broken = becomes == step_end::skipped ? parameters.layer_not_finite() : std::nullopt;
  if (becomes == step_end::skipped && !broken)
    return;
  if (broken)
    problem += ", nor are the parameters of layer " + std::to_string(*broken) + ", which skipping does not mend";
  throw not_finite(problem);
}

} // namespace parcae

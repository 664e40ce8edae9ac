#include "gpu/training/rank_transport.hpp"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace parcae {

namespace {

bool wants_nccl(const prepare& what, std::uint32_t self, const nccl_access& nccl) {
  const auto& transport = what.specification.transport;
  const auto ranks = what.target.ranks();
  return self < ranks && ranks > 1 && (transport == "nccl" || (transport == "auto" && nccl.by_itself));
}

} // namespace

std::vector<std::uint32_t> peers_of(const placement& grid, std::uint32_t rank,
                                    const std::optional<tied_tensors>& tied) {
  const auto stage = grid.stage_of(rank), pipeline = grid.pipeline_of(rank);
  std::set<std::uint32_t> result;
  for (std::uint32_t d = 0; d < grid.width; ++d)
    result.insert(grid.rank(d, stage));
  if (stage > 0)
    result.insert(rank - 1);
  if (stage + 1 < grid.depth)
    result.insert(rank + 1);
  if (tied) {
    const auto stage_with = [&](std::uint32_t layer) {
      return static_cast<std::uint32_t>(std::ranges::upper_bound(grid.first_layer, layer) - grid.first_layer.begin()) -
             1;
    };
    const auto first = stage_with(tied->first_layer), second = stage_with(tied->second_layer);
    if (stage == first || stage == second)
      result.insert(grid.rank(pipeline, stage == first ? second : first));
  }
  result.erase(rank);
  return {result.begin(), result.end()};
}

rank_transport::rank_transport(const prepare& what, std::uint32_t self, const executor_options& options) :
    what_(what), self_(self), options_(options), wanted_(wants_nccl(what, self, options.nccl)) {}

/// Why this rank cannot use NCCL, whatever others can; empty: it can.
std::string rank_transport::obstacle() const {
  const auto& nccl = options_.nccl;
  if (!options_.on || options_.on->facts().host)
    return "NCCL is for GPUs, and this computes on the processor";
  if (!nccl.slot)
    return nccl.problem.empty() ? "there is no NCCL here" : nccl.problem;
  if (nccl.slot->lost)
    return "a call of NCCL has never returned in this process";
  const auto& all = what_.target.participants;
  const bool one_host = std::all_of(all.begin(), all.begin() + what_.target.ranks(),
                                    [&](const participant& x) { return x.host == all[self_].host; });
  if (!one_host && !nccl.trusts_network)
    return "NCCL neither authenticates nor encrypts: between hosts it needs parcae-node --trust-network";
  return nccl.slot->failures.problem_among(ranks());
}

std::vector<slot_id> rank_transport::ranks() const {
  std::vector<slot_id> result;
  for (std::uint32_t i = 0; i < what_.target.ranks(); ++i)
    result.push_back(what_.target.participants[i].slot);
  return result;
}

std::unique_ptr<communicator> rank_transport::connect(std::unique_ptr<communicator> below,
                                                      const std::optional<tied_tensors>& tied) {
  if (!wanted_)
    return below;
  reason_ = obstacle();
  if (!reason_.empty())
    return below;
  auto result = make_nccl_communicator(std::move(below), {what_.target.ranks(), peers_of(what_.target, self_, tied)},
                                       options_.nccl.slot);
  nccl_ = result.get();
  return result;
}

void rank_transport::leave() {
  if (!nccl_)
    return;
  if (const auto x = nccl_->state(); x.now == nccl_communicator::phase::failed && x.own)
    note_end();
  nccl_->leave();
}

void rank_transport::note_end() {
  if (begun_ && !std::exchange(ended_, true))
    options_.nccl.slot->failures.note_failure(nccl_->state().problem);
}

bool rank_transport::begin_step() {
  stepped_ = true;
  if (begun_)
    nccl_->state(); // hears what there is to hear
  if (!std::exchange(agreed_, false))
    return false;
  if (begun_) {
    nccl_->take_over();
    return true;
  }
  begun_ = true;
  options_.nccl.slot->failures.note_use(ranks());
  nccl_->begin();
  return false;
}

bool rank_transport::is_ready() const {
  return nccl_ && (!begun_ || nccl_->state().now == nccl_communicator::phase::ready);
}

transport_state rank_transport::state() const {
  transport_state result{"tcp", options_.on ? options_.on->facts().name : "cpu", reason_, peers_};
  if (!nccl_)
    return result;
  const auto x = nccl_->state();
  if (x.now == nccl_communicator::phase::in_use)
    result.by = "nccl";
  else if (x.now == nccl_communicator::phase::failed && x.own) // else another rank has a reason of its own
    result.reason = x.problem;
  return result;
}

} // namespace parcae

#include "gpu/training/rank_transport.hpp"

#include "gpu/dataplane/data_port.hpp"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>
#include <vector>

namespace parcae {

namespace {

constexpr std::chrono::hours exchange_limit{1}; ///< the conductor's limit is shorter; see peer_limit

bool wants_nccl(const prepare& what, std::uint32_t self, const nccl_access& nccl) {
  const auto& transport = what.specification.transport;
  const auto ranks = what.target.ranks();
  return self < ranks && ranks > 1 && (transport == "nccl" || (transport == "auto" && nccl.by_itself));
}

} // namespace

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
  return nccl.slot->breaks.problem_among(ranks());
}

std::vector<slot_id> rank_transport::ranks() const {
  std::vector<slot_id> result;
  for (std::uint32_t i = 0; i < what_.target.ranks(); ++i)
    result.push_back(what_.target.participants[i].slot);
  return result;
}

void rank_transport::take_over() {
  nccl_->take_over();
  options_.nccl.slot->breaks.note_use(ranks());
  moves_ = true;
}

std::unique_ptr<communicator> rank_transport::connect(std::unique_ptr<communicator> below, data_port& port,
                                                      const std::atomic<bool>& cancelled) {
  if (!wanted_)
    return below;
  reason_ = obstacle();
  auto ranks = what_;
  ranks.target.participants.resize(what_.target.ranks());
  std::unique_ptr<communicator> notes;
  try {
    notes = port.connect(ranks, options_.self, connect_limit, cancelled, purpose::order);
  } catch (const communication_error& e) {
    if (reason_.empty())
      reason_ = e.what();
  }
  if (!reason_.empty())
    return below;
  std::vector<std::string> names;
  for (const auto& x : ranks.target.participants)
    names.push_back("participant " + std::to_string(names.size()) + " (" + to_string(x.slot) + ")");
  auto result = make_nccl_communicator(std::move(below), std::move(notes), std::move(names), options_.nccl.slot,
                                       options_.nccl.allowed);
  nccl_ = result.get();
  return result;
}

void rank_transport::begin_transfer(communicator& comm, const version& at) {
  if (!wanted_ || what_.specification.transport != "nccl")
    return;
  bool made = false;
  if (nccl_) {
    begun_ = true;
    nccl_->begin();
    made = nccl_->wait_until_made().now == nccl_communicator::phase::ready;
  }
  const auto ranks = what_.target.ranks();
  const tag what{channel::exchange, at.steps, 1};
  said_ = {std::byte{made}};
  heard_.assign(ranks, std::byte{made});
  std::vector<ticket> under_way;
  for (std::uint32_t r = 0; r < ranks; ++r)
    if (r != self_) {
      under_way.push_back(comm.receive(r, what, std::span(heard_).subspan(r, 1)));
      under_way.push_back(comm.send(r, what, said_));
    }
  for (const auto& x : under_way)
    comm.wait(x, exchange_limit);
  if (std::ranges::find(heard_, std::byte{}) != heard_.end())
    return;
  take_over();
  moves_shards_ = true;
}

void rank_transport::end_transfer() {
  if (!std::exchange(moves_shards_, false))
    return;
  nccl_->give_back();
  moves_ = false;
}

void rank_transport::leave() {
  if (nccl_)
    nccl_->leave();
}

void rank_transport::note_end() {
  if (std::exchange(moves_, false))
    options_.nccl.slot->breaks.note_break(nccl_->state().problem);
}

bool rank_transport::begin_step() {
  if (!nccl_)
    return false;
  if (steps_++ > 0 && !std::exchange(begun_, true))
    nccl_->begin();
  if (!std::exchange(agreed_, false))
    return false;
  take_over();
  return true;
}

bool rank_transport::is_ready() const {
  return nccl_ && begun_ && nccl_->state().now == nccl_communicator::phase::ready;
}

transport_state rank_transport::state() const {
  transport_state result{"tcp", options_.on ? options_.on->facts().name : "cpu", reason_};
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

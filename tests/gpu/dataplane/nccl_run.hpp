#pragma once

// A participant of tests over NCCL's double, with a device whose compute stream works late.

#include "tests/gpu/dataplane/data_plane_fixture.hpp"
#include "tests/gpu/dataplane/nccl_ends.hpp"
#include "tests/support/fake_device.hpp"

#include <deque>
#include <utility>

namespace parcae::testing {

class nccl_member {
public:
  nccl_member(cluster& ports, std::uint32_t rank, std::shared_ptr<nccl_slot> own,
              std::shared_ptr<nccl_allowance> counted) :
      slot(std::move(own)),
      ports_(ports), rank_(rank), allowed_(std::move(counted)) {}

  /// Returns when all connections stand. NCCL's communicator is begun.
  void connect() {
    prepare_to_begin(static_cast<std::uint32_t>(ports_.ports.size()));
    comm->begin();
  }

  /// The same, but it is not begun, and is to be one of the first so many participants.
  void prepare_to_begin(std::uint32_t among) {
    auto few = ports_.plan;
    few.target.participants.resize(among);
    auto below = ports_.ports[rank_]->connect(ports_.plan, ports_.slot(rank_), patience, ports_.never);
    auto notes = ports_.ports[rank_]->connect(few, ports_.slot(rank_), patience, ports_.never, purpose::order);
    below_ = below.get();
    notes_ = notes.get();
    comm = make_nccl_communicator(make_staged_communicator(std::move(below), slot->on), std::move(notes), names_of(few),
                                  slot, allowed_);
  }

  /// Its process is gone: what it is connected by closes. To be called while `comm` is there.
  void die() {
    notes_->abort();
    below_->abort();
  }

  /// A message whose bytes follow from its tag and its ends; what is sent is written by the compute stream.
  ticket post(std::uint64_t step, std::uint32_t peer, bool sends, std::uint32_t index, std::size_t bytes) {
    auto& x = open_.emplace_back();
    x.device = slot->on.allocate(bytes);
    x.pinned = slot->on.allocate_pinned(bytes);
    x.bytes = bytes;
    x.expected = random_bytes(bytes, ((step * 16 + (sends ? rank_ : peer)) * 16 + (sends ? peer : rank_)) * 64 + index);
    x.receives = !sends;
    const tag what{channel::shard, step, index};
    if (!sends)
      return comm->receive(peer, what, memory_view(std::span(x.device.get(), bytes), &slot->on));
    std::ranges::copy(x.expected, x.pinned.get());
    slot->on.compute().copy(x.device.get(), x.pinned.get(), bytes);
    return comm->send(peer, what, const_memory_view(std::span<const std::byte>(x.device.get(), bytes), &slot->on));
  }

  /// All that was posted was waited for. Throws communication_error if it is not worth anything; else compares it.
  void compare(const std::atomic<bool>& cancelled) {
    auto& compute = slot->on.compute();
    for (auto& x : open_)
      if (x.receives)
        compute.copy(x.pinned.get(), x.device.get(), x.bytes);
    const auto done = compute.record();
    while (!done->wait(10ms))
      if (cancelled)
        throw communication_error("cancelled");
    comm->check();
    for (auto& x : open_) {
      const bool right = !x.receives || std::ranges::equal(x.expected, std::span(x.pinned.get(), x.bytes));
      EXPECT_TRUE(right);
    }
    open_.clear();
  }

  /// Some messages with a peer, each way.
  void exchange(std::uint64_t step, std::uint32_t peer, std::uint32_t count, std::size_t bytes) {
    std::vector<ticket> tickets;
    for (std::uint32_t i = 0; i < count; ++i) {
      tickets.push_back(post(step, peer, true, i, bytes));
      tickets.push_back(post(step, peer, false, i, bytes));
    }
    for (const auto& x : tickets)
      comm->wait(x, patience);
    const std::atomic<bool> never = false;
    compare(never);
  }

  const std::shared_ptr<nccl_slot> slot;

private:
  struct message {
    device_memory device, pinned;
    std::size_t bytes = 0;
    std::vector<std::byte> expected;
    bool receives = false;
  };

  cluster& ports_;
  const std::uint32_t rank_;
  const std::shared_ptr<nccl_allowance> allowed_;
  communicator *below_ = nullptr, *notes_ = nullptr;
  std::deque<message> open_; ///< until nobody touches their memory

public:
  std::unique_ptr<nccl_communicator> comm; ///< goes before what it moves
};

} // namespace parcae::testing

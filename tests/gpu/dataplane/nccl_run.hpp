#pragma once

// A participant of tests over NCCL's double, with a device whose compute stream works late.

#include "gpu/dataplane/nccl_communicator.hpp"
#include "gpu/dataplane/staged_communicator.hpp"
#include "tests/gpu/dataplane/data_plane_fixture.hpp"
#include "tests/support/fake_device.hpp"
#include "tests/support/nccl_double.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <utility>

namespace parcae::rig {

class nccl_member {
public:
  nccl_member(cluster& ports, std::uint32_t rank, std::shared_ptr<nccl_slot> own) :
      slot(std::move(own)), ports_(ports), rank_(rank) {}

  /// One that must not get stuck.
  nccl_member(cluster& ports, std::uint32_t rank, nccl_double& world) :
      nccl_member(ports, rank,
                  std::make_shared<nccl_slot>(late_fake_device(rank), world.library(rank, late_fake_device(rank)),
                                              [](const std::string& problem) { ADD_FAILURE() << problem; })) {}

  /// Returns when all connections stand. NCCL's communicator is begun.
  void connect() {
    prepare_to_begin(static_cast<std::uint32_t>(ports_.ports.size()));
    comm->begin();
  }

  /// The same, but it is not begun, and is to be one of the first so many participants.
  void prepare_to_begin(std::uint32_t among) {
    nccl_ranks ranks{among, {}};
    for (std::uint32_t peer = 0; peer < among; ++peer)
      if (peer != rank_)
        ranks.peers.push_back(peer);
    auto below = ports_.ports[rank_]->connect(ports_.plan, ports_.slot(rank_), patience, ports_.never);
    below_ = below.get();
    comm = make_nccl_communicator(make_staged_communicator(std::move(below), slot->on), std::move(ranks), slot);
  }

  /// Returns when it is made, or has failed.
  nccl_communicator::report made() {
    eventually([&] { return comm->state().now != nccl_communicator::phase::making; });
    return comm->state();
  }

  /// Its process is gone: what it is connected by closes. To be called while `comm` is there.
  void die() { below_->abort(); }

  /// A message whose bytes follow from its tag and its ends; what is sent is written by the compute stream. It is to be
  /// given.
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

  /// The same, given alone.
  ticket post_and_give(std::uint64_t step, std::uint32_t peer, bool sends, std::uint32_t index, std::size_t bytes) {
    auto x = post(step, peer, sends, index, bytes);
    comm->give({&x, 1});
    return x;
  }

  /// Some messages with a peer, each way.
  void exchange(std::uint64_t step, std::uint32_t peer, std::uint32_t count, std::size_t bytes) {
    std::vector<ticket> tickets;
    for (std::uint32_t i = 0; i < count; ++i) {
      tickets.push_back(post(step, peer, true, i, bytes));
      tickets.push_back(post(step, peer, false, i, bytes));
    }
    comm->give(tickets);
    for (const auto& x : tickets)
      comm->wait(x, patience);
    compare(ports_.never);
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
  communicator* below_ = nullptr;
  std::deque<message> open_; ///< until nobody touches their memory

public:
  std::unique_ptr<nccl_communicator> comm; ///< goes before what it moves
};

} // namespace parcae::rig

#pragma once

// A communicator for tests that give it memory of the host: each message goes from memory of a fake device to memory of
// another.

#include "gpu/dataplane/communicator.hpp"
#include "tests/support/fake_device.hpp"

#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

namespace parcae::rig {

class device_ends final : public communicator {
public:
  device_ends(std::unique_ptr<communicator> below, device& on) : on_(on), below_(std::move(below)) {}

  std::uint32_t self() const override { return below_->self(); }
  std::uint32_t size() const override { return below_->size(); }

  ticket send(std::uint32_t peer, tag what, const_memory_view x) override {
    const auto m = hold({});
    m->memory = on_.allocate(x.bytes.size());
    if (!x.bytes.empty())
      std::memcpy(readable(m->memory.get()), x.bytes.data(), x.bytes.size());
    m->under_way =
        below_->send(peer, what, const_memory_view(std::span<const std::byte>(m->memory.get(), x.bytes.size()), &on_));
    return m;
  }

  ticket receive(std::uint32_t peer, tag what, memory_view x) override {
    const auto m = hold(x.bytes);
    m->memory = on_.allocate(x.bytes.size());
    m->under_way = below_->receive(peer, what, memory_view(std::span(m->memory.get(), x.bytes.size()), &on_));
    return m;
  }

  void wait(const ticket& t, std::chrono::milliseconds limit) override {
    const auto& m = static_cast<message&>(*t);
    below_->wait(m.under_way, limit);
    if (!m.to.empty())
      std::memcpy(m.to.data(), readable(m.memory.get()), m.to.size());
  }

  bool done(const ticket& t) override { return below_->done(static_cast<message&>(*t).under_way); }
  void abort() noexcept override { below_->abort(); }

private:
  struct message : transmission {
    std::span<std::byte> to; ///< empty: it is sent
    device_memory memory;
    ticket under_way;
  };

  std::shared_ptr<message> hold(std::span<std::byte> to) {
    auto x = std::make_shared<message>();
    x->to = to;
    const std::lock_guard held(mutex_);
    held_.push_back(x);
    return x;
  }

  device& on_;
  std::mutex mutex_;
  std::vector<ticket> held_; ///< until nobody touches their memory
  const std::unique_ptr<communicator> below_;
};

} // namespace parcae::rig

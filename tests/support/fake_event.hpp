#pragma once

// Events of fake devices, and calls that do not return for a while; of fake_device.cpp.

#include "gpu/device/device.hpp"
#include "protocols/base/locks.hpp"
#include "tests/support/fake_device.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>

namespace parcae {

/// Where calls of a device stand still, for stuck_calls. Any thread.
class standstill {
public:
  void pass(device_call x) {
    lock held(mutex_);
    if (!closed_ || x != what_)
      return;
    ++there_;
    changed_.notify_all();
    while (closed_)
      held.wait(changed_);
    --there_;
  }

  void close(device_call x) {
    const lock held(mutex_);
    what_ = x;
    closed_ = true;
  }
  void open() {
    const lock held(mutex_);
    closed_ = false;
    changed_.notify_all();
  }
  std::uint32_t there() {
    const lock held(mutex_);
    return there_;
  }

private:
  mutex mutex_;
  std::condition_variable changed_;
  bool closed_ GUARDED_BY(mutex_) = false;
  device_call what_ GUARDED_BY(mutex_) = device_call::look;
  std::uint32_t there_ GUARDED_BY(mutex_) = 0;
};

class fake_event final : public event, public std::enable_shared_from_this<fake_event> {
public:
  fake_event(standstill& at, bool timed) : standstill_(at), timed_(timed) {}
  ~fake_event() override {
    if (!of_device)
      standstill_.pass(device_call::end);
  }

  bool done() const override { return wait(std::chrono::milliseconds(0)); }
  bool wait(std::chrono::milliseconds limit) const override {
    standstill_.pass(device_call::look);
    return has_happened(limit);
  }
  double ms_since(const event& before) const override {
    return std::chrono::duration<double, std::milli>(at() - dynamic_cast<const fake_event&>(before).at()).count();
  }

  /// As the device itself sees it.
  bool has_happened(std::chrono::milliseconds limit) const {
    lock held(mutex_);
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!happened_ && std::chrono::steady_clock::now() < end)
      held.wait_until(changed_, end);
    return happened_;
  }
  void happen() {
    const lock held(mutex_);
    happened_ = true;
    at_ = std::chrono::steady_clock::now();
    changed_.notify_all();
  }

  /// The calling thread does a stream's work: what it does is no call.
  static inline thread_local bool of_device = false;

private:
  std::chrono::steady_clock::time_point at() const {
    if (!timed_)
      throw device_error("the time of an event that was recorded without");
    const lock held(mutex_);
    return happened_ ? at_ : throw device_error("the time of an event that has not happened");
  }

  standstill& standstill_;
  const bool timed_;
  mutable mutex mutex_;
  mutable std::condition_variable changed_;
  bool happened_ GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point at_ GUARDED_BY(mutex_);
};

} // namespace parcae

#pragma once

// Work of a device that nobody hears is done.

#include "tests/support/borrowed_kernels.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

namespace parcae {

/// An event that the rest of the program hears of only once a gate is open.
class hidden_event final : public event {
public:
  hidden_event(std::shared_ptr<event> below, const std::atomic<bool>& open) : below_(std::move(below)), open_(open) {}

  bool done() const override { return open_ && below_->done(); }
  bool wait(std::chrono::milliseconds limit) const override {
    for (const auto end = std::chrono::steady_clock::now() + limit; !open_;
         std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      if (std::chrono::steady_clock::now() >= end)
        return false;
    return below_->wait(limit);
  }
  double ms_since(const event& before) const override {
    return below_->ms_since(*dynamic_cast<const hidden_event&>(before).below_);
  }

private:
  const std::shared_ptr<event> below_;
  const std::atomic<bool>& open_;
};

/// Gives work on, and says nothing of its end.
class unheard_stream : public stream {
public:
  explicit unheard_stream(stream& below) : below_(below) {}

  std::shared_ptr<event> record() override { return std::make_shared<hidden_event>(below_.record(), open); }
  void wait_for(const event&) override { throw std::logic_error("nothing here comes from elsewhere"); }
  void copy(void* to, const void* from, std::size_t bytes) override { below_.copy(to, from, bytes); }
  void copy_from(void* to, const device& of, const void* from, std::size_t bytes) override {
    below_.copy_from(to, of, from, bytes);
  }

  std::atomic<bool> open = false;

protected:
  stream& on() const { return below_; }
  template <class Work>
  void compute(const char*, const Work& f) const {
    f();
  }
  template <class Value>
  Value* at(Value* x) const {
    return x;
  }

private:
  stream& below_;
};
using slow_stream = borrowed_kernels<unheard_stream>;

} // namespace parcae

#pragma once

// Work of a device that nobody hears is done.

#include "gpu/device/device.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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
class slow_stream final : public stream {
public:
  explicit slow_stream(stream& below) : below_(below) {}

  std::shared_ptr<event> record() override { return std::make_shared<hidden_event>(below_.record(), open); }
  void wait_for(const event&) override { throw std::logic_error("nothing here comes from elsewhere"); }
  void copy(void* to, const void* from, std::size_t bytes) override { below_.copy(to, from, bytes); }
  void copy_from(void* to, const device& of, const void* from, std::size_t bytes) override {
    below_.copy_from(to, of, from, bytes);
  }
  void add_values(float* to, const float* left, const float* right, std::size_t n) override {
    below_.add_values(to, left, right, n);
  }
  void add_values(float* to, const float* left, const bfloat16* right, std::size_t n) override {
    below_.add_values(to, left, right, n);
  }
  void round_values(bfloat16* to, const float* from, std::size_t n) override { below_.round_values(to, from, n); }
  void add_in_order(const addition_order& order, float* to, std::span<const float* const> sums,
                    std::size_t n) override {
    below_.add_in_order(order, to, sums, n);
  }
  void step_adamw(const adamw_factors& x, float* parameters, float* first, float* second, const float* gradient,
                  bfloat16* copy, std::size_t n) override {
    below_.step_adamw(x, parameters, first, second, gradient, copy, n);
  }
  void step_sgd(const sgd_factors& x, float* parameters, float* moment, const float* gradient, bfloat16* copy,
                std::size_t n) override {
    below_.step_sgd(x, parameters, moment, gradient, copy, n);
  }
  void squared_norm(const float* x, std::size_t n, double* to) override { below_.squared_norm(x, n, to); }
  void draw_normal(float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first) override {
    below_.draw_normal(to, n, seed, scale, first);
  }
  void draw_uniform(float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first) override {
    below_.draw_uniform(to, n, seed, scale, first);
  }
  void drop_values(float* to, const float* from, std::size_t n, const dropout_mask& mask,
                   std::uint64_t first) override {
    below_.drop_values(to, from, n, mask, first);
  }

  std::atomic<bool> open = false;

private:
  stream& below_;
};

} // namespace parcae

// Copies through the ring, on a device whose work is late: nothing is there until the event says so.

#include "gpu/device/host_copies.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace parcae {
namespace {

using namespace std::chrono_literals;

/// What is given to the device is done by a thread of its own, later.
class late_work {
public:
  late_work() : thread_([this] { run(); }) {}
  ~late_work() {
    {
      const std::lock_guard held(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  std::size_t put(std::function<void()> f) {
    const std::lock_guard held(mutex_);
    queue_.push_back(std::move(f));
    changed_.notify_all();
    return ++given_;
  }
  bool wait(std::size_t until, std::chrono::milliseconds limit) {
    std::unique_lock held(mutex_);
    const auto there = changed_.wait_for(held, limit, [&] { return done_ >= until || broken_; });
    if (broken_)
      throw device_error("an illegal memory access");
    return there;
  }
  void hold(bool x) {
    const std::lock_guard held(mutex_);
    held_ = x;
    changed_.notify_all();
  }
  void break_down() {
    const std::lock_guard held(mutex_);
    broken_ = true;
    changed_.notify_all();
  }

private:
  void run() {
    std::unique_lock held(mutex_);
    for (;;) {
      changed_.wait(held, [&] { return ended_ || (!queue_.empty() && !held_ && !broken_); });
      if (ended_)
        return;
      auto f = std::move(queue_.front());
      queue_.pop_front();
      held.unlock();
      std::this_thread::yield();
      f();
      held.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::size_t given_ = 0, done_ = 0;
  bool ended_ = false, held_ = false, broken_ = false;
  std::thread thread_;
};

class late_event final : public event {
public:
  late_event(late_work& work, std::size_t until) : work_(work), until_(until) {}
  bool done() const override { return work_.wait(until_, 0ms); }
  bool wait(std::chrono::milliseconds limit) const override { return work_.wait(until_, limit); }
  double ms_since(const event&) const override { return 0; }

private:
  late_work& work_;
  std::size_t until_;
};

/// Copies only.
class late_device final : public device {
public:
  class late_stream final : public stream {
  public:
    explicit late_stream(late_work& work) : work_(work) {}
    void copy(void* to, const void* from, std::size_t bytes) override {
      work_.put([=] { std::memcpy(to, from, bytes); });
    }
    std::shared_ptr<event> record() override {
      return std::make_shared<late_event>(work_, work_.put([] {}));
    }
    void wait_for(const event&) override { ++waits; }
    void add_values(float*, const float*, const float*, std::size_t) override {}
    void add_values(float*, const float*, const bfloat16*, std::size_t) override {}
    void round_values(bfloat16*, const float*, std::size_t) override {}
    void add_in_order(const addition_order&, float*, std::span<const float* const>, std::size_t) override {}
    void step_adamw(const adamw_factors&, float*, float*, float*, const float*, bfloat16*, std::size_t) override {}
    void step_sgd(const sgd_factors&, float*, float*, const float*, bfloat16*, std::size_t) override {}
    void squared_norm(const float*, std::size_t, double*) override {}
    void checksum_parts(const std::byte*, std::size_t, std::uint64_t, std::uint64_t*) override {}
    void draw_normal(float*, std::size_t, std::uint64_t, float, std::uint64_t) override {}
    void draw_uniform(float*, std::size_t, std::uint64_t, float, std::uint64_t) override {}
    void drop_values(float*, const float*, std::size_t, const dropout_mask&, std::uint64_t) override {}
    std::atomic<int> waits = 0;

  private:
    late_work& work_;
  };

  const device_facts& facts() const override { return facts_; }
  device_memory allocate(std::size_t bytes) override { return below_->allocate(bytes); }
  device_memory allocate_pinned(std::size_t bytes) override { return below_->allocate(bytes); }
  std::unique_ptr<stream> make_stream() override {
    auto x = std::make_unique<late_stream>(work);
    last = x.get();
    return x;
  }
  stream& compute() override { return below_->compute(); }

  late_work work;
  late_stream* last = nullptr;

private:
  device_facts facts_;
  std::unique_ptr<device> below_ = make_cpu_device({});
};

std::vector<std::byte> any_bytes(std::size_t n, unsigned seed) {
  std::vector<std::byte> result(n);
  std::mt19937 draw(seed);
  for (auto& x : result)
    x = static_cast<std::byte>(draw());
  return result;
}

constexpr host_copies::sizes small{.ring = 4096, .piece = 1024};
constexpr auto soon = 10s;

// given: several at once, of all lengths around pieces and the ring / expected: every byte
TEST(host_copies, carry_every_byte) {
  late_device x;
  host_copies copies(x, small);
  struct one {
    std::vector<std::byte> from, to;
    std::future<void> done;
  };
  std::vector<one> all;
  unsigned seed = 0;
  for (std::size_t n : {0, 1, 1023, 1024, 1025, 4095, 4096, 4097, 100'000})
    for (int twice = 0; twice < 2; ++twice)
      all.push_back({any_bytes(n, ++seed), std::vector<std::byte>(n), {}});
  for (auto& y : all)
    y.done = copies.to_host(y.to, y.from.data(), nullptr);
  for (auto& y : all) {
    ASSERT_EQ(y.done.wait_for(soon), std::future_status::ready);
    y.done.get();
    EXPECT_EQ(y.to, y.from);
  }
}

// given: a device that does nothing for a while / expected: callers wait for nothing; the copy is made after the event
TEST(host_copies, nobody_waits_but_who_wants_to) {
  late_device x;
  host_copies copies(x, small);
  x.work.hold(true);
  const auto from = any_bytes(50'000, 1);
  std::vector<std::byte> to(from.size());
  auto after = std::make_shared<late_event>(x.work, x.work.put([] {}));
  auto done = copies.to_host(to, from.data(), after);
  EXPECT_EQ(done.wait_for(20ms), std::future_status::timeout);
  x.work.hold(false);
  ASSERT_EQ(done.wait_for(soon), std::future_status::ready);
  EXPECT_EQ(to, from);
  EXPECT_EQ(x.last->waits, 1);
}

// given: a device that fails with copies under way / expected: each future says so, and so do later ones
TEST(host_copies, a_failure_reaches_everyone) {
  late_device x;
  host_copies copies(x, small);
  x.work.hold(true);
  const auto from = any_bytes(10'000, 1);
  std::vector<std::byte> a(from.size()), b(from.size()), c(from.size());
  auto first = copies.to_host(a, from.data(), nullptr);
  auto second = copies.to_host(b, from.data(), nullptr);
  x.work.break_down();
  for (auto* y : {&first, &second}) {
    ASSERT_EQ(y->wait_for(soon), std::future_status::ready);
    EXPECT_THROW(y->get(), device_error);
  }
  auto third = copies.to_host(c, from.data(), nullptr);
  ASSERT_EQ(third.wait_for(soon), std::future_status::ready);
  EXPECT_THROW(third.get(), device_error);
}

// given: the end while copies are asked for / expected: each was made whole, or its promise is broken
TEST(host_copies, the_end_leaves_nobody_waiting) {
  late_device x;
  const auto from = any_bytes(3000, 1);
  std::vector<std::vector<std::byte>> to(100, std::vector<std::byte>(from.size()));
  std::vector<std::future<void>> done;
  {
    host_copies copies(x, small);
    for (auto& y : to)
      done.push_back(copies.to_host(y, from.data(), nullptr));
  }
  for (std::size_t i = 0; i < to.size(); ++i) {
    ASSERT_EQ(done[i].wait_for(0s), std::future_status::ready);
    try {
      done[i].get();
      EXPECT_EQ(to[i], from);
    } catch (const std::future_error& e) {
      EXPECT_EQ(e.code(), std::future_errc::broken_promise);
    }
  }
}

} // namespace
} // namespace parcae

// Work is done at once, in the call that gives it.

#include "gpu/device/device.hpp"

#include <cstring>
#include <new>
#include <utility>

namespace parcae {

namespace {

class past_event final : public event {
public:
  bool done() const override { return true; }
  bool wait(std::chrono::milliseconds) const override { return true; }
};

class cpu_stream final : public stream {
public:
  void copy(void* to, const void* from, std::size_t bytes) override { std::memmove(to, from, bytes); }
  std::shared_ptr<event> record() override { return std::make_shared<past_event>(); }
  void wait_for(const event&) override {}

  void add_values(float* to, const float* left, const float* right, std::size_t n) override {
    parcae::add_values(to, left, right, n);
  }
  void add_values(float* to, const float* left, const bfloat16* right, std::size_t n) override {
    parcae::add_values(to, left, right, n);
  }
  void add_in_order(const addition_order& order, float* to, std::span<const float* const> sums,
                    std::size_t n) override {
    parcae::add_in_order(order, to, sums, n);
  }
  void step_adamw(const adamw_factors& x, float* parameters, float* first, float* second, const float* gradient,
                  bfloat16* copy, std::size_t n) override {
    parcae::step_adamw(x, parameters, first, second, gradient, copy, n);
  }
  void step_sgd(const sgd_factors& x, float* parameters, float* moment, const float* gradient, bfloat16* copy,
                std::size_t n) override {
    parcae::step_sgd(x, parameters, moment, gradient, copy, n);
  }
  void squared_norm(const float* x, std::size_t n, double* to) override { *to = parcae::squared_norm(x, n); }
  void checksum_parts(const std::byte* bytes, std::size_t n, std::uint64_t place, std::uint64_t* to) override {
    *to = parcae::checksum_parts({bytes, n}, place);
  }
  void draw_normal(float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first) override {
    parcae::draw_normal(to, n, seed, scale, first);
  }
  void draw_uniform(float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first) override {
    parcae::draw_uniform(to, n, seed, scale, first);
  }
  void drop_values(float* to, const float* from, std::size_t n, const dropout_mask& mask,
                   std::uint64_t first) override {
    parcae::drop_values(to, from, n, mask, first);
  }
};

class cpu_device final : public device {
public:
  explicit cpu_device(device_facts facts) : facts_(std::move(facts)) {}

  const device_facts& facts() const override { return facts_; }
  device_memory allocate(std::size_t bytes) override {
    constexpr std::align_val_t alignment{256};
    auto* memory = static_cast<std::byte*>(::operator new(bytes, alignment, std::nothrow));
    if (!memory)
      throw device_error("no memory for " + std::to_string(bytes) + " bytes");
    return {memory, [=](std::byte* x) { ::operator delete(x, alignment); }};
  }
  device_memory allocate_pinned(std::size_t bytes) override { return allocate(bytes); }
  std::unique_ptr<stream> make_stream() override { return std::make_unique<cpu_stream>(); }

private:
  device_facts facts_;
};

} // namespace

std::unique_ptr<device> make_cpu_device(device_facts facts) {
  return std::make_unique<cpu_device>(std::move(facts));
}

} // namespace parcae

// Work is done at once, in the call that gives it.

#include "gpu/device/device.hpp"

#include <cstring>
#include <new>
#include <utility>
#include <vector>

namespace parcae {

namespace {

class past_event final : public event {
public:
  bool done() const override { return true; }
  bool wait(std::chrono::milliseconds) const override { return true; }
  double ms_since(const event& before) const override {
    return std::chrono::duration<double, std::milli>(at_ - dynamic_cast<const past_event&>(before).at_).count();
  }

private:
  const std::chrono::steady_clock::time_point at_ = std::chrono::steady_clock::now();
};

class cpu_stream final : public stream {
public:
  explicit cpu_stream(const work_sharing& share) : share_(share) {}

  void copy(void* to, const void* from, std::size_t bytes) override { std::memmove(to, from, bytes); }
  void copy_from(void* to, const device&, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  std::shared_ptr<event> record() override { return std::make_shared<past_event>(); }
  void wait_for(const event&) override {}

  void add_values(float* to, const float* left, const float* right, std::size_t n) override {
    share_(n, 1, [&](std::size_t i, std::size_t part) { parcae::add_values(to + i, left + i, right + i, part); });
  }
  void add_values(float* to, const float* left, const bfloat16* right, std::size_t n) override {
    share_(n, 1, [&](std::size_t i, std::size_t part) { parcae::add_values(to + i, left + i, right + i, part); });
  }
  void add_values(bfloat16* to, const bfloat16* left, const bfloat16* right, std::size_t n) override {
    share_(n, 1, [&](std::size_t i, std::size_t part) { parcae::add_values(to + i, left + i, right + i, part); });
  }
  void round_values(bfloat16* to, const float* from, std::size_t n) override {
    share_(n, 1, [&](std::size_t i, std::size_t part) { parcae::round_values(to + i, from + i, part); });
  }
  void widen_values(float* to, const bfloat16* from, std::size_t n) override {
    share_(n, 1, [&](std::size_t i, std::size_t part) { parcae::widen_values(to + i, from + i, part); });
  }
  void add_in_order(const addition_order& order, float* to, std::span<const float* const> sums,
                    std::size_t n) override {
    parcae::add_in_order(order, to, sums, n);
  }
  void add_in_order(const addition_order& order, bfloat16* to, std::span<const bfloat16* const> sums,
                    std::size_t n) override {
    parcae::add_in_order(order, to, sums, n);
  }
  void step_adamw(const adamw_factors& x, float* parameters, float* first, float* second, const float* gradient,
                  bfloat16* copy, std::size_t n) override {
    share_(n, 1, [&](std::size_t i, std::size_t part) {
      parcae::step_adamw(x, parameters + i, first + i, second + i, gradient + i, from(copy, i), part);
    });
  }
  void step_sgd(const sgd_factors& x, float* parameters, float* moment, const float* gradient, bfloat16* copy,
                std::size_t n) override {
    share_(n, 1, [&](std::size_t i, std::size_t part) {
      parcae::step_sgd(x, parameters + i, from(moment, i), gradient + i, from(copy, i), part);
    });
  }
  void squared_norm(const float* x, std::size_t n, double* to) override {
    std::vector<double> chunks((n + sum_chunk - 1) / sum_chunk);
    share_(n, sum_chunk, [&](std::size_t i, std::size_t part) { sum_squares(x + i, part, &chunks[i / sum_chunk]); });
    *to = sum_of(chunks);
  }
  void draw_normal(float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first) override {
    share_(n, 4, [&](std::size_t i, std::size_t part) { parcae::draw_normal(to + i, part, seed, scale, first + i); });
  }
  void draw_uniform(float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first) override {
    share_(n, 4, [&](std::size_t i, std::size_t part) { parcae::draw_uniform(to + i, part, seed, scale, first + i); });
  }
  void drop_values(float* to, const float* values, std::size_t n, const dropout_mask& mask,
                   std::uint64_t first) override {
    share_(n, 4,
           [&](std::size_t i, std::size_t part) { parcae::drop_values(to + i, values + i, part, mask, first + i); });
  }
  void keep_rows(const attention_shape& shape, const cached_rows& rows, const float* keys, const float* values,
                 std::size_t stride) override {
    parcae::keep_rows(shape, rows, keys, values, stride);
  }
  void attend_rows(const attention_shape& shape, const cached_rows& rows, float scale, const float* queries,
                   std::size_t stride, float* to) override {
    const auto of_row = shape.heads * shape.size * rows.most_blocks * block_positions; // products of the longest
    share_(rows.rows * of_row, of_row, [&](std::size_t i, std::size_t part) {
      const auto first = i / of_row;
      parcae::attend_rows(shape, part_of(rows, first, part / of_row), scale, queries + first * stride, stride,
                          to + first * shape.heads * shape.size);
    });
  }

private:
  /// What may be left out.
  template <class Value>
  static Value* from(Value* x, std::size_t i) {
    return x ? x + i : nullptr;
  }

  const work_sharing& share_;
};

class cpu_device final : public device {
public:
  cpu_device(device_facts facts, work_sharing share) : facts_(std::move(facts)), share_(std::move(share)) {
    facts_.host = true;
  }

  const device_facts& facts() const override { return facts_; }
  device_memory allocate(std::size_t bytes) override {
    constexpr std::align_val_t alignment{256};
    auto* memory = static_cast<std::byte*>(::operator new(bytes, alignment, std::nothrow));
    if (!memory)
      throw device_error("no memory for " + std::to_string(bytes) + " bytes");
    return {memory, [=](std::byte* x) { ::operator delete(x, alignment); }};
  }
  device_memory allocate_pinned(std::size_t bytes) override { return allocate(bytes); }
  std::unique_ptr<stream> make_stream() override { return std::make_unique<cpu_stream>(share_); }
  stream& compute() override { return compute_; }

private:
  device_facts facts_;
  const work_sharing share_;
  cpu_stream compute_{share_};
};

} // namespace

std::unique_ptr<device> make_cpu_device(device_facts facts, work_sharing share) {
  if (!share)
    share = [](std::size_t n, std::size_t, const auto& f) { f(0, n); };
  return std::make_unique<cpu_device>(std::move(facts), std::move(share));
}

} // namespace parcae

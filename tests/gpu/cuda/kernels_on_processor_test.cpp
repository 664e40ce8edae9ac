// The kernels of kernels.cu, thread by thread on the processor (processor_launch.hpp), against those of gpu/device: at
// all lengths and places in memory where packs of elements begin, end, or are none. A pack at a wrong place ends the
// program, as it would a GPU's.

#include "gpu/cuda/kernels.hpp"
#include "gpu/device/kernels.hpp"
#include "gpu/device/optimizer.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

namespace parcae {
namespace {

constexpr std::size_t room = 9000;

/// Memory with something in it, the same in each one that is made with the same seed.
struct arrays {
  explicit arrays(std::uint64_t seed) : floats(5, std::vector<float>(room)), halves(4, std::vector<bfloat16>(room)) {
    for (auto& x : floats)
      draw_normal(x.data(), room, seed++, 1);
    for (auto& x : floats[2]) // a second moment
      x *= x;
    for (std::size_t i = 0; i < halves.size(); ++i)
      round_values(halves[i].data(), floats[4 - i].data(), room);
  }
  bool operator==(const arrays& other) const {
    for (std::size_t i = 0; i < floats.size(); ++i)
      if (std::memcmp(floats[i].data(), other.floats[i].data(), room * sizeof(float)) != 0)
        return false;
    return halves == other.halves;
  }

  std::vector<std::vector<float>> floats;
  std::vector<std::vector<bfloat16>> halves;
};

/// What a kernel gets: arrays that begin `at` elements behind a multiple of 16 bytes, the first one `first`, and first
/// and others of bfloat16.
struct places {
  places(arrays& x, std::size_t first, std::size_t at) :
      to(x.floats[0].data() + first), a(x.floats[1].data() + at), b(x.floats[2].data() + at),
      c(x.floats[3].data() + at), half(x.halves[0].data() + at), to_half(x.halves[1].data() + first),
      a_half(x.halves[2].data() + at), b_half(x.halves[3].data() + at) {}
  float *to, *a, *b, *c;
  bfloat16 *half, *to_half, *a_half, *b_half;
};

/// Both change the same memory in the same way.
void compare(const std::function<void(const places&, std::size_t n)>& processors,
             const std::function<void(const places&, std::size_t n)>& gpus) {
  for (const std::size_t n : {0, 1, 3, 4, 5, 8, 255, 1023, 4099})
    for (const std::size_t first : {0, 1, 4})
      for (const std::size_t at : {0, 2, 3, 8}) {
        arrays expected(n), found(n);
        processors({expected, first, at}, n);
        gpus({found, first, at}, n);
        EXPECT_TRUE(found == expected) << n << " elements, " << first << ", " << at;
      }
}

TEST(kernels_on_processor, sums) {
  compare([](const auto& x, auto n) { add_values(x.to, x.a, x.b, n); },
          [](const auto& x, auto n) { cuda::add_values(nullptr, x.to, x.a, x.b, n); });
  compare([](const auto& x, auto n) { add_values(x.to, x.to, x.half, n); },
          [](const auto& x, auto n) { cuda::add_values(nullptr, x.to, x.to, x.half, n); });
  compare([](const auto& x, auto n) { round_values(x.half, x.to, n); },
          [](const auto& x, auto n) { cuda::round_values(nullptr, x.half, x.to, n); });
  compare([](const auto& x, auto n) { add_values(x.to_half, x.half, x.a_half, n); },
          [](const auto& x, auto n) { cuda::add_values(nullptr, x.to_half, x.half, x.a_half, n); });
  compare([](const auto& x, auto n) { widen_values(x.to, x.half, n); },
          [](const auto& x, auto n) { cuda::widen_values(nullptr, x.to, x.half, n); });
}

/// Of a tree; `deep`: all are there before the first two are added.
addition_order order_of(std::size_t count, bool deep) {
  std::vector<std::uint8_t> joins;
  for (std::size_t i = 1; i <= count; ++i)
    joins.push_back(static_cast<std::uint8_t>(deep ? 0 : __builtin_ctzll(i)));
  std::size_t left = deep ? count : static_cast<std::size_t>(__builtin_popcountll(count));
  joins.back() = static_cast<std::uint8_t>(joins.back() + left - 1);
  return addition_order(joins);
}

TEST(kernels_on_processor, sums_in_an_order) {
  for (const bool deep : {false, true})
    for (const std::size_t count : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 100}) {
      if (deep && count > cuda::max_depth)
        continue;
      const auto order = order_of(count, deep);
      const auto of_three = [&]<class Number>(Number* a, Number* b, Number* c) {
        std::vector<const Number*> result;
        for (std::size_t i = 0; i < count; ++i)
          result.push_back((i % 3 == 0 ? a : i % 3 == 1 ? b : c) + 4 * i);
        return result;
      };
      const auto sums = [&](const places& x) { return of_three(x.a, x.b, x.c); };
      compare([&](const auto& x, auto n) { add_in_order(order, x.to, sums(x), n); },
              [&](const auto& x, auto n) { cuda::add_in_order(nullptr, order, x.to, sums(x), n); });
      const auto halves = [&](const places& x) { return of_three(x.half, x.a_half, x.b_half); };
      compare([&](const auto& x, auto n) { add_in_order(order, x.to_half, halves(x), n); },
              [&](const auto& x, auto n) { cuda::add_in_order(nullptr, order, x.to_half, halves(x), n); });
    }
}

TEST(kernels_on_processor, optimizers) {
  const adamw_factors adamw{0.5f, 0.99f, 0.9f, 0.1f, 0.99f, 0.01f, 0.1f, 1.5f, 1e-8f};
  const sgd_factors sgd{0.5f, 0.01f, 0.9f, 0.1f};
  for (const bool copy : {false, true}) {
    const auto half = [=](const places& x) { return copy ? x.half : nullptr; };
    compare([&](const auto& x, auto n) { step_adamw(adamw, x.to, x.a, x.b, x.c, half(x), n); },
            [&](const auto& x, auto n) { cuda::step_adamw(nullptr, adamw, x.to, x.a, x.b, x.c, half(x), n); });
    for (const bool momentum : {false, true}) {
      const auto moment = [=](const places& x) { return momentum ? x.a : nullptr; };
      compare([&](const auto& x, auto n) { step_sgd(sgd, x.to, moment(x), x.c, half(x), n); },
              [&](const auto& x, auto n) { cuda::step_sgd(nullptr, sgd, x.to, moment(x), x.c, half(x), n); });
    }
  }
}

TEST(kernels_on_processor, random_numbers) {
  compare([](const auto& x, auto n) { draw_normal(x.to, n, 7, 0.5f, 12); },
          [](const auto& x, auto n) { cuda::draw_normal(nullptr, x.to, n, 7, 0.5f, 12); });
  compare([](const auto& x, auto n) { draw_uniform(x.to, n, 7, 0.5f, 12); },
          [](const auto& x, auto n) { cuda::draw_uniform(nullptr, x.to, n, 7, 0.5f, 12); });
  const auto mask = mask_of(3, 0.1);
  compare([&](const auto& x, auto n) { drop_values(x.to, x.a, n, mask, 12); },
          [&](const auto& x, auto n) { cuda::drop_values(nullptr, x.to, x.a, n, mask, 12); });
}

TEST(kernels_on_processor, kept_rows) {
  const attention_shape shape{3, 3, 5};
  const std::int32_t blocks[] = {2, 0, 1, 3};
  const std::int64_t positions[] = {17, 40};
  const auto rows = [&](const places& x) {
    return cached_rows{2, x.to, shape.block_values() + 1, blocks, 2, positions};
  };
  compare([&](const auto& x, auto) { keep_rows(shape, rows(x), x.a, x.b, 16); },
          [&](const auto& x, auto) { cuda::keep_rows(nullptr, shape, rows(x), x.a, x.b, 16); });
}

} // namespace
} // namespace parcae

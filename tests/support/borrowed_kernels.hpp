#pragma once

#include "gpu/device/device.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace parcae {

/// A stream whose kernels are another one's: `Below` has that (`on()`), where in its memory something is (`at(x)`), and
/// when the work is done (`compute(name, f)`).
template <class Below>
class borrowed_kernels : public Below {
public:
  using Below::Below;

  void add_values(float* to, const float* left, const float* right, std::size_t n) override {
    compute("add_values", [=, this] { on().add_values(at(to), at(left), at(right), n); });
  }
  void add_values(float* to, const float* left, const bfloat16* right, std::size_t n) override {
    compute("add_values", [=, this] { on().add_values(at(to), at(left), at(right), n); });
  }
  void add_values(bfloat16* to, const bfloat16* left, const bfloat16* right, std::size_t n) override {
    compute("add_values", [=, this] { on().add_values(at(to), at(left), at(right), n); });
  }
  void round_values(bfloat16* to, const float* from, std::size_t n) override {
    compute("round_values", [=, this] { on().round_values(at(to), at(from), n); });
  }
  void widen_values(float* to, const bfloat16* from, std::size_t n) override {
    compute("widen_values", [=, this] { on().widen_values(at(to), at(from), n); });
  }
  void add_in_order(const addition_order& order, float* to, std::span<const float* const> sums,
                    std::size_t n) override {
    add_all_in_order(order, to, sums, n);
  }
  void add_in_order(const addition_order& order, bfloat16* to, std::span<const bfloat16* const> sums,
                    std::size_t n) override {
    add_all_in_order(order, to, sums, n);
  }
  void step_adamw(const adamw_factors& x, float* parameters, float* first, float* second, const float* gradient,
                  bfloat16* copy, std::size_t n) override {
    compute("step_adamw",
            [=, this] { on().step_adamw(x, at(parameters), at(first), at(second), at(gradient), at(copy), n); });
  }
  void step_sgd(const sgd_factors& x, float* parameters, float* moment, const float* gradient, bfloat16* copy,
                std::size_t n) override {
    compute("step_sgd", [=, this] { on().step_sgd(x, at(parameters), at(moment), at(gradient), at(copy), n); });
  }
  void squared_norm(const float* x, std::size_t n, double* to) override {
    compute("squared_norm", [=, this] { on().squared_norm(at(x), n, at(to)); });
  }
  void draw_normal(float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first) override {
    compute("draw_normal", [=, this] { on().draw_normal(at(to), n, seed, scale, first); });
  }
  void draw_uniform(float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first) override {
    compute("draw_uniform", [=, this] { on().draw_uniform(at(to), n, seed, scale, first); });
  }
  void drop_values(float* to, const float* from, std::size_t n, const dropout_mask& mask,
                   std::uint64_t first) override {
    compute("drop_values", [=, this] { on().drop_values(at(to), at(from), n, mask, first); });
  }
  void keep_rows(const attention_shape& shape, const cached_rows& rows, const float* keys, const float* values,
                 std::size_t stride) override {
    compute("keep_rows", [=, this] { on().keep_rows(shape, there(rows), at(keys), at(values), stride); });
  }
  void attend_rows(const attention_shape& shape, const cached_rows& rows, float scale, const float* queries,
                   std::size_t stride, float* to) override {
    compute("attend_rows", [=, this] { on().attend_rows(shape, there(rows), scale, at(queries), stride, at(to)); });
  }

protected:
  using Below::at;
  using Below::compute;
  using Below::on;

private:
  cached_rows there(cached_rows x) {
    x.pool = at(x.pool);
    x.blocks = at(x.blocks);
    x.positions = at(x.positions);
    return x;
  }

  template <class Number>
  void add_all_in_order(const addition_order& order, Number* to, std::span<const Number* const> sums, std::size_t n) {
    std::vector<const Number*> all;
    for (const auto* x : sums)
      all.push_back(at(x));
    compute("add_in_order", [=, this] { on().add_in_order(order, at(to), all, n); });
  }
};

} // namespace parcae

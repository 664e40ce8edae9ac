// The optimizer step on flat buffers, against the published formulas in double precision and against LibTorch's own
// classes.

#include "gpu/layers/optimizer.hpp"
#include "protocols/model/model_description.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <gtest/gtest.h>

#include <cmath>

namespace parcae {
namespace {

at::Tensor random_values(std::int64_t n, std::uint64_t seed) {
  return at::randn({n}, at::detail::createCPUGenerator(seed), at::kFloat);
}

std::vector<at::Tensor> zero_moments(const optimizer_specification& x, std::int64_t n) {
  std::vector<at::Tensor> result;
  for (std::uint32_t i = 0; i < moments_of(x); ++i)
    result.push_back(at::zeros({n}));
  return result;
}

/// AdamW (Loshchilov and Hutter, algorithm 2) and SGD with momentum as PyTorch documents them, one value at a time.
struct reference {
  double value, first = 0, second = 0;

  void step(const optimizer_specification& x, double gradient, std::uint64_t steps, double rate) {
    if (x.kind == "adamw") {
      value -= rate * x.weight_decay * value;
      first = x.beta1 * first + (1 - x.beta1) * gradient;
      second = x.beta2 * second + (1 - x.beta2) * gradient * gradient;
      double t = static_cast<double>(steps + 1);
      double mean = first / (1 - std::pow(x.beta1, t)), square = second / (1 - std::pow(x.beta2, t));
      value -= rate * mean / (std::sqrt(square) + x.epsilon);
    } else {
      gradient += x.weight_decay * value;
      first = steps == 0 ? gradient : x.momentum * first + gradient;
      value -= rate * (x.momentum == 0 ? gradient : first);
    }
  }
};

std::vector<optimizer_specification> optimizers() {
  return {
      {.kind = "adamw"},
      {.kind = "adamw", .weight_decay = 0.1},
      {.kind = "adamw", .weight_decay = 0.01, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6},
      {.kind = "sgd"},
      {.kind = "sgd", .momentum = 0},
      {.kind = "sgd", .weight_decay = 0.1, .momentum = 0.5},
  };
}

class optimizer_test : public testing::Test {
protected:
  void SetUp() override { at::set_num_threads(1); }
};

TEST_F(optimizer_test, agrees_with_the_formulas) {
  for (const auto& x : optimizers())
    for (std::int64_t n : {1, 15, 16, 17, 100}) {
      SCOPED_TRACE(x.kind + " of " + std::to_string(n));
      auto parameters = random_values(n, 1);
      auto moments = zero_moments(x, n);
      std::vector<reference> expected;
      for (std::int64_t i = 0; i < n; ++i)
        expected.push_back({parameters[i].item<double>()});
      for (std::uint64_t step = 0; step < 20; ++step) {
        double rate = 0.01 * static_cast<double>(step + 1);
        auto gradient = random_values(n, 100 + step);
        apply_optimizer(x, parameters, moments, gradient, step, rate);
        for (std::int64_t i = 0; i < n; ++i)
          expected[i].step(x, gradient[i].item<double>(), step, rate);
      }
      for (std::int64_t i = 0; i < n; ++i) {
        // relative to the size of parameters and moments, which is 1; 20 roundings of float
        EXPECT_NEAR(parameters[i].item<double>(), expected[i].value, 2e-6 * std::max(1.0, std::abs(expected[i].value)));
        if (x.kind == "adamw" || x.momentum != 0) {
          EXPECT_NEAR(moments[0][i].item<double>(), expected[i].first,
                      1e-6 * std::max(1.0, std::abs(expected[i].first)));
        }
        if (x.kind == "adamw") {
          EXPECT_NEAR(moments[1][i].item<double>(), expected[i].second, 1e-6);
        }
      }
    }
}

TEST_F(optimizer_test, agrees_with_libtorch) {
  const std::int64_t n = 10'000;
  const double rate = 0.01;
  for (const auto& x : optimizers()) {
    SCOPED_TRACE(x.kind);
    auto parameters = random_values(n, 1);
    auto moments = zero_moments(x, n);
    auto theirs = parameters.clone().requires_grad_(true);
    std::unique_ptr<torch::optim::Optimizer> optimizer;
    if (x.kind == "adamw")
      optimizer = std::make_unique<torch::optim::AdamW>(
          std::vector{theirs},
          torch::optim::AdamWOptions(rate).betas({x.beta1, x.beta2}).eps(x.epsilon).weight_decay(x.weight_decay));
    else
      optimizer = std::make_unique<torch::optim::SGD>(
          std::vector{theirs}, torch::optim::SGDOptions(rate).momentum(x.momentum).weight_decay(x.weight_decay));
    for (std::uint64_t step = 0; step < 100; ++step) {
      const auto gradient = random_values(n, 100 + step);
      const auto clip = step % 3 == 0 ? 0.7 : 1.0;
      theirs.mutable_grad() = gradient * clip;
      optimizer->step();
      apply_optimizer(x, parameters, moments, gradient, step, rate, clip);
      const auto distance = (parameters - theirs.detach()).abs() / theirs.detach().abs().clamp_min(1);
      EXPECT_LE(distance.max().item<double>(), 1e-6) << "step " << step;
    }
  }
}

// Tied embeddings lie at different places of different buffers, and their copies must stay equal.
TEST_F(optimizer_test, an_element_does_not_depend_on_its_place) {
  const std::int64_t n = 45;
  for (const auto& x : optimizers()) {
    auto at_place = [&](std::int64_t before, std::int64_t after) {
      auto embed = [&](const at::Tensor& values) {
        return at::cat({random_values(before, 8), values, random_values(after, 9)});
      };
      auto parameters = embed(random_values(n, 1));
      auto moments = zero_moments(x, before + n + after);
      for (std::uint64_t step = 0; step < 3; ++step)
        apply_optimizer(x, parameters, moments, embed(random_values(n, 100 + step)), step, 0.01);
      return parameters.narrow(0, before, n).clone();
    };
    auto expected = at_place(0, 0);
    for (std::int64_t before : {0, 1, 7, 16})
      for (std::int64_t after : {0, 1, 9, 33})
        EXPECT_TRUE(at::equal(expected, at_place(before, after)))
            << x.kind << ", " << before << " before, " << after << " after";
    // Long enough to be split among threads.
    at::set_num_threads(2);
    for (auto [before, after] : {std::pair{100'001, 0}, {0, 100'001}, {50'003, 50'001}})
      EXPECT_TRUE(at::equal(expected, at_place(before, after)))
          << x.kind << ", " << before << " before, " << after << " after, two threads";
    at::set_num_threads(1);
  }
}

// given: runs with factors and without decay / expected: each run's elements have the bits of a buffer of their own
// with that rate and decay, wherever the run begins; a factor of 0 freezes
TEST_F(optimizer_test, runs_are_treated_as_buffers_of_their_own) {
  for (const auto& x : optimizers()) {
    const std::vector<parameter_run> runs{{21, 1, true}, {5, 1, false}, {64, 0.5, true}, {1, 0, true}, {33, 2, false}};
    std::int64_t n = 0;
    for (const auto& run : runs)
      n += static_cast<std::int64_t>(run.values);
    auto parameters = random_values(n, 1);
    const auto before = parameters.clone();
    auto moments = zero_moments(x, n);
    for (std::uint64_t step = 0; step < 3; ++step)
      apply_optimizer(x, parameters, moments, random_values(n, 100 + step), step, 0.01, 1, runs);
    std::int64_t begin = 0;
    for (const auto& run : runs) {
      const auto size = static_cast<std::int64_t>(run.values);
      auto own = x;
      if (!run.decays)
        own.weight_decay = 0;
      auto expected = before.narrow(0, begin, size).clone();
      auto own_moments = zero_moments(own, size);
      for (std::uint64_t step = 0; step < 3; ++step)
        apply_optimizer(own, expected, own_moments, random_values(n, 100 + step).narrow(0, begin, size), step,
                        0.01 * run.rate_factor);
      EXPECT_TRUE(at::equal(parameters.narrow(0, begin, size), expected)) << x.kind << " at " << begin;
      if (run.rate_factor == 0) {
        EXPECT_TRUE(at::equal(expected, before.narrow(0, begin, size))) << x.kind;
      }
      begin += size;
    }
  }
}

// given: each optimizer, as one run and as three, with a copy and without / expected: the same parameters; the copy is
// what they are rounded to
TEST_F(optimizer_test, writes_a_rounded_copy) {
  const std::int64_t n = 1003;
  const std::vector<parameter_run> three{{100, 1, true}, {3, 2, false}, {900, 0.5, true}};
  for (const auto& x : optimizers())
    for (const auto& runs : {std::vector<parameter_run>{}, three}) {
      auto with = random_values(n, 1), without = with.clone();
      auto moments = zero_moments(x, n), others = zero_moments(x, n);
      const auto copy = at::zeros({n}, at::kBFloat16);
      for (std::uint64_t step = 0; step < 3; ++step) {
        const auto gradient = random_values(n, 2 + step);
        apply_optimizer(x, with, moments, gradient, step, 1e-2, 0.5, runs, processor(), copy);
        apply_optimizer(x, without, others, gradient, step, 1e-2, 0.5, runs);
        EXPECT_TRUE(at::equal(with, without));
        EXPECT_TRUE(at::equal(copy, with.to(at::kBFloat16)));
      }
    }
}

TEST_F(optimizer_test, leaves_the_gradient_alone_and_accepts_leaves_of_a_graph) {
  for (const auto& x : optimizers()) {
    auto parameters = random_values(40, 1).requires_grad_(true);
    auto moments = zero_moments(x, 40);
    auto gradient = random_values(40, 2), before = gradient.clone();
    apply_optimizer(x, parameters, moments, gradient, 0, 0.01);
    EXPECT_TRUE(at::equal(gradient, before));
    EXPECT_TRUE(parameters.requires_grad());
  }
}

} // namespace
} // namespace parcae

// Steps to a loss, from the losses of the steps so far.

#include "planner/cost/profile.hpp"
#include "planner/market/loss_curve.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <span>
#include <string>

namespace parcae::market {
namespace {

// given: the law itself, noise / expected: its steps, within a hundredth, and a twentieth
TEST(loss_curve, of_the_law_itself) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> noise(0, 0.05);
  const loss_law law{500, 80, 1.5};
  std::vector<step_loss> exact, noisy;
  for (int i = 1; i <= 1'000; ++i) {
    exact.push_back({static_cast<double>(i), law.at(i)});
    noisy.push_back({static_cast<double>(i), law.at(i) + noise(random)});
  }
  const double loss = law.at(2'000);
  EXPECT_NEAR(fitted_loss(exact)->steps_to(loss).value() / 2'000, 1, 0.01);
  EXPECT_NEAR(fitted_loss(noisy)->steps_to(loss).value() / 2'000, 1, 0.05);
  EXPECT_EQ(fitted_loss(exact)->steps_to(1.4), std::nullopt);
}

TEST(loss_curve, of_what_does_not_fall) {
  std::vector<step_loss> rises;
  for (int i = 1; i <= 100; ++i)
    rises.push_back({static_cast<double>(i), 1 + 0.01 * i});
  EXPECT_FALSE(fitted_loss(rises));
  EXPECT_FALSE(fitted_loss(std::span(rises).first(9)));
}

TEST(loss_curve, files) {
  const auto x = parse_losses("step,loss,validation_loss,samples\n1,5.5,,16\n2,5.25,5,32\n");
  ASSERT_EQ(x.size(), 2u);
  EXPECT_EQ(x[1].step, 2);
  EXPECT_EQ(x[1].loss, 5.25);
  EXPECT_THROW(parse_losses("step,loss\n2,1\n2,1\n"), parse_error);
  EXPECT_THROW(parse_losses("step\n2\n"), parse_error);
}

// given: what `parcae export --curve` wrote (step, loss) of two byte-level GPTs of 2 layers of 64: batch 16 of 64 bytes
// of licences, rate 1e-3; batch 32 of 32 bytes of Python, rate 2e-3; of each up to 40 % of the steps expected: the
// steps to the loss (mean of 5 % of the steps) that it has at 80 %, within a tenth
TEST(loss_curve, of_a_gpt) {
  for (const auto* name : {"gpt_losses_16.csv", "gpt_losses_32.csv"}) {
    const auto all = parse_losses(read_file(PARCAE_SOURCE_DIR "/tests/planner/market/" + std::string(name)));
    const auto at = all.size() * 4 / 5, width = all.size() / 40;
    double loss = 0;
    for (const auto& x : std::span(all).subspan(at - width, 2 * width))
      loss += x.loss / static_cast<double>(2 * width);
    const auto law = fitted_loss(std::span(all).first(all.size() * 2 / 5));
    ASSERT_TRUE(law);
    const auto steps = law->steps_to(loss);
    ASSERT_TRUE(steps) << name;
    std::printf("%.0f steps to a loss of %.4f, it took %.0f\n", *steps, loss, all[at].step);
    EXPECT_NEAR(*steps / all[at].step, 1, 0.1) << name;
  }
}

} // namespace
} // namespace parcae::market

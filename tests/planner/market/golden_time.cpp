// All published figures together take little time: looked at when the whole program has run.

#include "tests/support/slowness.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

namespace parcae {
namespace {

struct golden_time : testing::Environment {
  void SetUp() override {
    slowness_ = slowness();
    begun_s_ = processor_s();
  }

  void TearDown() override {
    const double taken_s = processor_s() - begun_s_, stated_s = taken_s / std::max(slowness_, slowness());
    std::cout << "published figures: " << taken_s << " s of processor time\n";
    EXPECT_LT(stated_s, 30) << "of processor time, where bounds are stated for";
  }

private:
  double slowness_ = 1, begun_s_ = 0;
};

[[maybe_unused]] auto* const watched = testing::AddGlobalTestEnvironment(new golden_time);

} // namespace
} // namespace parcae

#pragma once

#include "tests/actors/conductor/dummy_cluster.hpp"

namespace parcae {

class conductor_test : public ::testing::Test {
protected:
  void TearDown() override { EXPECT_THAT(c.errors(), ::testing::IsEmpty()); }

  /// Two workers train as 2×1 and have committed a step.
  void run_two() {
    c.join({"a", "b"});
    ASSERT_EQ(c.view().now, phase::running);
    c.step();
  }

  /// How often this slot was told to send all it holds to the keepers.
  std::ptrdiff_t whole_stages_asked(const std::string& name) {
    return std::ranges::count_if(c.all_told<protect>(name),
                                 [](const auto& x) { return x.whole && x.now && !x.keepers.empty(); });
  }

  /// How often it was told to stop and leave its state to the keepers.
  std::ptrdiff_t stops_with_snapshot(const std::string& name) {
    return std::ranges::count(c.all_told<stop>(name), true, &stop::snapshot);
  }

  dummy_cluster c;
};

} // namespace parcae

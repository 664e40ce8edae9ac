#pragma once

// Scenes of a job that serves.

#include "tests/actors/conductor/dummy_cluster.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

using way = std::pair<std::uint64_t, std::uint32_t>; ///< a generation, and its pipelines

class serving_conductor : public ::testing::Test {
protected:
  void TearDown() override { EXPECT_THAT(c.errors(), ::testing::IsEmpty()); }

  static void describe(job_specification& job) {
    job.kind = "serve";
    job.optimizer.kind = "none";
  }

  /// A gateway and two workers, which serve.
  void serve_by_two() {
    c.add_gateway("g");
    c.join({"a", "b"});
    ASSERT_EQ(c.running(), 2u);
    c.serve();
    before_ = c.all_told<route>("g").size();
  }

  /// As g was told since: pipelines of generations.
  std::vector<way> routes(const std::string& name = "g") {
    std::vector<way> result;
    const auto all = c.all_told<route>(name);
    for (auto i = before_; i < all.size(); ++i)
      result.emplace_back(all[i].current.value, all[i].target.width);
    return result;
  }

  dummy_cluster c{4, describe};

private:
  std::size_t before_ = 0;
};

} // namespace parcae

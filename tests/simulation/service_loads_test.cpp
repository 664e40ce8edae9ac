// Jobs that serve, planned by what is asked for: the manager's real actors, in virtual time.

#include "tests/simulation/cluster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace parcae::simulation {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

cluster_options options_with(request_course comes) {
  cluster_options x;
  x.job.kind = "serve";
  x.job.optimizer.kind = "none";
  x.job.model = {.kind = "gpt", .layers = 2, .width = 8, .heads = 2, .sequence = 16, .vocabulary = 16};
  x.job.serve.cache_bytes = 1 << 20;
  x.job.max_depth = 2;
  x.job.max_width = 8;
  x.job.planning_interval_ms = 10'000;
  x.data.shards.assign(4, 10ms);
  x.comes = std::move(comes);
  return x;
}

class loaded_cluster {
public:
  explicit loaded_cluster(request_course comes) : c_(options_with(std::move(comes))) {
    c_.start_manager();
    c_.start_gateway("g");
  }

  /// Up to that many workers.
  void have(std::size_t workers) {
    for (; workers_ < workers; ++workers_)
      c_.start_node("w" + std::to_string(workers_), false, 1);
  }
  void lose_one() {
    for (const auto& [name, x] : c_.nodes())
      if (!x->gateway)
        return c_.kill_node(node_ptr(x), false);
  }
  void wait(nanoseconds x) {
    c_.time().run_until(c_.time().now() + x, [] { return false; });
  }
  job_status status() {
    EXPECT_THAT(c_.sees().problems(), IsEmpty());
    auto result = c_.status();
    EXPECT_EQ(result.phase, "running");
    return result;
  }
  shape now() {
    const auto x = status();
    return {x.width, x.depth};
  }

private:
  cluster c_;
  std::size_t workers_ = 0;
};

// given: two workers, then more, while little is asked for / expected: it stays with two pipelines; when much is asked
// for there are more within the interval, which `status` has with what is expected of them; when little is again they
// stay, and a loss leaves two
TEST(service_loads, shapes_follow_what_is_asked_for) {
  loaded_cluster x({{0.1, 150, 0.1}, 60s});
  x.have(2);
  x.wait(5s);
  EXPECT_EQ(x.now(), (shape{2, 1}));
  x.have(8);
  x.wait(40s);
  EXPECT_EQ(x.now(), (shape{2, 1})) << "nobody needs more";
  EXPECT_THAT(x.status().idle, HasSubstr("6 slots idle: requests are answered as soon without them"));
  x.wait(45s);
  const auto grown = x.status();
  EXPECT_GT(grown.width * grown.depth, 4u);
  const auto made = std::ranges::find(grown.decisions, grown.generation, &decision::generation);
  ASSERT_NE(made, grown.decisions.end());
  EXPECT_EQ(made->trigger, "the planning interval's end");
  EXPECT_EQ(made->policy, "serve");
  EXPECT_GT(made->p99_ms, 0);
  EXPECT_GT(made->requests_per_s, 150);
  EXPECT_GE(made->realised_ms, 0);
  EXPECT_EQ(grown.changes.back().trigger, "the planning interval's end");
  x.wait(50s);
  EXPECT_EQ(x.status().generation, grown.generation) << "fewer slots are no gain";
  x.lose_one();
  x.wait(5s);
  EXPECT_EQ(x.now(), (shape{2, 1}));
}

// given: a load that goes up and down around what the pipelines can do / expected: few changes, as what is hardly
// better is none
TEST(service_loads, shapes_do_not_follow_each_breath) {
  loaded_cluster x({{40, 44, 38, 46, 42, 39, 45}, 7s});
  x.have(8);
  x.wait(60s);
  const auto before = x.status().generation;
  x.wait(600s);
  EXPECT_LE(x.status().generation, before + 2);
}

} // namespace
} // namespace parcae::simulation

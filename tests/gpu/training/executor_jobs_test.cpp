// What outlives a generation in an executor, and what does not outlive a job: snapshots asked for, shards, keepers.

#include "tests/gpu/training/stage_executor_fixture.hpp"
#include "tests/support/eventually.hpp"

#include <malloc.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

namespace parcae::rig {
namespace {

snapshot_permit permit(std::uint64_t key) {
  return permit_of({{key}}, {"sender", {3}, 0});
}

std::vector<keeper_share> all_to(std::uint16_t keeper, std::size_t layers) {
  keeper_share all{{{"keeper", {1}, 0}, "127.0.0.1", keeper}, {}};
  for (std::uint32_t layer = 0; layer < layers; ++layer)
    all.layers.push_back(layer);
  return {all};
}

TEST_F(stage_executor_test, snapshot_asked_for_outlives_the_generation) {
  // given: a keeper joins, and the generation is aborted before the next commit. expected: the first commit of the next
  // generation is sent to it.
  worker w("w");
  auto keeper_port = make_data_port("127.0.0.1");
  std::mutex mutex;
  std::vector<version> arrived;
  keeper_port->accept_snapshots({1}, secret_key{{5}}, {}, [&](const commit_result&, shard_bytes x) {
    std::lock_guard lock(mutex);
    if (x.layer != losses_layer)
      arrived.push_back(x.at);
  });
  gate third, fourth;
  w.at_fault_points([&](const fault_point& at) {
    if (std::string(at.phase) != "forward" || at.at != generation{1})
      return;
    if (at.step == 3)
      third.pass();
    if (at.step == 4)
      fourth.pass();
  });
  prepare_and_start(w, plan(1, {&w}));
  ASSERT_TRUE(third.wait_until_reached());
  w.work->submit(protect{{1}, all_to(keeper_port->port(), layers()), permit(5), true});
  third.open();
  ASSERT_TRUE(fourth.wait_until_reached());
  w.work->submit(abort_generation{{1}});
  fourth.open();
  EXPECT_EQ(w.said.next<aborted>().at, (version{4, {1}}));
  w.work->submit(decide{{1}, {}});
  w.said.next<decided>();
  prepare_and_start(w, plan(2, {&w}), {4, {1}});
  ASSERT_TRUE(eventually([&] {
    std::lock_guard lock(mutex);
    return arrived.size() == layers();
  }));
  EXPECT_EQ(arrived[0], (version{5, {2}}));
}

TEST_F(stage_executor_test, forgotten_job_leaves_nothing_to_the_next) {
  // given: a job with a keeper ends, another without one begins. expected: nothing of it goes to the first one's
  // keeper.
  worker w("w");
  auto keeper_port = make_data_port("127.0.0.1");
  std::atomic<int> arrived = 0;
  std::promise<void> first;
  keeper_port->accept_snapshots({1}, secret_key{{5}}, {}, [&](const commit_result&, const shard_bytes& x) {
    if (x.layer != losses_layer && ++arrived == 1)
      first.set_value();
  });
  job.keeper_every = 1;
  job.steps = 1;
  w.work->submit(protect{{1}, all_to(keeper_port->port(), layers()), permit(5), false});
  prepare_and_start(w, plan(1, {&w}));
  w.said.next<stopped>();
  ASSERT_TRUE(eventually([&] { return arrived == static_cast<int>(layers()); }));
  w.work->submit(forget{{1}});
  job.steps = 20;
  prepare_and_start(w, plan(1, {&w}, 2));
  EXPECT_EQ(w.said.next<stopped>().at.steps, 20u);
  // What were sent by mistake would come before this.
  std::promise<void> last;
  keeper_port->accept_snapshots({2}, secret_key{{6}}, {}, [&](const commit_result& x, const shard_bytes& shard) {
    if (shard.layer + 1 == layers() && x.step == 19)
      last.set_value();
  });
  w.work->submit(protect{{2}, all_to(keeper_port->port(), layers()), permit(6), false});
  ASSERT_EQ(last.get_future().wait_for(patience), std::future_status::ready);
  EXPECT_EQ(arrived, static_cast<int>(layers()));
}

TEST_F(stage_executor_test, late_forget_of_an_earlier_job_does_not_touch_the_next) {
  worker w("w");
  prepare_and_start(w, plan(1, {&w}, 2));
  w.work->submit(forget{{1}});
  w.work->submit(stop{{1}});
  EXPECT_EQ(w.said.next<stopped>().held.size(), layers());
}

TEST_F(stage_executor_test, shards_of_one_job_are_not_taken_for_those_of_another) {
  // given: version 0 of job 1 is held and never forgotten. expected: job 2 makes its own, from its own seed.
  worker w("w"), v("v");
  auto keeper_port = make_data_port("127.0.0.1");
  auto first = plan(1, {&w}, 1);
  w.work->submit(first);
  w.said.next<prepared>();
  w.work->submit(activate{first.next, {}});
  w.said.next<active>();
  job.seed = 99;
  job.steps = 1;
  job.keeper_every = 1;
  std::mutex mutex;
  std::map<std::string, std::vector<std::vector<std::byte>>> parameters;
  for (auto* on : {&w, &v}) {
    const std::uint64_t number = on == &w ? 2 : 3;
    std::promise<void> all;
    keeper_port->accept_snapshots({number}, secret_key{{5}}, {},
                                  [&, n = 0u](const commit_result&, shard_bytes x) mutable {
                                    std::lock_guard lock(mutex);
                                    if (x.layer == losses_layer)
                                      return;
                                    parameters[on->where.slot.instance].push_back(std::move(x.parts[0]));
                                    if (++n == layers())
                                      all.set_value();
                                  });
    on->work->submit(protect{{number}, all_to(keeper_port->port(), layers()), permit(5), false});
    prepare_and_start(*on, plan(1, {on}, number));
    ASSERT_EQ(all.get_future().wait_for(patience), std::future_status::ready);
  }
  std::lock_guard lock(mutex);
  EXPECT_TRUE(parameters["w"] == parameters["v"]);
}

/// Of this process.
struct resources {
  static resources now() { return {entries("/proc/self/task"), entries("/proc/self/fd"), heap()}; }

  std::ptrdiff_t threads, descriptors;
  std::size_t heap_bytes;

private:
  static std::ptrdiff_t entries(const std::filesystem::path& folder) {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  }

  static std::size_t heap() {
    const auto x = ::mallinfo2();
    return x.uordblks + x.hblkhd;
  }
};

/// Nothing trains meanwhile.
void expect_no_more(const resources& before, std::size_t bytes_more) {
  EXPECT_TRUE(eventually([&] { return resources::now().threads <= before.threads; })) << "threads";
  EXPECT_TRUE(eventually([&] { return resources::now().descriptors <= before.descriptors; })) << "descriptors";
  EXPECT_TRUE(eventually([&] { return resources::now().heap_bytes <= before.heap_bytes + bytes_more; })) << "memory";
}

// given: a stage that goes to and fro between two workers 200 times; every other time layers go ahead, and else moments
// come behind the first step; who has no stage keeps room for one / expected: threads, descriptors and memory are as
// after 20 times; of memory half the gradients of a layer each time would be more
TEST_F(stage_executor_test, nothing_is_left_of_200_changes) {
  job.model = {"mlp", 3, 128, 1, 16, 256, 0, false};
  job.data = {.kind = "synthetic"};
  const auto model = describe(job.model);
  std::vector<std::uint32_t> all(model.layers.size());
  std::iota(all.begin(), all.end(), 0u);
  const std::size_t gradient = model.layers[1].parameters() * sizeof(float);
  worker a("a"), b("b");
  auto *from = &a, *to = &b;
  const auto planned = [&](std::uint64_t g) {
    auto x = plan(g, {to, from});
    x.target.first_layer = {0, static_cast<std::uint32_t>(all.size())};
    for (const auto layer : all)
      x.moves.push_back({layer, 1, 0});
    return x;
  };
  auto first = plan(1, {from});
  first.target.first_layer = {0, static_cast<std::uint32_t>(all.size())};
  auto at = run_and_stop(*from, first);
  std::optional<resources> before;
  bool trains = false;
  std::uint64_t ahead = 0;
  for (std::uint64_t g = 2; g <= 201; ++g) {
    const auto x = planned(g);
    const auto tell = [&](const command& what) {
      for (auto* w : {to, from})
        w->work->submit(what);
    };
    tell(x);
    for (auto* w : {to, from})
      w->said.next<prepared>();
    if (trains && g % 2 == 0) {
      tell(warm{x.next});
      from->said.next<warmed>();
      ahead += to->said.next<warmed>().bytes > 0;
    }
    if (trains) {
      from->work->submit(stop{{g - 1}});
      at = from->said.next<stopped>().at;
    }
    tell(activate{x.next, at});
    to->said.next<active>();
    to->said.next<progress>(); // and so all of it is there
    from->work->submit(release{x.next, {}, all});
    std::swap(from, to);
    trains = g != 20 && g != 201;
    if (trains)
      continue;
    from->work->submit(stop{x.next});
    at = from->said.next<stopped>().at;
    if (before)
      expect_no_more(*before, (g - 20) * gradient / 2);
    before = resources::now();
  }
  EXPECT_GT(ahead, 90u);
}

} // namespace
} // namespace parcae::rig

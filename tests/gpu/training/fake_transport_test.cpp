// Training on fake devices with NCCL's double: the transport changes in mid-run, in each generation anew. Instances
// have two slots, each on a device of its own.

#include "gpu/training/rank_transport.hpp"
#include "protocols/model/model_description.hpp"
#include "tests/gpu/training/nccl_of_cluster.hpp"
#include "tests/support/executor_cluster.hpp"
#include "tests/support/names.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

namespace parcae {
namespace {

using rig::nccl_call;
using rig::nccl_fault;

const shapes ten_changes{{2, 2}, {3, 1}, {1, 4}, {2, 1}, {1, 2}, {4, 1}, {2, 2}, {1, 3}, {1, 4}, {3, 1}, {2, 2}};

using pairs = std::set<std::pair<std::uint32_t, std::uint32_t>>;

/// Of ranks that have tensors for each other.
pairs pairs_of(const job_specification& job, const configuration& x) {
  placement grid;
  grid.width = x.width;
  grid.depth = x.depth;
  grid.first_layer = x.first_layer;
  pairs result;
  for (std::uint32_t rank = 0; rank < x.width * x.depth; ++rank)
    for (const auto peer : peers_of(grid, rank, describe(job.model).tied))
      result.emplace(rank, peer);
  return result;
}

class fake_transport : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

// given: a model of each kind, in both precisions, through ten changes of shape, each generation of which changes over
// to NCCL / expected: the bits of the undisturbed run, no use of NCCL that it does not allow, and of ranks only those
// connected, each taking memory, that have tensors for each other
TEST_P(fake_transport, changes_no_bit) {
  auto job = small_batches(std::get<0>(GetParam()));
  job.precision = std::get<1>(GetParam());
  job.steps = 70;
  ASSERT_EQ(problem_of(job), "");
  nccl_of_cluster nccl(1);
  EXPECT_EQ(digest_after(job, ten_changes, nccl.workers()), undisturbed_digest(job, {one_for_each}));
  EXPECT_THAT(nccl.world.violations(), IsEmpty());
  const auto connected = nccl.world.connected();
  ASSERT_GE(connected.size() + 1, ten_changes.size()) << "the last need not change over";
  auto next = connected.begin();
  for (std::size_t i = 0; i + 1 < ten_changes.size(); ++i, ++next)
    EXPECT_EQ(next->second, pairs_of(job, shape(job, ten_changes[i].first, ten_changes[i].second))) << i;
}

INSTANTIATE_TEST_SUITE_P(kinds, fake_transport,
                         ::testing::Combine(::testing::Values("gpt", "mlp", "bert", "resnet", "vgg"),
                                            ::testing::Values("float32", "bfloat16")),
                         [](const auto& x) { return std::string(std::get<0>(x.param)) + "_" + std::get<1>(x.param); });

enum class stretch : std::uint8_t {
  before,  ///< the second step, by TCP, while NCCL is made
  by_nccl, ///< once NCCL moves tensors
  change,  ///< of the generation after that, while it is prepared or begins
};

/// At which the first worker that comes there dies with both of its slots.
struct moment {
  const char* phase;
  stretch when;
};

/// Any thread.
class killer {
public:
  explicit killer(moment x) : x_(x) {}

  fault_action pass(const fault_point& at) {
    const std::string_view phase = at.phase;
    const std::lock_guard held(mutex_);
    if (phase == "take_over")
      taken_over_.emplace(at.at.value, at.step);
    if (killed_ || phase != x_.phase || !is_time(at))
      return fault_action::none;
    killed_ = true;
    return fault_action::kill;
  }

  bool killed() const {
    const std::lock_guard held(mutex_);
    return killed_;
  }
  /// Generations that have changed over.
  std::size_t taken_over() const {
    const std::lock_guard held(mutex_);
    return taken_over_.size();
  }

private:
  bool is_time(const fault_point& at) const {
    const auto taken = taken_over_.find(at.at.value);
    switch (x_.when) {
    case stretch::before:
      return at.step == 1 && taken_over_.empty();
    case stretch::by_nccl:
      return taken != taken_over_.end() && at.step >= taken->second;
    case stretch::change:
      return !taken_over_.empty() && at.at.value > taken_over_.begin()->first;
    }
    return false;
  }

  const moment x_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> taken_over_; ///< generations, and their first step by NCCL
  bool killed_ = false;
};

void survive(const job_specification& job, const moment& x, std::uint64_t seed, const std::string& expected) {
  SCOPED_TRACE(std::string(x.phase) + " " + std::to_string(static_cast<int>(x.when)));
  nccl_of_cluster nccl(seed);
  killer faults(x);
  std::uint32_t depth = 2;
  executor_cluster cluster(job);
  cluster.workers = nccl.workers();
  cluster.planner = [&](std::uint32_t slots, const auto&) {
    return slots < 4 ? configuration{0, 0, {}, 0, "too few"} : shape(job, 2, depth);
  };
  cluster.add_keeper("keeper");
  for (const auto* name : {"a", "b", "c"})
    cluster.add_worker(name, [&](const fault_point& at) { return faults.pass(at); });
  if (x.when == stretch::change) {
    ASSERT_TRUE(cluster.run_until([&] { return faults.taken_over() == 1 && cluster.view().steps_done > 1; }));
    depth = 1;
    cluster.send(plan_wanted{"the test's next shape"});
  }
  ASSERT_TRUE(cluster.run_until_ended()) << cluster.log().back();
  EXPECT_TRUE(faults.killed());
  EXPECT_GE(faults.taken_over(), x.when == stretch::before ? 1u : 2u);
  EXPECT_EQ(cluster.final_digest(), expected);
  EXPECT_THAT(nccl.world.violations(), IsEmpty());
}

// given: an instance that dies at each of 20 points, before NCCL moves tensors, while it does, and in a change /
// expected: the undisturbed run's bits; the next generation changes over as well
TEST(fake_transport_kills, change_no_bit) {
  using enum stretch;
  auto job = small_batches("gpt");
  job.steps = 24;
  job.keeper_every = 1;
  const auto expected = undisturbed_digest(job, {one_for_each});
  std::vector<moment> all{
      {"take_over", by_nccl}, {"prepare", change}, {"transfer_receive", change}, {"activate", change}};
  for (const auto* phase : points_of_step)
    all.insert(all.end(), {{phase, before}, {phase, by_nccl}});
  for (std::uint64_t seed = 0; seed < all.size(); ++seed)
    survive(job, all[seed], seed, expected);
}

// given: an instance of which a slot has no NCCL, or whose making fails / expected: all stay on TCP, each rank that is
// the cause says why, and no bit changes
TEST(fake_transport_failures, stay_on_tcp_and_say_why) {
  auto job = small_batches("gpt");
  const auto expected = undisturbed_digest(job, {one_for_each});
  for (const bool is_there : {false, true}) {
    nccl_of_cluster nccl(1);
    nccl.world.plan(3, nccl_call::begin, 1, nccl_fault::fail);
    auto workers = nccl.workers();
    workers.nccl = [&](std::uint64_t n) {
      auto x = nccl.access(n);
      if (n == 3 && !is_there)
        x = {.slot = {}, .problem = "NCCL 1 is there, and 2 is wanted", .by_itself = true};
      return x;
    };
    executor_cluster cluster(job);
    cluster.workers = workers;
    cluster.keep_shape(2, 2);
    cluster.add_keeper("keeper");
    cluster.add_workers({"a", "b"});
    ASSERT_TRUE(cluster.run_until_ended()) << cluster.log().back();
    EXPECT_EQ(cluster.final_digest(), expected);
    std::vector<std::string> reasons;
    for (const auto& [rank, x] : cluster.view().transports) {
      EXPECT_EQ(x.by, "tcp");
      EXPECT_EQ(x.device, "a fake device");
      if (!x.reason.empty())
        reasons.push_back(x.reason);
    }
    EXPECT_THAT(reasons, ElementsAre(HasSubstr(is_there ? "making a communicator: a call of the system failed"
                                                        : "NCCL 1 is there, and 2 is wanted")));
    EXPECT_EQ(nccl.world.calls_of(2, nccl_call::send), 0u);
    EXPECT_THAT(nccl.world.violations(), IsEmpty());
  }
}

// given: NCCL that breaks at one rank in each generation, and nobody is lost / expected: after three generations the
// job stays on TCP and says why, with the undisturbed run's bits
TEST(fake_transport_failures, are_not_repeated_for_ever) {
  auto job = small_batches("gpt");
  job.steps = 20;
  const auto expected = undisturbed_digest(job, {one_for_each});
  nccl_of_cluster nccl(1);
  executor_cluster cluster(job);
  cluster.workers = nccl.workers();
  cluster.keep_shape(2, 2);
  cluster.add_keeper("keeper");
  cluster.add_worker("w0");
  std::mutex mutex;
  std::set<std::uint64_t> broken;
  cluster.add_worker("w1", [&](const fault_point& at) {
    const std::lock_guard held(mutex);
    if (std::string_view(at.phase) == "take_over" && broken.insert(at.at.value).second)
      nccl.world.plan(4, nccl_call::send, 1, nccl_fault::fail);
    return fault_action::none;
  });
  ASSERT_TRUE(cluster.run_until_ended()) << cluster.log().back();
  EXPECT_EQ(broken.size(), nccl_failures::max_in_a_row);
  EXPECT_EQ(cluster.view().current.value, 1 + nccl_failures::max_in_a_row);
  for (const auto& [rank, x] : cluster.view().transports) {
    EXPECT_EQ(x.by, "tcp");
    EXPECT_THAT(x.reason, HasSubstr("NCCL failed 3 times in a row, and no rank was lost; the last time: "));
  }
  EXPECT_EQ(cluster.final_digest(), expected);
  EXPECT_THAT(nccl.world.violations(), IsEmpty());
}

/// What devices were given to compute, of those between whose steps NCCL may be at work.
class loaded_work {
public:
  loaded_work() {
    watch_work([this](std::uint32_t on, const std::string& name, const std::string& sizes) {
      if (name == "aten::_local_scalar_dense") // a copy to the host
        return;
      const std::lock_guard held(mutex_);
      const bool is_new = known_.emplace(on, name, sizes).second;
      if (is_new && beside_.contains(on))
        late_.push_back(std::to_string(on) + ": " + name + sizes);
    });
  }
  ~loaded_work() { watch_work({}); }

  void set_beside(std::uint32_t on, bool x) {
    const std::lock_guard held(mutex_);
    if (x)
      beside_.insert(on);
    else
      beside_.erase(on);
  }

  /// Computed for the first time while NCCL may be at work.
  std::vector<std::string> late() const {
    const std::lock_guard held(mutex_);
    return late_;
  }

private:
  mutable std::mutex mutex_;
  std::set<std::tuple<std::uint32_t, std::string, std::string>> known_;
  std::set<std::uint32_t> beside_;
  std::vector<std::string> late_;
};

// given: a job that is evaluated at its end, a change of shape before; validation samples that fill the last
// micro-batch in part / expected: nothing is computed beside NCCL that was not computed before, as it would be loaded
TEST(fake_transport_loading, is_over_before_nccl_moves_tensors) {
  auto job = small_batches("gpt");
  job.steps = job.evaluate_every = 24;
  job.data.validation = 2 * job.micro_batch + 1;
  ASSERT_EQ(problem_of(job), "");
  nccl_of_cluster nccl(1);
  loaded_work work;
  std::atomic<std::uint32_t> taken_over = 0;
  executor_cluster cluster(job);
  cluster.workers = nccl.workers();
  cluster.workers.slots = 1;
  cluster.planner = [&](std::uint32_t slots, const auto&) {
    if (slots < 2)
      return configuration{0, 0, {}, 0, "too few"};
    return cluster.view().current.value == 0 ? shape(job, 1, 2) : shape(job, 2, 1);
  };
  cluster.add_keeper("keeper");
  for (const std::uint32_t n : {2u, 3u}) // as slots are counted
    cluster.add_worker("w" + std::to_string(n), [&, n](const fault_point& at) {
      const std::string_view phase = at.phase;
      if (phase == "take_over")
        work.set_beside(n, true), ++taken_over;
      if (phase == "prepare" || phase == "activate") // by TCP again
        work.set_beside(n, false);
      return fault_action::none;
    });
  ASSERT_TRUE(cluster.run_until([&] { return taken_over == 2; }));
  cluster.send(plan_wanted{"the test's next shape"});
  ASSERT_TRUE(cluster.run_until_ended()) << cluster.log().back();
  EXPECT_EQ(taken_over, 4u);
  EXPECT_EQ(cluster.view().evaluated_steps, static_cast<std::int64_t>(job.steps));
  EXPECT_THAT(work.late(), IsEmpty());
}

// given: an evaluation by NCCL, of which a message comes wrong and the communicator breaks / expected: what was
// computed from it counts for nothing
TEST(fake_transport_failures, spoil_no_evaluation) {
  auto job = small_batches("gpt");
  job.steps = 40;
  job.evaluate_every = 8;
  job.data.validation = 6;
  ASSERT_EQ(problem_of(job), "");
  nccl_of_cluster nccl(1);
  const auto losses_of = [&](std::uint32_t depth, bool breaks) {
    std::atomic<bool> by_nccl = false, garbled = false, broken = false, held = false;
    std::atomic<std::uint32_t> last = 0; ///< slot, as slots are counted, of the last stage
    executor_cluster cluster(job);
    cluster.workers = {.on = one_for_each};
    if (breaks)
      cluster.workers.nccl = [&](std::uint64_t n) { return nccl.access(n); };
    cluster.keep_shape(1, depth);
    cluster.on_effect = [&](const effect& x) {
      const auto* t = std::get_if<tell>(&x);
      if (const auto* p = t ? std::get_if<prepare>(t->what.get()) : nullptr)
        last = static_cast<std::uint32_t>(std::stoul(p->target.participants[depth - 1].slot.instance.substr(1)));
      return true;
    };
    cluster.add_keeper("keeper");
    for (std::uint32_t n = 2; n < 2 + depth; ++n)
      cluster.add_worker("w" + std::to_string(n), [&, n](const fault_point& at) {
        const std::string_view phase = at.phase;
        by_nccl = by_nccl || phase == "take_over";
        if (phase == "forward" && n != last && garbled && !held.exchange(true)) // so that no ABORT comes first
          std::this_thread::sleep_for(std::chrono::seconds(1));
        if (!by_nccl || phase != "evaluate" || at.step == job.steps)
          return fault_action::none;
        if (n != last && !garbled.exchange(true))
          nccl.world.plan(n, nccl_call::send, 1, nccl_fault::garble);
        if (n == last && at.index == 2 && !broken.exchange(true)) { // the last one has come
          nccl.world.plan(n, nccl_call::state, 1, nccl_fault::spoil);
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
        }
        return fault_action::none;
      });
    EXPECT_TRUE(cluster.run_until_ended()) << cluster.log().back();
    EXPECT_EQ(broken, breaks);
    return cluster.view().validation_losses;
  };
  const auto expected = losses_of(1, false);
  EXPECT_EQ(expected.size(), 1 + job.steps / job.evaluate_every);
  EXPECT_EQ(losses_of(2, true), expected);
  EXPECT_THAT(nccl.world.violations(), IsEmpty());
}

} // namespace
} // namespace parcae

// Training on fake devices when an abort of NCCL never returns: nobody waits for it, and it costs no bit.

#include "tests/gpu/training/nccl_of_cluster.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/executor_cluster.hpp"
#include "tests/support/names.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace parcae {
namespace {

/// A job of two ranks, which are the first two workers; "w2" computes in the second slot, as a keeper is the first, and
/// so on.
class pair_of_ranks {
public:
  using clock = std::chrono::steady_clock;

  explicit pair_of_ranks(std::uint32_t width) : width_(width), job_(small_batches("gpt")) {
    job_.steps = 12;
    job_.keeper_every = 1;
    cluster.emplace(job_);
    cluster->workers = nccl.workers(1);
    cluster->planner = [this](std::uint32_t slots, const auto&) {
      return slots < 2 ? configuration{0, 0, {}, 0, "too few"} : shape(job_, width_, 2 / width_);
    };
    cluster->on_effect = [this](const effect& x) {
      see(x);
      return true;
    };
    cluster->add_keeper("keeper");
  }

  /// Workers are called at `take_over` of the first generation, with their rank.
  void add_worker(std::function<fault_action(std::uint32_t rank)> at_take_over = {}) {
    const auto n = next_++;
    cluster->add_worker("w" + std::to_string(n), [this, n, at_take_over](const fault_point& at) {
      const bool first = at.at.value == 1 && std::string_view(at.phase) == "take_over";
      taken_over_ = taken_over_ || first;
      if (waits_for_abort && at.at.value == 1 && taken_over_ && std::string_view(at.phase) == "forward" &&
          waits_for_abort(n == ranks[0] ? 0 : 1, at.index))
        eventually([this] { return is_told_.load(); });
      return first && at_take_over ? at_take_over(n == ranks[0] ? 0 : 1) : fault_action::none;
    });
  }

  void never_returns_from_abort(std::uint32_t rank) {
    nccl.world.plan(ranks[rank], rig::nccl_call::abort, 1, rig::nccl_fault::freeze);
  }

  bool run_until_it_waits() {
    return cluster->run_until([&] { return answered_ && cluster->view().now == phase::waiting; });
  }

  void expect_answer_in_time() const {
    ASSERT_TRUE(told_ && answered_) << "no rank was told to abort, or none has said that it has";
    EXPECT_LT(*answered_ - *told_, 1s); // NCCL alone is given longer to end
  }

  void expect_undisturbed_end() {
    ASSERT_TRUE(cluster->run_until_ended()) << cluster->log().back();
    EXPECT_EQ(cluster->final_digest(), undisturbed_digest(job_, {one_for_each}));
    EXPECT_THAT(nccl.world.violations(), IsEmpty());
  }

  /// Whether that rank stays in that forward pass until then; may be empty.
  std::function<bool(std::uint32_t rank, std::uint64_t pass)> waits_for_abort;
  nccl_of_cluster nccl{1};
  std::array<std::atomic<std::uint32_t>, 2> ranks{}; ///< numbers of slots
  std::optional<executor_cluster> cluster;

private:
  void see(const effect& x) {
    if (const auto* r = std::get_if<record>(&x); r && r->what.starts_with("generation 1 ends at ") && !answered_)
      answered_ = clock::now();
    const auto* t = std::get_if<tell>(&x);
    if (!t)
      return;
    const auto* p = std::get_if<prepare>(t->what.get());
    for (std::uint32_t i = 0; p && p->next.value == 1 && i < 2; ++i)
      ranks[i] = static_cast<std::uint32_t>(std::stoul(p->target.participants[i].slot.instance.substr(1)));
    if (const auto* a = std::get_if<abort_generation>(t->what.get()); a && a->current.value == 1 && !told_)
      told_ = clock::now(), is_told_ = true;
  }

  const std::uint32_t width_;
  job_specification job_;
  std::uint32_t next_ = 2;
  std::atomic<bool> taken_over_ = false, is_told_ = false;
  std::optional<clock::time_point> told_;     ///< the survivor, to abort
  std::optional<clock::time_point> answered_; ///< it is decided how that ended, which it is if it said ABORTED
};

} // namespace

// given: of two ranks one dies as NCCL takes over, and the other's abort never returns, with nothing in the stream /
// expected: it answers ABORTED within 1 s, trains on without NCCL, and says why, with the undisturbed run's bits
TEST(stuck_nccl, is_done_without) {
  std::atomic<bool> killed = false;
  pair_of_ranks x(2);
  // Else a quick machine has a group in the survivor's stream before it is told.
  x.waits_for_abort = [](std::uint32_t, std::uint64_t pass) { return pass == 0; };
  for (int i = 0; i < 2; ++i)
    x.add_worker([&](std::uint32_t rank) {
      if (killed.exchange(true))
        return fault_action::none;
      x.never_returns_from_abort(1 - rank);
      return fault_action::kill;
    });
  ASSERT_TRUE(x.run_until_it_waits());
  x.expect_answer_in_time();
  x.add_worker();
  x.expect_undisturbed_end();
  EXPECT_EQ(x.cluster->view().current.value, 2u);
  std::vector<std::string> reasons;
  for (const auto& [rank, transport] : x.cluster->view().transports) {
    EXPECT_EQ(transport.by, "tcp");
    reasons.push_back(transport.reason);
  }
  EXPECT_THAT(reasons, Contains(HasSubstr("never returned in this process")));
}

// given: the same with a group in the stream, whose other end is lost / expected: it answers ABORTED within 1 s, and
// its process ends before what NCCL may still read or write is used again; with others the undisturbed run's bits
TEST(stuck_nccl, with_a_group_in_the_stream_ends_the_process) {
  std::atomic<bool> lost = false, stuck = false;
  std::atomic<std::uint64_t> groups = 0; ///< of the survivor, before
  pair_of_ranks x(1);
  // Then only what its first pass has sent is in its stream, and nothing that it computes waits for that.
  x.waits_for_abort = [](std::uint32_t rank, std::uint64_t pass) { return rank == 0 && pass == 1; };
  const auto groups_now = [&] { return x.nccl.world.calls_of(x.ranks[0], rig::nccl_call::end_group); };
  x.nccl.on_stuck = [&](std::uint64_t n, const std::string& why) {
    if (n != x.ranks[0])
      return; // its process is gone
    EXPECT_THAT(why, HasSubstr("NCCL has not ended its work on privateuseone:"));
    stuck = true;
    throw killed{};
  };
  x.nccl.world.on_fault([&](std::uint32_t n, rig::nccl_call) { lost = lost || n == x.ranks[1]; });
  for (int i = 0; i < 2; ++i)
    x.add_worker([&](std::uint32_t rank) {
      if (rank == 0) {
        groups = groups_now();
      } else {
        x.never_returns_from_abort(0);
        x.nccl.world.plan(x.ranks[1], rig::nccl_call::end_group, 1, rig::nccl_fault::die);
      }
      return fault_action::none;
    });
  ASSERT_TRUE(x.cluster->run_until([&] { return lost && groups_now() > groups; }));
  EXPECT_FALSE(stuck);
  x.cluster->kill("w" + std::to_string(x.ranks[1]));
  ASSERT_TRUE(x.run_until_it_waits());
  x.expect_answer_in_time();
  x.add_worker();
  ASSERT_TRUE(x.cluster->run_until([&] { return stuck.load(); }));
  x.cluster->kill("w" + std::to_string(x.ranks[0]));
  x.add_worker();
  x.expect_undisturbed_end();
}

} // namespace parcae

// Machines that train and keep, of which several go at once, as spot instances do; snapshots come as often as links
// allow. What is lost, and what `status` had said before.

#include "actors/conductor/model_facts.hpp"
#include "tests/simulation/cluster.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

namespace parcae::simulation {
namespace {

constexpr std::uint32_t machines = 24, lost_at_once = 6;
constexpr int losses = 50;

using holders = std::map<std::uint32_t, std::set<std::string>>; ///< by layer: their machines

class lost_machines : public testing::Test {
protected:
  /// Each layer is computed by one machine, so its other copies are what keepers have.
  static job_specification job() {
    job_specification x;
    x.model = {.kind = "mlp", .layers = 24, .width = 8, .sequence = 4, .vocabulary = 8};
    x.data.kind = "synthetic";
    x.data.samples = 1024;
    x.global_batch = 8;
    x.micro_batch = 1;
    x.virtual_replicas = 4;
    x.steps = 1'000'000;
    x.keeper_every = 0;
    x.keeper_copies = 2;
    x.max_width = 1;
    x.min_depth = machines - lost_at_once;
    x.max_depth = machines;
    x.policy = "throughput";
    return x;
  }

  void SetUp() override {
    cluster_options options;
    options.job = job();
    options.data.step = 400ms;
    options.data.shards.assign(facts_of(options.job).state_bytes.size(), 600ms); // twice that with half of a link
    c.emplace(options);
    c->start_manager();
    for (std::uint32_t i = 0; i < machines; ++i)
      start(i);
    ASSERT_TRUE(until([&] { return seen().newest_begun.value > 0; }));
  }

  void start(std::uint32_t i) {
    const auto name = std::to_string(i);
    c->start_node("k" + name, true, 1, "m" + name);
    c->start_node("w" + name, false, 1, "m" + name);
  }
  void kill(std::uint32_t i) {
    for (const auto* kind : {"k", "w"})
      c->kill_node(c->nodes().at(kind + std::to_string(i)), false);
  }

  const observed& seen() { return c->sees().seen(); }
  bool until(const std::function<bool()>& condition) {
    c->time().run_until(c->time().now() + 2min, condition);
    return condition();
  }
  void run_for(nanoseconds x) {
    c->time().run_until(c->time().now() + x, [] { return false; });
  }
  /// Steps of the newest generation that were exchanged, with those before it.
  std::uint64_t trained() {
    const auto& x = seen().generations.at(seen().newest_begun);
    return x.exchanged.empty() ? x.base.value_or(0) : *x.exchanged.rbegin() + 1;
  }

  bool is_in_chain(const version& x) {
    return std::ranges::any_of(seen().durable.chain, [&](const chain_link& link) {
      return link.by == x.by && x.steps > link.base && x.steps <= link.last;
    });
  }
  /// By version; `keepers`: they alone.
  std::map<version, holders> all_holders(bool keepers) {
    std::map<version, holders> result;
    for (const auto& [slot, held] : seen().held)
      for (const auto& x : held)
        if (c->nodes().contains(slot.instance) && (!keepers || slot.instance.front() == 'k') && is_in_chain(x.at))
          result[x.at][x.layer].insert(slot.instance.substr(1));
    return result;
  }
  /// Newest that somebody holds whole.
  std::uint64_t newest_whole() {
    const auto all = all_holders(false);
    const auto whole =
        std::ranges::find_if(all.rbegin(), all.rend(), [&](const auto& x) { return x.second.size() == seen().layers; });
    return whole == all.rend() ? 0 : whole->first.steps;
  }
  /// Of that version; fewest machines of any layer whose keepers have it.
  static std::size_t fewest(const holders& x, std::uint32_t layers) {
    std::size_t result = x.size() < layers ? 0 : machines;
    for (const auto& [layer, where] : x)
      result = std::min(result, where.size());
    return result;
  }
  std::optional<holders> kept_at(std::uint64_t steps) {
    for (const auto& [at, where] : all_holders(true))
      if (at.steps == steps)
        return where;
    return {};
  }

  std::set<std::string> some_machines() {
    std::vector<std::uint32_t> all(machines);
    std::iota(all.begin(), all.end(), 0);
    std::set<std::string> result;
    while (result.size() < lost_at_once)
      result.insert(std::to_string(c->chance().one_of(all)));
    return result;
  }

  std::optional<cluster> c;
};

// given: 24 machines with a worker and a keeper each, two copies; six of them are killed at once, 50 times, at any
// moment / expected: `status` says of no version more than keepers have; training goes on from the newest version of
// which each layer is left, and so from what status says that keepers have, unless all its copies of a layer went;
// nobody trains on what is not its steps
TEST_F(lost_machines, lose_steps_only_where_all_copies_were) {
  int stages = 0, copies = 0;
  std::uint64_t steps = 0;
  for (int i = 0; i < losses; ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(until([&] { return trained() > *seen().generations.at(seen().newest_begun).base + 5; }));
    run_for(c->chance().between(1s, 12s));
    const auto told = c->status();
    const auto kept = kept_at(told.copied_steps);
    if (told.copied_steps > 0) {
      ASSERT_TRUE(kept);
      EXPECT_GE(fewest(*kept, seen().layers), told.copies);
    }
    const auto g = seen().newest_begun;
    const auto before = trained();
    const auto gone = some_machines();
    for (const auto& x : gone)
      kill(static_cast<std::uint32_t>(std::stoul(x)));
    const auto left = newest_whole();
    ASSERT_TRUE(until([&] { return seen().newest_begun > g && seen().generations.at(seen().newest_begun).base; }));
    const auto base = *seen().generations.at(seen().newest_begun).base;
    EXPECT_GE(base, left);
    std::size_t max_lost = 0; // copies, of a layer that keepers have no more
    if (kept)
      for (const auto& [layer, where] : *kept)
        if (std::ranges::includes(gone, where))
          max_lost = std::max(max_lost, where.size());
    if (base < told.copied_steps) {
      EXPECT_GE(max_lost, told.copies) << "status had said that it takes more than that";
    }
    stages += base + 1 < before;
    copies += base < told.copied_steps;
    steps += before - std::min(before, base);
    for (const auto& x : gone)
      start(static_cast<std::uint32_t>(std::stoul(x)));
    ASSERT_THAT(c->sees().problems(), testing::IsEmpty());
  }
  RecordProperty("losses of steps", stages);
  RecordProperty("of all copies", copies);
  RecordProperty("steps", std::to_string(steps));
  EXPECT_GT(copies, 0) << "no layer went with all its copies";
  EXPECT_GT(stages, copies) << "what only keepers had was never needed";
}

} // namespace
} // namespace parcae::simulation

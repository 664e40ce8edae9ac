// Keepers that come, go and are lost at any moment while layers move: with two copies no version is lost that both had.

#include "tests/actors/conductor/dummy_cluster.hpp"

#include <gtest/gtest.h>

namespace parcae {
namespace {

constexpr std::uint32_t layers = 5;
constexpr std::uint32_t copies = 2;

/// Every layer that goes to a keeper is an event of its own, in random order.
class keeper_network {
public:
  explicit keeper_network(std::uint64_t seed) : random_(seed) {
    d.disk_problem = "it is about what is in memory";
    d.on_snapshot([this](shard_on_its_way x) { on_the_way_.push_back(std::move(x)); });
    for (const auto* name : {"k0", "k1"})
      add(name);
    d.join({"a", "b"});
    commit();
    deliver_all();
  }

  void add(const std::string& name) {
    d.add(name, true);
    keepers_.insert(name);
  }

  void lose(const std::string& name) {
    keepers_.erase(name);
    leaving_.erase(name);
    std::erase_if(on_the_way_, [&](const auto& x) { return x.from.instance == name || x.to.instance == name; });
    d.lose(name);
  }

  void come_back(const std::string& name) {
    keepers_.insert(name);
    d.come_back(name);
  }

  void lose_workers() {
    for (const auto* name : {"a", "b"})
      if (d.has(name))
        lose(name);
  }

  void notice(const std::string& name) {
    leaving_.insert(name);
    d.notice(name, 30s);
  }

  void commit() {
    if (d.view().now == phase::running)
      d.step();
  }

  /// One of the layers on their way arrives. False: there is none.
  bool deliver() {
    std::erase_if(on_the_way_, [](const auto& x) { return !*x.wanted; });
    if (on_the_way_.empty())
      return false;
    const auto at = on_the_way_.begin() + static_cast<std::ptrdiff_t>(random_() % on_the_way_.size());
    const auto x = *at;
    on_the_way_.erase(at);
    d.deliver(x);
    return true;
  }

  void deliver_all() {
    while (deliver()) {
    }
  }

  /// Newest version that keepers hold so many times, without one of them.
  version newest(std::uint32_t times, const std::string& without = {}) const {
    std::vector<holder> holders;
    for (const auto& name : keepers_)
      if (name != without)
        holders.push_back({{name, {1}, 0}, true, d.held(name)});
    return newest_complete(commit_chain(d.view().chain), layers, holders, times);
  }

  std::vector<std::string> keepers() const { return {keepers_.begin(), keepers_.end()}; }
  /// Keepers that are not under notice.
  std::size_t staying() const { return keepers_.size() - leaving_.size(); }
  bool has(const std::string& name) const { return keepers_.contains(name); }
  std::uint64_t draw(std::uint64_t n) { return random_() % n; }

  dummy_cluster d{layers, [](job_specification& job) {
                    job.steps = 1'000'000;
                    job.keeper_copies = copies;
                  }};

private:
  std::mt19937_64 random_;
  std::set<std::string> keepers_, leaving_;
  std::vector<shard_on_its_way> on_the_way_;
};

/// A run in which one keeper is lost at a given event.
struct rebalance {
  explicit rebalance(std::uint64_t seed) : network(seed) { safe = network.newest(copies); }

  /// Layers move to k2, away from k1, to k3; false if it was over before the event.
  bool run_to(std::uint64_t loss) {
    last = loss;
    const auto some = [&](int n) {
      for (int i = 0; i < n; ++i)
        event([&] { network.draw(4) == 0 ? network.commit() : void(network.deliver() || (network.commit(), true)); });
    };
    some(8);
    event([&] { network.add("k2"); });
    some(25);
    event([&] { network.notice("k1"); });
    some(25);
    event([&] { network.deliver_all(); });
    if (network.newest(copies, "k1") >= safe) // else that would be a loss itself
      event([&] { network.lose("k1"); });
    some(10);
    event([&] { network.add("k3"); });
    some(20);
    if (!network.has("k1"))
      event([&] { network.add("k1"); });
    some(20);
    return events == loss;
  }

  /// What has two copies is there still whichever keeper is lost.
  template <class Function>
  void event(Function&& f) {
    if (events == last)
      return;
    ++events;
    f();
    safe = std::max(safe, network.newest(copies));
    for (const auto& name : network.keepers())
      EXPECT_GE(network.newest(1, name), safe) << "without " << name << " after event " << events;
    EXPECT_THAT(network.d.errors(), ::testing::IsEmpty());
  }

  keeper_network network;
  version safe; ///< the newest that ever had two copies
  std::uint64_t events = 0;
  std::uint64_t last = 0;
};

// given: a keeper lost at each event of a rebalance, while training goes on / expected: one snapshot later all layers
// have two copies again, as newly as ever, and status says so
TEST(keeper_rebalance, a_loss_at_each_event_is_made_good_by_the_next_snapshot) {
  for (const std::uint64_t seed : {1, 2, 3})
    for (std::uint64_t at = 1;; ++at) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", event " + std::to_string(at));
      bool over = true;
      for (const auto* name : {"k0", "k1", "k2", "k3"}) {
        rebalance x(seed);
        if (!x.run_to(at) || (over = false, !x.network.has(name)))
          continue;
        auto& network = x.network;
        network.lose(name);
        ASSERT_GE(network.newest(1), x.safe) << "nothing that had copies is lost with " << name;
        network.commit();
        network.deliver_all();
        if (network.staying() < copies) {
          EXPECT_EQ(network.d.view().copies_problem, "there is 1 keeper");
          continue;
        }
        EXPECT_EQ(network.newest(copies).steps, network.d.view().steps_done);
        EXPECT_EQ(network.d.view().copies, copies);
        EXPECT_EQ(network.d.view().copies_problem, "");
        for (const auto& other : network.keepers())
          EXPECT_GT(network.newest(1, other), x.safe);
      }
      if (over)
        break;
    }
}

// given: the same, and all workers are lost with it / expected: keepers bring each other what they hold, so that
// another may be lost then, and training goes on with what had two copies, or newer
TEST(keeper_rebalance, keepers_fill_each_other_when_nobody_trains) {
  for (const std::uint64_t seed : {4, 5, 6})
    for (std::uint64_t at = 1;; ++at) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", event " + std::to_string(at));
      bool over = true;
      for (const auto* name : {"k0", "k1", "k2", "k3"})
        for (const bool workers_first : {false, true}) {
          rebalance x(seed);
          if (!x.run_to(at) || (over = false, !x.network.has(name)))
            continue;
          auto& network = x.network;
          if (workers_first)
            network.lose_workers();
          network.lose(name);
          if (!workers_first)
            network.lose_workers();
          network.deliver_all();
          ASSERT_EQ(network.d.view().now, phase::waiting);
          if (network.staying() >= copies) {
            ASSERT_GE(network.newest(copies), x.safe) << "without " << name;
            EXPECT_EQ(network.d.view().copies_problem, "");
            network.lose(network.keepers()[network.draw(network.keepers().size())]);
          }
          network.d.join({"c"});
          EXPECT_EQ(network.d.view().now, phase::running) << network.d.view().problem;
          EXPECT_GE(network.d.view().steps_done, x.safe.steps);
          EXPECT_THAT(network.d.errors(), ::testing::IsEmpty());
        }
      if (over)
        break;
    }
}

// given: a keeper whose connection is lost for some steps, with what two copies there were of; the other is lost as
// soon as it is back / expected: its old version is still there
TEST(keeper_rebalance, what_a_keeper_comes_back_with_is_kept_until_it_has_newer) {
  keeper_network network(7);
  const auto before = network.newest(copies);
  network.lose("k0");
  for (int i = 0; i < 20; ++i) {
    network.commit();
    network.deliver_all();
  }
  ASSERT_GT(network.d.view().protected_version, before);
  network.come_back("k0");
  EXPECT_EQ(network.newest(1, "k1"), before);
  EXPECT_EQ(network.d.view().copies, 1u);
  network.deliver_all(); // from k1
  EXPECT_EQ(network.d.view().copies, copies);
  EXPECT_EQ(network.newest(1, "k1"), network.newest(1, "k0"));
}

} // namespace
} // namespace parcae

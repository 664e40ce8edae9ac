// Keepers that come, go and are lost at any moment while layers move: with two copies no version is lost that both had.

#include "gpu/keeper/keeper_machine.hpp"
#include "tests/actors/conductor/dummy_cluster.hpp"

#include <gtest/gtest.h>

namespace parcae {
namespace {

constexpr std::uint32_t layers = 5;
constexpr std::uint32_t copies = 2;
constexpr job_id job{1};

/// Carries the rules of keepers; every layer that goes to one is an event of its own, in random order.
class keeper_network {
public:
  explicit keeper_network(std::uint64_t seed) : random_(seed) {
    for (const auto* name : {"k0", "k1"})
      add(name);
    for (const auto* name : {"a", "b"})
      d.add(name);
    d.advance(20ms);
    commit();
    deliver_all();
  }

  void add(const std::string& name) {
    const auto where = d.add(name, true);
    machines_.erase(name);
    machines_.try_emplace(name, where.slot, false);
    seen_[name] = 0;
    obey();
  }

  void lose(const std::string& name) {
    machines_.erase(name);
    leaving_.erase(name);
    std::erase_if(on_the_way_, [&](const auto& x) { return x.from == name || x.to == name; });
    d.lose(name);
    obey();
  }

  /// It is lost, but not what it holds.
  void part(const std::string& name) {
    std::erase_if(on_the_way_, [&](const auto& x) { return x.from == name || x.to == name; });
    away_ = machines_.extract(name);
    d.lose(name);
    obey();
  }

  void come_back(const std::string& name) {
    machines_.insert(std::move(away_));
    d.come_back(name);
    obey();
  }

  void lose_workers() {
    for (const auto* name : {"a", "b"})
      if (d.has(name))
        d.lose(name);
    std::erase_if(on_the_way_, [](const auto& x) { return x.from == "worker"; });
    obey();
  }

  void notice(const std::string& name) {
    leaving_.insert(name);
    d.notice(name, 30s);
    obey();
  }

  /// A step, with a snapshot if one is due.
  void commit() {
    if (d.view().now != phase::running)
      return;
    d.step();
    obey();
    const auto steps = d.view().steps_done;
    if (d.view().now != phase::running || (!wanted_ && steps % 4 != 0))
      return;
    wanted_ = false;
    for (const auto& [keeper, share] : shares_)
      for (const auto layer : share)
        on_the_way_.push_back({"worker", keeper.slot.instance, layer, {steps, d.view().current}});
  }

  /// One of the layers on their way arrives. False: there is none.
  bool deliver() {
    if (on_the_way_.empty())
      return false;
    const auto at = on_the_way_.begin() + static_cast<std::ptrdiff_t>(random_() % on_the_way_.size());
    const auto x = *at;
    on_the_way_.erase(at);
    auto& to = machines_.at(x.to);
    carry_out(x.to, to.arrived(job, std::make_shared<const shard_bytes>(shard_bytes{x.layer, x.at, {}}),
                               {.step = x.at.steps - 1}));
    carry_out(x.to, to.caught_up());
    obey();
    return true;
  }

  void deliver_all() {
    while (deliver()) {
    }
  }

  /// Newest version that keepers hold so many times, without one of them.
  version newest(std::uint32_t times, const std::string& without = {}) const {
    std::vector<holder> holders;
    for (const auto& [name, x] : machines_)
      if (name != without)
        holders.push_back({{name, {1}, 0}, true, x.shards().held()});
    return newest_complete(commit_chain(d.view().chain), layers, holders, times);
  }

  std::vector<std::string> keepers() const {
    std::vector<std::string> result;
    for (const auto& [name, x] : machines_)
      result.push_back(name);
    return result;
  }
  /// Keepers that are not under notice.
  std::size_t staying() const { return machines_.size() - leaving_.size(); }
  bool has(const std::string& name) const { return machines_.contains(name); }
  std::uint64_t draw(std::uint64_t n) { return random_() % n; }

  dummy_cluster d{layers, [](job_specification& job) {
                    job.steps = 1'000'000;
                    job.keeper_copies = copies;
                  }};

private:
  struct shard_on_its_way {
    std::string from, to;
    std::uint32_t layer;
    version at;
  };

  /// Keepers do what they were told; so do streams of workers.
  void obey() {
    for (bool news = true; std::exchange(news, false);)
      for (const auto& name : keepers()) {
        for (auto& seen = seen_.at(name); d.has(name) && seen < d.told(name).size(); news = true) {
          const auto what = d.told(name)[seen++]; // a copy: there may be more
          carry_out(name, machines_.at(name).take(what));
        }
      }
    for (const auto* name : {"a", "b"})
      if (d.has(name))
        listen(d.told(name));
  }

  /// What is about shards; the rest the dummy says.
  void carry_out(const std::string& name, const keeper_machine::effects& all) {
    for (const auto& x : all)
      if (const auto* s = std::get_if<keeper_effects::say>(&x); s && std::holds_alternative<kept>(s->what))
        d.hold(name, std::get<kept>(s->what).held);
      else if (const auto* c = std::get_if<keeper_effects::copy>(&x))
        for (const auto& shard : c->sent->shards)
          if (const auto& to = c->what.to.slot.instance; machines_.contains(to))
            on_the_way_.push_back({name, to, shard->layer, shard->at});
  }

  void listen(const std::vector<command>& told) {
    for (auto x = told.rbegin(); x != told.rend(); ++x)
      if (const auto* p = std::get_if<protect>(&*x)) {
        const auto number =
            std::ranges::count_if(told, [](const auto& y) { return std::holds_alternative<protect>(y); });
        if (shares_ == p->keepers && number == protects_)
          return;
        protects_ = number;
        shares_ = p->keepers;
        wanted_ |= p->now;
        std::erase_if(on_the_way_, [](const auto& y) { return y.from == "worker"; }); // streams begin anew
        return;
      }
  }

  std::mt19937_64 random_;
  std::map<std::string, keeper_machine> machines_;
  std::map<std::string, keeper_machine>::node_type away_;
  std::set<std::string> leaving_;
  std::map<std::string, std::size_t> seen_; ///< commands
  std::vector<shard_on_its_way> on_the_way_;
  std::vector<keeper_share> shares_; ///< as the workers were told last
  std::ptrdiff_t protects_ = 0;
  bool wanted_ = false; ///< a snapshot at the next commit
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
          network.d.add("c");
          network.d.advance(20ms);
          EXPECT_EQ(network.d.view().now, phase::running);
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
  network.part("k0");
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

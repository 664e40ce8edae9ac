#pragma once

// What is done to a cluster, by chance.

#include "tests/simulation/cluster.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace parcae::simulation {

/// Does harm to a cluster.
class harm {
public:
  harm(cluster& c, std::size_t workers, std::size_t keepers, fault wrong) :
      c_(c), workers_(workers), keepers_(keepers), usual_(what_shows(wrong)) {}

  void do_something() {
    if (usual_ && c_.chance().percent(30))
      return (this->*usual_)();
    static constexpr std::array<deed, 32> deeds{
        &harm::start_worker,  &harm::start_worker, &harm::start_worker, &harm::start_worker,      &harm::kill_one,
        &harm::kill_one,      &harm::kill_one,     &harm::kill_two,     &harm::give_notice,       &harm::give_notice,
        &harm::freeze,        &harm::freeze,       &harm::cut_control,  &harm::cut_data,          &harm::reset,
        &harm::break_down,    &harm::kill_manager, &harm::kill_manager, &harm::freeze_manager,    &harm::freeze_manager,
        &harm::break_journal, &harm::kill_keeper,  &harm::start_keeper, &harm::harm_keeper,       &harm::lose_data,
        &harm::take_memory,   &harm::slow_down,    &harm::cut_store,    &harm::supersede_manager, &harm::lose_word,
        &harm::lose_word,     &harm::strand};
    (this->*deeds[c_.chance().below(deeds.size())])();
  }

  /// To a cluster that serves: also to gateways.
  void do_something_to_service() {
    static constexpr std::array<deed, 4> deeds{&harm::start_gateway, &harm::kill_gateway, &harm::harm_gateway,
                                               &harm::harm_gateway};
    c_.chance().percent(20) ? (this->*deeds[c_.chance().below(deeds.size())])() : do_something();
  }

  void start_gateway() {
    for (const auto* name : {"g0", "g1"})
      if (!c_.nodes().contains(name))
        return c_.start_gateway(name);
  }

  void start_worker() {
    for (std::size_t i = 0; i < workers_; ++i)
      if (const auto name = "w" + std::to_string(i); !c_.nodes().contains(name))
        return c_.start_node(name, false, 1 + static_cast<std::uint32_t>(c_.chance().below(2)));
  }

  void start_keeper() {
    for (std::size_t i = 0; i < keepers_; ++i)
      if (const auto name = "k" + std::to_string(i); !c_.nodes().contains(name))
        return c_.start_node(name, true, 1);
  }

  /// A keeper comes, and another manager within that time.
  void hurry(nanoseconds most) {
    c_.kill_manager();
    start_keeper();
    c_.time().after(c_.chance().between(0ms, most), [this] { c_.start_manager(); });
  }

private:
  using deed = void (harm::*)();

  /// Some faults show in what chance brings too seldom for a test.
  static deed what_shows(fault x) {
    switch (x) {
    case fault::repeated_prepare_unanswered:
      return &harm::lose_word;
    case fault::trains_when_superseded:
      return &harm::strand;
    case fault::limits_forgotten:
      return &harm::slow_down;
    default:
      return nullptr;
    }
  }

  node_ptr any(bool keeper) {
    std::vector<node_ptr> all;
    for (const auto& [name, x] : c_.nodes())
      if (x->keeper == keeper && !x->gateway)
        all.push_back(x);
    return all.empty() ? nullptr : c_.chance().one_of(all);
  }

  /// Mostly short.
  nanoseconds a_while() { return c_.chance().between(50ms, c_.chance().percent(70) ? 1'500ms : 9s); }

  template <class Function>
  void to_any(bool keeper, Function f) {
    if (const auto x = any(keeper))
      f(x);
  }

  void kill_one() {
    to_any(false, [&](const auto& x) { c_.kill_node(x, c_.chance().percent(30)); });
  }
  void kill_two() {
    kill_one();
    kill_one();
  }
  void give_notice() {
    to_any(false, [&](const auto& x) { c_.give_notice(x, std::chrono::milliseconds(c_.chance().below(20'000))); });
  }
  void freeze() {
    to_any(false, [&](const auto& x) { c_.freeze_node(x, a_while()); });
  }
  void cut_control() {
    to_any(c_.chance().percent(20), [&](const auto& x) { c_.cut_control(x, a_while()); });
  }
  void cut_data() {
    to_any(c_.chance().percent(20), [&](const auto& x) { c_.cut_data(x, a_while()); });
  }
  void reset() {
    to_any(c_.chance().percent(20), [&](const auto& x) { c_.reset(x); });
  }
  /// PREPARE … PROTECT, PREPARED … DECIDED; also where a manager takes that for no loss: after its start, or a
  /// standstill.
  void lose_word() {
    const auto first = c_.chance().below(3);
    if (first == 1)
      c_.freeze_manager(c_.chance().between(1'600ms, 1'900ms));
    else if (first == 2)
      kill_manager();
    if (first > 0)
      c_.time().after(c_.chance().between(2s, 5s), [this] { start_worker(); }); // a change
    if (c_.chance().percent(25))
      return c_.lose_next(false, 1);
    const bool command = c_.chance().percent(50);
    c_.lose_next(command, 1 + c_.chance().below(command ? 8 : 7));
  }
  /// A generation whose ranks are back after the next manager has given them up: it trains on.
  void strand() {
    const auto& all = c_.sees().seen().generations;
    const auto known = all.find(c_.sees().seen().newest_begun);
    if (known == all.end() || !c_.has_manager())
      return;
    std::set<std::string> names;
    for (std::uint32_t r = 0; r < known->second.grid.ranks(); ++r)
      names.insert(known->second.grid.participants[r].slot.instance);
    for (const auto& name : names)
      if (c_.nodes().contains(name))
        c_.cut_control(c_.nodes().at(name), c_.chance().between(5'500ms, 9s));
    c_.kill_manager();
    c_.time().after(c_.chance().between(50ms, 500ms), [this] { c_.start_manager(); });
  }
  void break_down() {
    to_any(false, [&](const auto& x) { c_.break_down(x); });
  }
  void lose_data() {
    to_any(false, [&](const auto& x) { c_.lose_data(x, a_while()); });
  }
  /// One of three beyond what the conductor waits for.
  void slow_down() {
    const bool beyond = c_.chance().below(3) == 0;
    to_any(c_.chance().percent(20), [&](const auto& x) {
      beyond ? c_.slow_down(x, c_.chance().between(65s, 90s), 20s)
             : c_.slow_down(x, c_.chance().between(10ms, 3s), a_while());
    });
  }
  void take_memory() {
    to_any(false, [&](const auto& x) { c_.take_memory(x, a_while()); });
  }
  void kill_manager() {
    if (!c_.has_manager())
      return;
    c_.kill_manager();
    if (c_.chance().percent(15))
      c_.break_reading(1 + c_.chance().below(3));
    restart_manager();
  }
  void restart_manager() {
    c_.time().after(a_while(), [this] { c_.start_manager(); });
  }
  void freeze_manager() { c_.freeze_manager(a_while()); }
  void cut_store() { c_.cut_store(a_while()); }
  /// It stands still when its lease ends, so shortly that its nodes do not notice, and goes on while another one leads.
  void supersede_manager() {
    if (!c_.has_standby())
      return freeze_manager();
    c_.cut_store(6s);
    c_.time().after(c_.chance().between(2s, 3'900ms), [this] {
      c_.freeze_manager(c_.chance().between(1s, 2'400ms));
      c_.chance().percent(50) ? kill_one() : give_notice(); // something to do when it goes on
    });
  }
  void break_journal() { c_.break_journal(); }
  template <class Function>
  void to_gateway(Function f) {
    std::vector<node_ptr> all;
    for (const auto& [name, x] : c_.nodes())
      if (x->gateway)
        all.push_back(x);
    if (!all.empty())
      f(c_.chance().one_of(all));
  }
  void kill_gateway() {
    to_gateway([&](const auto& x) { c_.kill_node(x, c_.chance().percent(30)); });
  }
  void harm_gateway() {
    to_gateway([&](const auto& x) {
      switch (c_.chance().below(4)) {
      case 0:
        return c_.freeze_node(x, a_while());
      case 1:
        return c_.give_notice(x, std::chrono::milliseconds(c_.chance().below(20'000)));
      case 2:
        return c_.cut_control(x, a_while());
      default:
        return c_.reset(x);
      }
    });
  }
  void kill_keeper() {
    if (c_.chance().percent(40))
      to_any(true, [&](const auto& x) { c_.kill_node(x, c_.chance().percent(30)); });
  }
  void harm_keeper() {
    to_any(true, [&](const auto& x) {
      switch (c_.chance().below(3)) {
      case 0:
        return c_.freeze_node(x, a_while());
      case 1:
        return c_.give_notice(x, std::chrono::milliseconds(c_.chance().below(20'000)));
      default:
        c_.fill_disk(x->name, c_.chance().percent(50));
      }
    });
  }

  cluster& c_;
  const std::size_t workers_, keepers_;
  const deed usual_; ///< null: none is
};

} // namespace parcae::simulation

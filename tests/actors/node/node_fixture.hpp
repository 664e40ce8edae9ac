#pragma once

// The actors of a node with dummy executors, in virtual time.

#include "actors/node/instance.hpp"
#include "tests/support/actor_fixture.hpp"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

using namespace std::chrono_literals;

/// A worker. Notes the numbers of its commands; answers STOP; throws at ACTIVATE.
struct dummy_executor : executor_of<worker_command> {
  slot_id slot;
  std::function<void(report)> report_to;
  std::vector<std::string>* seen = nullptr;

  void obey(worker_command x) override {
    seen->push_back(std::to_string(x.index()));
    if (auto s = std::get_if<stop>(&x))
      report_to(stopped{s->current, {}, {}});
    if (std::holds_alternative<activate>(x))
      throw std::runtime_error("broken");
  }
  void want_snapshot() override { seen->push_back("snapshot"); }
};

struct node_test : actor_test {
  std::vector<std::string> seen;
  int made = 0;
  int retired = 0;
  std::vector<std::pair<slot_id, report>> reports;
  report_sink sink =
      owned(system.spawn([this](report_sink::pointer) { return sink_behavior(std::type_identity<report>{}); }));

  template <class... Reports>
  report_sink::behavior_type sink_behavior(std::type_identity<std::variant<Reports...>>) {
    return {[this](const slot_id& from, const Reports& x) { reports.emplace_back(from, x); }...};
  }

  executor_source source() {
    executor_source result;
    result.make = [this](const slot_id& slot, std::function<void(report)> f) {
      auto x = std::make_unique<dummy_executor>();
      x->slot = slot;
      x->report_to = std::move(f);
      x->seen = &seen;
      ++made;
      return x;
    };
    result.retire = [this](std::unique_ptr<executor>) { ++retired; };
    return result;
  }
};

} // namespace parcae

#pragma once

// The actors of a node with dummy executors, in virtual time.

#include "actors/node/instance.hpp"
#include "protocols/wire/behaviors.hpp"
#include "tests/support/actor_fixture.hpp"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

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
  report_sink sink = sink_for([this](const slot_id& from, const auto& x) { reports.emplace_back(from, x); });

  template <class Hear>
  report_sink sink_for(Hear hear) {
    return owned(system.spawn([hear](report_sink::pointer) {
      return behavior_of_each_from<report_sink::behavior_type>(std::type_identity<slot_id>{},
                                                               std::type_identity<report>{}, hear);
    }));
  }

  /// As from another process: exits and errors, also in the name of those of this one.
  void say_the_end_to(const caf::strong_actor_ptr& to, const std::vector<caf::strong_actor_ptr>& in_the_name_of) {
    const auto hear = [&](auto x) { to->enqueue(nullptr, caf::make_message_id(), caf::make_message(x), nullptr); };
    const caf::scoped_actor other(system, true);
    for (auto reason : {caf::exit_reason::user_shutdown, caf::exit_reason::remote_link_unreachable}) {
      other->send_exit(to, reason);
      for (const auto& x : in_the_name_of) {
        hear(caf::exit_msg{caf::actor_cast<caf::actor_addr>(x), reason});
        hear(caf::down_msg{caf::actor_cast<caf::actor_addr>(x), reason});
      }
    }
    hear(caf::make_error(parcae_error::internal));
    run();
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

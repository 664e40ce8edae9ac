#pragma once

// One node on CAF's test scheduler: no threads, messages run when told, virtual time.

#include "protocols/wire/type_ids.hpp"
#include "tests/support/names.hpp"

#include <caf/actor.hpp>
#include <caf/actor_cast.hpp>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/error.hpp>
#include <caf/exit_reason.hpp>
#include <caf/expected.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>

#include <algorithm>
#include <chrono>
#include <vector>

namespace parcae {

struct deterministic_config : caf::actor_system_config {
  deterministic_config() {
    parcae::add_message_types(*this);
    set("scheduler.policy", caf::atom("testing"));
    set("logger.inline-output", true);
  }
};

class actor_test : public testing::Test {
protected:
  actor_test() {
    // Time 0 is special to the clock.
    scheduler.clock().current_time += std::chrono::minutes(60);
  }

  void TearDown() override {
    for (auto i = spawned_.rbegin(); i != spawned_.rend(); ++i)
      caf::anon_send_exit(*i, caf::exit_reason::user_shutdown);
    spawned_.clear();
    run();
    // A pending timer would keep its actor, and the system's destructor waiting.
    scheduler.clock().cancel_all();
    run();
  }

  /// Runs all messages; no time passes.
  void run() { scheduler.run(); }

  /// In steps: who notices that its process stood still shall not.
  void advance(std::chrono::milliseconds x) {
    constexpr std::chrono::milliseconds longest{500};
    do {
      scheduler.clock().advance_time(std::min(x, longest));
      run();
      x -= std::min(x, longest);
    } while (x.count() > 0);
  }

  /// A message, and all that follows from it.
  template <class Handle, class... Ts>
  void tell(const Handle& to, const Ts&... xs) {
    self->send(to, xs...);
    run();
  }

  /// Nothing lets an actor survive it.
  template <class Handle>
  void kill(const Handle& x) {
    caf::anon_send_exit(x, caf::exit_reason::kill);
    run();
  }

  /// As by SIGSTOP and SIGCONT: what became due meanwhile happens at its end.
  void stand_still(std::chrono::milliseconds x) { scheduler.clock().current_time += x; }

  /// Ends the actor when the test ends.
  template <class Handle>
  Handle owned(Handle x) {
    spawned_.push_back(caf::actor_cast<caf::actor>(x));
    return x;
  }

  /// The answer to a request, or the error.
  template <class Answer, class Handle, class... Ts>
  caf::expected<Answer> ask(const Handle& to, const Ts&... xs) {
    caf::expected<Answer> result{caf::make_error(parcae_error::internal)};
    auto pending = self->request(to, std::chrono::minutes(60), xs...);
    run();
    pending.receive([&](Answer& x) { result = std::move(x); }, [&](caf::error& e) { result = std::move(e); });
    return result;
  }

  deterministic_config config;
  caf::actor_system system{config};
  caf::scheduler::test_coordinator& scheduler = dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
  caf::scoped_actor self{system, true};

private:
  std::vector<caf::actor> spawned_;
};

} // namespace parcae

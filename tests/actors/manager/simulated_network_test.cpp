// A manager and a node in one process over CAF's simulated network: real registry, real instance, real heartbeats,
// virtual time.

#include "actors/manager/registry.hpp"
#include "actors/node/instance.hpp"
#include "protocols/client/client.hpp"
#include "protocols/wire/behaviors.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <caf/io/network/test_multiplexer.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include <gmock/gmock.h>

#include <algorithm>

namespace parcae {
namespace {

using namespace std::chrono_literals;

constexpr std::uint16_t manager_port = 4242;

struct simulated_config : caf::actor_system_config {
  simulated_config() {
    parcae::add_message_types(*this);
    load<caf::io::middleman>();
    set("scheduler.policy", caf::atom("testing"));
    set("logger.inline-output", true);
    set("middleman.network-backend", caf::atom("testing"));
    set("middleman.manual-multiplexing", true);
    set("middleman.attach-utility-actors", true);
    set("middleman.workers", std::size_t{0});
    set("middleman.heartbeat-interval", caf::timespan(500ms));
    set("middleman.connection-timeout", caf::timespan(2s));
  }
};

struct simulated_node {
  simulated_config config;
  caf::actor_system system{config};
  caf::scheduler::test_coordinator& scheduler = dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
  caf::io::network::test_multiplexer& network =
      dynamic_cast<caf::io::network::test_multiplexer&>(system.middleman().backend());
  bool frozen = false; ///< as by SIGSTOP: makes no step

  simulated_node() { scheduler.clock().current_time += 1h; }

  bool step() {
    return !frozen && (scheduler.try_run_once() || network.read_data() || network.try_exec_runnable() ||
                       network.try_accept_connection());
  }
};

/// Answers STOP.
struct dummy_executor : executor {
  std::function<void(report)> report_to;

  void submit(command x) override {
    if (const auto* s = std::get_if<stop>(&x))
      report_to(stopped{s->current, {}, {}});
  }
  void want_snapshot() override {}
};

struct simulated_network : testing::Test {
  simulated_node manager;
  simulated_node node;
  int made = 0;                            ///< executors at the node
  int retired = 0;                         ///< of these
  instance_actor said_instance;            ///< what HELLO names, as the manager's system sees it
  std::vector<slot_actor> said_slots;      ///< the same
  slot_id said_slot;                       ///< the first
  std::vector<caf::strong_actor_ptr> said; ///< senders of reports, the same
  const caf::io::accept_handle acceptor = caf::io::accept_handle::from_int(1);
  std::int64_t handles = 1;
  registry_actor registry;
  instance_actor instance;
  std::vector<std::string> ended;
  std::vector<caf::actor> own; ///< of the manager's system

  /// What is published: notes the handles of HELLO, and passes all on.
  manager_actor listen() {
    auto result = manager.system.spawn([this](manager_actor::pointer self) -> manager_actor::behavior_type {
      return {[=, this](const client_request& x) { return self->delegate(registry, x); },
              [=, this](const hello& x, const instance_actor& handle, const std::vector<slot_actor>& slots) {
                said_instance = handle;
                said_slots = slots;
                said_slot = {x.name, x.life, 0};
                return self->delegate(registry, x, handle, slots);
              },
              [=, this](const leaving_notice& x) { self->send(registry, x); }};
    });
    own.push_back(caf::actor_cast<caf::actor>(result));
    return result;
  }

  report_sink spawn_sink() {
    auto result = manager.system.spawn([this](report_sink::pointer self) -> report_sink::behavior_type {
      return behavior_of_each_from<report_sink::behavior_type>(
          std::type_identity<slot_id>{}, std::type_identity<report>{},
          [=, this](const slot_id&, const auto&) { said.push_back(self->current_sender()); });
    });
    own.push_back(caf::actor_cast<caf::actor>(result));
    return result;
  }

  void SetUp() override {
    run();
    registry_config in_virtual_time;
    in_virtual_time.own_threads = false;
    registry = manager.system.spawn(parcae::registry, in_virtual_time);
    let_connect();
    const auto listener = listen();
    manager.scheduler.inline_next_enqueue();
    ASSERT_TRUE(manager.system.middleman().publish(listener, manager_port));
    instance_config x;
    x.introduction.name = "a";
    x.introduction.host = "127.0.0.1";
    x.introduction.port = 1;
    x.managers = {{"manager", manager_port}};
    x.seed = 1;
    x.dialler = node.system.middleman().actor_handle();
    x.source.make = [this](const slot_id&, std::function<void(report)> f) {
      ++made;
      auto result = std::make_unique<dummy_executor>();
      result->report_to = std::move(f);
      return result;
    };
    x.source.retire = [this](std::unique_ptr<executor>) { ++retired; };
    x.ended = [this](const instance_ending& how) { ended.push_back(how.failure); };
    instance = node.system.spawn(parcae::instance, std::move(x));
    run();
    advance(1ms);
  }

  void TearDown() override {
    node.frozen = false;
    caf::anon_send_exit(instance, caf::exit_reason::kill); // it ignores all others
    caf::anon_send_exit(registry, caf::exit_reason::user_shutdown);
    for (const auto& x : own)
      caf::anon_send_exit(x, caf::exit_reason::user_shutdown);
    own.clear();
    said.clear();
    said_slots.clear();
    said_instance = nullptr;
    instance = nullptr;
    registry = nullptr;
    run();
    for (auto x : {&manager, &node})
      x->scheduler.clock().cancel_all();
    run();
  }

  /// The node's next dial of the manager finds it.
  void let_connect() {
    auto at_manager = caf::io::connection_handle::from_int(++handles);
    auto at_node = caf::io::connection_handle::from_int(++handles);
    manager.network.prepare_connection(acceptor, at_manager, node.network, "manager", manager_port, at_node);
  }

  void run() {
    while (manager.step() || node.step())
      continue;
  }

  void advance(std::chrono::milliseconds x) {
    for (auto each : {&manager, &node})
      if (!each->frozen)
        each->scheduler.clock().advance_time(x);
    run();
  }

  status_reply status() {
    caf::scoped_actor self(manager.system, true);
    auto pending = self->request(registry, std::chrono::minutes(60), client_request{encode(request{status_request{}})});
    run();
    status_reply result;
    pending.receive([&](const client_reply& x) { result = std::get<status_reply>(decode_reply(x.bytes)); },
                    [](const caf::error& e) { ADD_FAILURE() << render(e); });
    return result;
  }

  /// State of each life of the instance.
  std::vector<std::string> states() {
    std::vector<std::string> result;
    for (const auto& i : status().instances)
      result.push_back(i.state);
    return result;
  }

  std::vector<std::string> news() {
    std::vector<std::string> result;
    for (const auto& n : status().news)
      result.push_back(n.text);
    return result;
  }
};

// given: a healthy connection for an hour / expected: heartbeats keep it, no loss is declared
TEST_F(simulated_network, heartbeats_keep_a_quiet_instance) {
  EXPECT_THAT(states(), testing::ElementsAre("alive"));
  for (int i = 0; i < 7200; ++i)
    advance(500ms);
  EXPECT_THAT(states(), testing::ElementsAre("alive"));
}

// given: the node stands still / expected: not lost after 1.5 s, lost after 2.5 s
TEST_F(simulated_network, a_frozen_node_is_lost_in_time) {
  node.frozen = true;
  for (int i = 0; i < 3; ++i)
    advance(500ms);
  EXPECT_THAT(states(), testing::ElementsAre("alive"));
  for (int i = 0; i < 2; ++i)
    advance(500ms);
  EXPECT_THAT(states(), testing::ElementsAre("lost"));
}

// given: the frozen node continues / expected: the same life is a member again
TEST_F(simulated_network, a_thawed_node_returns_with_its_life) {
  node.frozen = true;
  for (int i = 0; i < 6; ++i)
    advance(500ms);
  node.frozen = false;
  let_connect();
  node.scheduler.clock().advance_time(3s);
  run();
  for (int i = 0; i < 4; ++i)
    advance(500ms);
  EXPECT_THAT(states(), testing::ElementsAre("alive"));
  EXPECT_TRUE(ended.empty());
}

// given: the manager stands still for 3 s, and the node gives its connection up / expected: its return is no loss
TEST_F(simulated_network, a_thawed_manager_lost_nobody) {
  manager.frozen = true;
  for (int i = 0; i < 6; ++i)
    advance(500ms);
  let_connect();
  manager.frozen = false;
  manager.scheduler.clock().advance_time(3s);
  run();
  for (int i = 0; i < 6; ++i)
    advance(500ms);
  EXPECT_THAT(states(), testing::ElementsAre("alive"));
  EXPECT_THAT(news(), testing::Not(testing::Contains(testing::HasSubstr("lost"))));
  EXPECT_TRUE(ended.empty());
}

// given: exits and errors from another process to all handles that a node tells, also in the name of its own actors
// expected: none of its actors ends, its executor stays
TEST_F(simulated_network, nobody_elsewhere_ends_a_nodes_actors) {
  ASSERT_EQ(said_slots.size(), 1u);
  const auto sink = spawn_sink();
  caf::scoped_actor self(manager.system, true);
  const addressee here{said_slot, {1}};
  const auto stop_is_answered = [&] {
    const auto before = said.size();
    self->send(said_slots[0], here, stop{{1}});
    run();
    advance(500ms); // what a broker wrote may leave with the next heartbeat
    return said.size() == before + 1;
  };
  self->send(said_slots[0], attach_atom_v, here, sink);
  ASSERT_TRUE(stop_is_answered());
  const std::vector told = {caf::actor_cast<caf::strong_actor_ptr>(said_instance),
                            caf::actor_cast<caf::strong_actor_ptr>(said_slots[0]), said.front()};
  ASSERT_NE(told[1], told[2]) << "the stage speaks for itself";
  for (const auto& to : told) {
    for (auto reason : {caf::exit_reason::user_shutdown, caf::exit_reason::remote_link_unreachable}) {
      self->send_exit(to, reason);
      for (const auto& in_the_name_of : told) {
        const auto from = caf::actor_cast<caf::actor_addr>(in_the_name_of);
        to->enqueue(nullptr, caf::make_message_id(), caf::make_message(caf::exit_msg{from, reason}), nullptr);
        to->enqueue(nullptr, caf::make_message_id(), caf::make_message(caf::down_msg{from, reason}), nullptr);
      }
    }
    to->enqueue(nullptr, caf::make_message_id(), caf::make_message(caf::make_error(parcae_error::internal)), nullptr);
    run();
    EXPECT_TRUE(ended.empty());
    EXPECT_EQ(made, 1);
    EXPECT_EQ(retired, 0);
    EXPECT_TRUE(stop_is_answered());
  }
  EXPECT_THAT(states(), testing::ElementsAre("alive"));
}

} // namespace
} // namespace parcae

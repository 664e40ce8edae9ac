#pragma once

// A registry with dummy instances and slots, in virtual time.

#include "actors/manager/front.hpp"
#include "actors/manager/registry.hpp"
#include "protocols/client/client.hpp"
#include "protocols/wire/behaviors.hpp"
#include "tests/support/actor_fixture.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace parcae {

/// What an instance was told.
struct instance_record_of {
  int released = 0;
  std::vector<std::uint64_t> deaths_ms;
  std::vector<place_question> questions;
};

struct registry_test : actor_test {
  std::map<std::string, instance_record_of> told;
  std::map<std::string, std::vector<job_id>> attached;
  std::map<std::string, std::vector<command>> commands;
  std::map<std::string, report_sink> conductors; ///< by instance: of the job that it serves
  std::map<std::string, incarnation> life_of;
  std::map<std::string, instance_actor> instances;
  std::uint64_t lives = 0;
  int ended = 0;

  registry_config in_virtual_time() {
    registry_config x;
    x.own_threads = false;
    x.manager_life = 77;
    x.silence = 24h; // most of these instances say HELLO once
    x.ended = [this] { ++ended; };
    return x;
  }

  manager_actor front;
  registry_actor registry = owned(system.spawn(parcae::registry, in_virtual_time()));

  hello greeting(const std::string& name, role as = role::worker) {
    hello x;
    x.name = name;
    x.life = life_of[name] = {++lives};
    x.role = as;
    x.host = "127.0.0.1";
    x.port = 1;
    x.processor = "cpu";
    return x;
  }

  instance_actor dummy_instance(const std::string& name) {
    return owned(system.spawn([this, name](instance_actor::pointer) -> instance_actor::behavior_type {
      return {
          [=, this](die_atom, std::uint64_t ms) { told[name].deaths_ms.push_back(ms); },
          [=, this](released_atom) { ++told[name].released; },
          [=, this](const place_question& x) {
            told[name].questions.push_back(x);
            return place_answer{{"no " + x.write + (x.read.empty() ? "" : x.read.front())}, {}};
          },
          [](notice_atom, std::uint64_t, const std::string&) {},
          [](risk_atom, const std::string&) {},
          [](dial_atom, std::uint64_t) {},
          [](timer_atom) {},
          [](report_atom, const std::string&, const std::vector<std::string>&) {},
          [](report_atom) {},
      };
    }));
  }

  slot_actor dummy_slot(const std::string& name) {
    return owned(system.spawn([this, name](slot_actor::pointer slot) {
      return behavior_of_each_from<slot_actor::behavior_type>(
          std::type_identity<addressee>{}, std::type_identity<command>{},
          [=, this](const addressee& to, const auto& x) {
            EXPECT_EQ(to.slot.life, life_of[name]);
            obey(slot, name, x);
          },
          [=, this](attach_atom, const addressee& to, const report_sink& sink) {
            attached[name].push_back(to.job);
            conductors[name] = sink;
          });
    }));
  }

  /// Has the data, and says no more.
  template <class Command>
  void obey(slot_actor::pointer slot, const std::string& name, const Command& x) {
    commands[name].emplace_back(x);
    if constexpr (std::is_same_v<Command, load>)
      slot->send(conductors[name], slot_id{name, life_of[name], 0}, loaded{x.job, "digest"});
  }

  caf::expected<welcome> join(const hello& x) { return join(registry, x); }

  template <class Handle>
  caf::expected<welcome> join(const Handle& by, const hello& x) {
    instances[x.name] = dummy_instance(x.name);
    std::vector<slot_actor> slots;
    for (std::uint32_t i = 0; i < x.slots; ++i)
      slots.push_back(dummy_slot(x.name));
    return ask<welcome>(by, x, instances[x.name], slots);
  }

  /// One job, for which these join; it has begun.
  void begin_job(const std::vector<hello>& members) {
    for (const auto& x : members)
      join(x);
    serve(submit_request{job()});
    advance(100ms);
  }

  template <class Answer>
  static void expect_refused(const caf::expected<Answer>& x, parcae_error why) {
    ASSERT_FALSE(x);
    EXPECT_TRUE(x.error() == why) << render(x.error());
  }

  /// How often its slot was told so.
  template <class Command>
  std::ptrdiff_t times_told(const std::string& name) {
    return std::ranges::count_if(commands[name], [](const command& x) { return std::holds_alternative<Command>(x); });
  }

  /// The front before the registry, which knows of each node that it is `who`. Only being killed ends it.
  void start_front(const std::function<std::optional<identity>(const caf::node_id&)>& who = {}) {
    front = system.spawn(parcae::front, registry, who);
  }

  void TearDown() override {
    if (front)
      caf::anon_send_exit(front, caf::exit_reason::kill);
    front = nullptr;
    actor_test::TearDown();
  }

  void lose(const std::string& name) { kill(instances[name]); }

  reply serve(const request& x) { return decode_reply(ask<client_reply>(registry, client_request{encode(x)})->bytes); }

  /// By who has a certificate.
  reply serve(const requester& who, const request& x) {
    return decode_reply(ask<client_reply>(registry, who, client_request{encode(x)})->bytes);
  }

  status_reply status() { return std::get<status_reply>(serve(status_request{})); }

  std::string state_of(const std::string& name) {
    std::string result = "gone";
    for (const auto& x : status().instances)
      if (x.name == name)
        result = x.state;
    return result;
  }

  job_specification job() {
    job_specification x;
    x.data.path = "/data";
    return x;
  }
};

} // namespace parcae

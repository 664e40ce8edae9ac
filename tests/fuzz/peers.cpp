// What is said behind a good handshake: first who says it, then frames, each of a kind, to somebody, in some manner.
// What is found good goes to actors as CAF would hand it to them: a real FRONT, which knows the speaker's certificate,
// and doubles of all else that others may know. Nobody dies of it, nothing but what is on the list arrives, and the
// registry hears of nothing that the certificate does not allow.

#include "actors/manager/front.hpp"
#include "actors/manager/local_messages.hpp"
#include "protocols/client/client.hpp"
#include "protocols/wire/behaviors.hpp"
#include "protocols/wire/type_ids.hpp"
#include "runtime/link/conversation.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tests/support/other_node.hpp"

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>

namespace parcae {
namespace {

struct config : caf::actor_system_config {
  config() {
    parcae::add_message_types(*this);
    set("scheduler.policy", caf::atom("testing")); // no threads
  }
};

/// Who has said what is being said, by its certificate; none: there are none.
using author = std::optional<identity>;

author author_of(speaker x) {
  switch (x) {
  case speaker::member:
    return identity{membership::node, "spot", "1", true};
  case speaker::client:
    return identity{membership::client, "ann", "2"};
  default:
    return std::nullopt;
  }
}

void expect_permitted(const identity& who, const client_request& x) {
  try {
    const auto what = decode_request(x.bytes);
    if (const auto* report = std::get_if<report_request>(&what))
      return promise(may_join_as(who, report->instance), "failures are reported by who may have them");
  } catch (const std::runtime_error&) { // refused by the registry
  }
  promise(commands(who.role), "all else is for who commands");
}

registry_actor::behavior_type registry(registry_actor::pointer, const author* said_by) {
  return {[](const client_request&) { return client_reply{}; },
          [](const hello&, const instance_actor&, const std::vector<slot_actor>&) { return welcome{}; },
          [=](const leaving_notice& x) {
            promise(!*said_by || may_join_as(**said_by, x.name), "an end is announced by who may have that name");
          },
          [=](const requester& by, const client_request& x) {
            promise(by.holder == (*said_by ? uri_of(**said_by) : ""), "who asks is known by the certificate");
            if (*said_by)
              expect_permitted(**said_by, x);
            return client_reply{};
          },
          [=](const requester&, const hello& x, const instance_actor&, const std::vector<slot_actor>&) {
            promise(!*said_by || problem_of_joining(**said_by, x.name, x.role == role::keeper).empty(),
                    "who joins may have that name");
            return welcome{};
          },
          [](const job_outcome&) {},
          [](released_atom, const slot_id&) {},
          [](end_atom) {},
          [](market_question) { return market_facts{}; },
          [](const give_back&) {},
          [](const train_with&) {},
          [](const market_picture&) {},
          [](const stop_job&) {},
          [](timer_atom) {}};
}

report_sink::behavior_type sink(report_sink::pointer) {
  return behavior_of_each_from<report_sink::behavior_type>(std::type_identity<slot_id>{}, std::type_identity<report>{},
                                                           [](const slot_id&, const auto&) {});
}

slot_actor::behavior_type slot(slot_actor::pointer) {
  return behavior_of_each_from<slot_actor::behavior_type>(
      std::type_identity<addressee>{}, std::type_identity<command>{}, [](const addressee&, const auto&) {},
      [](attach_atom, const addressee&, const report_sink&) {});
}

instance_actor::behavior_type instance(instance_actor::pointer) {
  const auto local = [] { promise(false, "what is local only stays local"); };
  return {[](die_atom, std::uint64_t) {},
          [](const place_question&) { return place_answer{}; },
          [](released_atom) {},
          [=](notice_atom, std::uint64_t, const std::string&) { local(); },
          [=](risk_atom, const std::string&) { local(); },
          [=](dial_atom, std::uint64_t) { local(); },
          [=](timer_atom) { local(); },
          [=](report_atom, const std::string&, const std::vector<std::string>&) { local(); },
          [=](report_atom) { local(); }};
}

/// A process, and another that is known to it.
struct world {
  config settings;
  caf::actor_system system{settings};
  caf::scheduler::test_coordinator& scheduler = dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
  std::vector<caf::actor> all; ///< front, sink, instance, slot
  caf::actor other;
  author said_by; ///< what `other` says
  caf::node_id third = caf::make_node_id(9, {9});
  int ended = 0;

  explicit world(bool has_certificates) {
    std::function<author(const caf::node_id&)> peers;
    if (has_certificates)
      peers = [this](const caf::node_id& x) { return x == other.node() ? said_by : std::nullopt; };
    add(system.spawn(front, system.spawn(registry, &said_by), peers));
    add(system.spawn(sink));
    add(system.spawn(instance));
    add(system.spawn(slot));
    other = on_another_node(system, system.spawn(ignore_all));
    scheduler.run();
  }

  template <class Handle>
  void add(const Handle& x) {
    all.push_back(caf::actor_cast<caf::actor>(x));
    system.registry().put(x.id(), caf::actor_cast<caf::strong_actor_ptr>(x));
    caf::actor_cast<caf::abstract_actor*>(x)->attach_functor([this](const caf::error&) { ++ended; });
  }

  template <class... Ts>
  std::vector<char> bytes_of(const Ts&... xs) {
    std::vector<char> result;
    caf::binary_serializer sink(system, result);
    promise(!sink(const_cast<Ts&>(xs)...), "what is ours can be written");
    return result;
  }

  /// Shaken hands, told of all actors, and each has asked.
  conversation open(speaker who) {
    said_by = author_of(who);
    const bool dials = who == speaker::manager;
    conversation result(dials ? link_side::dialled : link_side::accepted, who);
    frame_header x;
    const std::vector<std::string> applications;
    const std::set<std::string> interface;
    const auto theirs =
        dials ? bytes_of(other.node(), applications, caf::actor_id{1}, interface) : bytes_of(other.node());
    x.kind = dials ? frame_kind::server_handshake : frame_kind::client_handshake;
    promise(result.hear(system, x, theirs).empty(), "handshakes are heard");
    x.kind = frame_kind::server_handshake;
    result.say(&system, x, bytes_of(system.node(), applications, all[0].id(), interface));
    x.kind = frame_kind::direct_message;
    const auto say = [&](const caf::message& what) { result.say(&system, x, content_of(what)); };
    say(caf::make_message(attach_atom_v, addressee{}, caf::actor_cast<report_sink>(all[1])));
    say(caf::make_message(hello{}, caf::actor_cast<instance_actor>(all[2]),
                          std::vector<slot_actor>{caf::actor_cast<slot_actor>(all[3])}));
    for (const auto& actor : all) {
      x.source = actor.id();
      x.data = question;
      say(caf::make_message(client_request{}));
    }
    return result;
  }

  std::vector<char> content_of(const caf::message& x) { return bytes_of(std::vector<caf::strong_actor_ptr>{}, x); }

  /// What rules of roles are about.
  static caf::message common(std::uint8_t which, const std::string& name) {
    const auto ask = [](const request& x) { return caf::make_message(client_request{encode(x)}); };
    switch (which / 4 % 4) {
    case 0:
      return ask(report_request{name, "ended by SIGFPE", {}, 0, true});
    case 1:
      return ask(cancel_request{1});
    case 2:
      return ask(status_request{});
    default:
      return caf::make_message(leaving_notice{name, {1}, 0});
    }
  }

  void deliver(const frame_header& x, std::span<const char> payload) {
    caf::scoped_execution_unit context(&system);
    caf::binary_deserializer source(&context, payload.data(), payload.size());
    std::vector<caf::strong_actor_ptr> stages;
    caf::message content;
    const auto error = source(stages, content); // without proxies: no handles of other nodes
    promise(!error || error == caf::sec::no_proxy_registry, "CAF reads what is found good");
    promise(stages.empty(), "nothing has stages");
    if (error || content.empty())
      return;
    promise(!content.match_elements<caf::exit_msg>() && !content.match_elements<caf::down_msg>(), "nobody is ended");
    const auto to = system.registry().get(x.destination);
    promise(to != nullptr, "who is spoken to is known");
    to->enqueue(caf::make_mailbox_element(caf::actor_cast<caf::strong_actor_ptr>(other), caf::make_message_id(x.data),
                                          {}, std::move(content)),
                nullptr);
    scheduler.run();
    scheduler.clock().cancel_all(); // time never passes here, and so no limit of a question
    promise(ended == 0, "nobody dies of it");
  }

  static constexpr std::uint64_t statement = 0x1000'0000'0000'0000, question = statement + 5,
                                 answer = 0x8000'0000'0000'0000 + question;
};

} // namespace
} // namespace parcae

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  // Never destroyed: at the end of the process CAF's globals go first.
  static auto &with = *new world(true), &without = *new world(false);
  fuzz_input input(data, size);
  constexpr speaker speakers[] = {speaker::manager, speaker::member, speaker::client, speaker::anyone};
  const auto who = speakers[input.take<std::uint8_t>() % std::size(speakers)];
  auto& all = who == speaker::anyone ? without : with;
  auto talk = all.open(who);
  for (int i = 0; i < 20 && !input.rest().empty(); ++i) {
    constexpr frame_kind kinds[] = {frame_kind::direct_message, frame_kind::monitor_message, frame_kind::down_message,
                                    frame_kind::client_handshake, frame_kind::server_handshake};
    frame_header x;
    x.kind = kinds[input.take<std::uint8_t>() % std::size(kinds)];
    const auto to = input.take<std::uint8_t>(), how = input.take<std::uint8_t>();
    x.source = input.take<std::uint8_t>();
    const std::uint64_t ids[] = {world::statement, world::question, world::answer, 0};
    x.data = how % 4 == 3 ? input.take<std::uint64_t>() : ids[how % 4];
    x.destination = to < all.all.size() ? all.all[to].id() : to;
    const auto wanted = input.take<std::uint16_t>();
    const auto rest = input.rest();
    std::vector<char> payload(rest.begin(), rest.begin() + std::min<std::size_t>(wanted, rest.size()));
    input =
        fuzz_input(reinterpret_cast<const std::uint8_t*>(rest.data()) + payload.size(), rest.size() - payload.size());
    if (x.kind == frame_kind::monitor_message || x.kind == frame_kind::down_message) {
      const caf::node_id nodes[] = {all.other.node(), all.system.node(), all.third, {}};
      auto both = all.bytes_of(nodes[how % 4], nodes[how / 4 % 4]); // else they would never be right
      payload.insert(payload.begin(), both.begin(), both.end());
    }
    if (const auto name = std::string_view(payload.data(), payload.size()); how >= 0xF0) // else seldom right
      payload = all.content_of(all.common(how, std::string(name.substr(0, 100))));
    if (payload.empty())
      return 0; // the header's check has that
    x.payload_bytes = static_cast<std::uint32_t>(payload.size());
    if (!talk.hear(all.system, x, payload).empty())
      return 0;
    const auto is_it = [&](const caf::actor& known) { return known.id() == x.destination; };
    promise(x.kind != frame_kind::direct_message || std::ranges::any_of(all.all, is_it),
            "only who was told of is spoken to");
    if (x.kind == frame_kind::direct_message)
      all.deliver(x, payload);
  }
  return 0;
}

// What may be said behind a good handshake: the list, tried line by line, and what is not on it.

#include "protocols/wire/type_ids.hpp"
#include "runtime/link/allowance.hpp"
#include "runtime/link/conversation.hpp"
#include "runtime/link/link.hpp"
#include "runtime/link/node_claims.hpp"
#include "runtime/process/system.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace parcae {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr std::uint64_t stated = 0x1000'0000'0000'0000, asked = stated + 5, answered = 0x8000'0000'0000'0000 + asked;

// given / expected: the README's list is the one that is in use
TEST(permissions, are_the_readmes) {
  std::ifstream file(PARCAE_LINK_README);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(table_of_permissions()), std::string::npos) << table_of_permissions();
}

// given: who is there / expected: members and clients do not say each other's, and nobody the manager's
TEST(permissions, are_by_role) {
  for (const auto& x : permissions()) {
    EXPECT_NE(x.says, speaker::anyone);
    for (auto who : {speaker::manager, speaker::member, speaker::client})
      EXPECT_EQ(may_say(who, x), who == x.says) << x.what;
    EXPECT_EQ(may_say(speaker::anyone, x), x.says != speaker::manager) << x.what;
    EXPECT_LE(x.max_bytes, 2 * max_message_bytes(x.says)) << x.what;
  }
}

/// Two processes, the conversation of one of them, and what the other has been told.
struct conversation_test : testing::Test {
  conversation_test() {
    for (auto* system : {&ours, &theirs})
      for (int i = 0; i < 4; ++i) {
        auto actor = system->spawn([](caf::event_based_actor*) -> caf::behavior { return {[](int) {}}; });
        system->registry().put(actor.id(), caf::actor_cast<caf::strong_actor_ptr>(actor));
        (system == &ours ? here : there).push_back(actor);
      }
  }
  ~conversation_test() override {
    for (const auto* all : {&here, &there})
      for (const auto& x : *all)
        caf::anon_send_exit(x, caf::exit_reason::kill);
  }

  template <class... Ts>
  static std::vector<char> bytes_of(caf::actor_system& system, const Ts&... xs) {
    std::vector<char> result;
    caf::binary_serializer sink(system, result);
    EXPECT_FALSE(sink(const_cast<Ts&>(xs)...));
    return result;
  }

  static std::vector<char> content(caf::actor_system& from, const caf::message& x) {
    return bytes_of(from, std::vector<caf::strong_actor_ptr>{}, x);
  }

  static frame_header header(frame_kind kind, std::size_t payload, std::uint64_t data = 0, std::uint64_t source = 0,
                             std::uint64_t destination = 0) {
    frame_header x;
    x.kind = kind;
    x.payload_bytes = static_cast<std::uint32_t>(payload);
    x.data = data;
    x.source = source;
    x.destination = destination;
    return x;
  }

  /// Both have shaken hands, and we have told of here[0] as front, [1] as sink, [2] as instance, [3] as slot; and
  /// here[2] has asked.
  conversation open(speaker there_is) {
    const auto side = there_is == speaker::manager ? link_side::dialled : link_side::accepted;
    conversation result(side, there_is);
    const std::vector<std::string> applications{application_identifier()};
    const auto first = side == link_side::accepted
                           ? bytes_of(theirs, theirs.node())
                           : bytes_of(theirs, theirs.node(), applications, there[0].id(), std::set<std::string>{});
    const auto kind = side == link_side::accepted ? frame_kind::client_handshake : frame_kind::server_handshake;
    EXPECT_EQ(result.hear(ours, header(kind, first.size(), side == link_side::accepted ? 0 : 3), first), "");
    EXPECT_EQ(result.node(), theirs.node());
    if (side == link_side::accepted) {
      say(result, frame_kind::server_handshake,
          bytes_of(ours, ours.node(), applications, here[0].id(), std::set<std::string>{}), 3);
      say(result, caf::make_message(attach_atom_v, addressee{}, caf::actor_cast<report_sink>(here[1])), stated);
      say(result, caf::make_message(place_question{}), asked, here[2].id());
    } else {
      say(result,
          caf::make_message(hello{}, caf::actor_cast<instance_actor>(here[2]),
                            std::vector<slot_actor>{caf::actor_cast<slot_actor>(here[3])}),
          asked, here[2].id());
    }
    return result;
  }

  bool say(conversation& x, frame_kind kind, const std::vector<char>& payload, std::uint64_t data,
           std::uint64_t source = 0) {
    const auto h = header(kind, payload.size(), data, source, kind == frame_kind::direct_message ? 77 : 0);
    auto bytes = encode_header(h);
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    std::vector<char> out;
    outgoing speech;
    for (std::size_t i = 0; i < bytes.size(); i += 50) // as it comes
      speech.pass(&ours, std::span(bytes).subspan(i, std::min<std::size_t>(50, bytes.size() - i)), out, x);
    EXPECT_TRUE(out.empty() || out == bytes);
    return !out.empty();
  }
  bool say(conversation& x, const caf::message& what, std::uint64_t id, std::uint64_t source = 0) {
    return say(x, frame_kind::direct_message, content(ours, what), id, source);
  }

  std::string hear(conversation& x, const caf::message& what, std::uint64_t id, std::uint64_t to,
                   std::uint64_t from = 9) {
    const auto payload = content(theirs, what);
    return x.hear(ours, header(frame_kind::direct_message, payload.size(), id, from, to), payload);
  }

  /// One of each line of the list, in its order.
  template <class... Ts, class First>
  static void add_each(std::vector<caf::message>& to, const First& first, std::type_identity<std::variant<Ts...>>) {
    (to.push_back(caf::make_message(first, Ts{})), ...);
  }
  std::vector<caf::message> one_of_each() {
    using caf::make_message;
    std::vector<caf::message> result{
        make_message(client_request{}),
        make_message(client_request{}),
        make_message(hello{}, caf::actor_cast<instance_actor>(there[1]),
                     std::vector<slot_actor>{caf::actor_cast<slot_actor>(there[2])}),
        make_message(leaving_notice{}),
        make_message(client_reply{}),
        make_message(welcome{}),
        make_message(caf::make_error(parcae_error::internal, std::string("why"))),
        make_message(place_question{}),
        make_message(place_answer{}),
        make_message(caf::make_error(parcae_error::internal, std::string("why"))),
        make_message(attach_atom_v, addressee{}, caf::actor_cast<report_sink>(there[3])),
        make_message(released_atom_v),
        make_message(die_atom_v, std::uint64_t{5}),
    };
    add_each(result, addressee{}, std::type_identity<command>{});
    add_each(result, slot_id{}, std::type_identity<report>{});
    return result;
  }

  std::uint64_t id_of(standing x) const {
    switch (x) {
    case standing::front:
      return here[0].id();
    case standing::sink:
      return here[1].id();
    case standing::slot:
      return here[3].id();
    default:
      return here[2].id();
    }
  }

  system_config ours_config, theirs_config;
  caf::actor_system ours{ours_config}, theirs{theirs_config};
  std::vector<caf::actor> here, there;
};

constexpr std::uint64_t id_for(manner x) {
  return x == manner::statement ? stated : x == manner::question ? asked : answered;
}

// given: a message of each line, said by everybody, in every manner, to everything / expected: only what the list has
TEST_F(conversation_test, hears_what_is_on_the_list) {
  const auto messages = one_of_each();
  ASSERT_EQ(messages.size(), permissions().size());
  for (auto who : {speaker::manager, speaker::member, speaker::client, speaker::anyone})
    for (std::size_t i = 0; i < messages.size(); ++i)
      for (auto how : {manner::statement, manner::question, manner::answer})
        for (auto to : {standing::front, standing::sink, standing::instance, standing::slot}) {
          const auto is_it = [&](const permission& x) {
            const auto receiver = x.to == standing::sender ? standing::instance : x.to; // who asked
            return x.types == permissions()[i].types && may_say(who, x) && x.how == how && receiver == to;
          };
          auto talk = open(who);
          const auto problem = hear(talk, messages[i], id_for(how), id_of(to));
          EXPECT_EQ(problem.empty(), std::ranges::any_of(permissions(), is_it))
              << permissions()[i].types << " by " << int(who) << " as " << int(how) << " to " << int(to) << ": "
              << problem;
        }
}

// given: what CAF's own actors obey / expected: refused, whoever says it, to whomever
TEST_F(conversation_test, hears_nothing_of_cafs_own) {
  using caf::make_message;
  const std::vector<caf::message> all{
      caf::message{},
      make_message(caf::exit_msg{caf::actor_addr{}, caf::exit_reason::kill}),
      make_message(caf::down_msg{caf::actor_addr{}, caf::exit_reason::kill}),
      make_message(caf::link_atom_v, caf::actor_cast<caf::strong_actor_ptr>(there[0])),
      make_message(caf::sys_atom_v, caf::get_atom_v, std::string("info")),
      make_message(caf::ok_atom_v, std::string("info"), caf::actor_cast<caf::strong_actor_ptr>(there[0]),
                   std::string("x")),
      make_message(caf::spawn_atom_v, std::string("x"), caf::message{}),
      make_message(caf::put_atom_v, std::string("x"), caf::message{}),
      make_message(caf::timeout_msg{}),
      make_message(timer_atom_v),
      make_message(notice_atom_v, std::uint64_t{0}, std::string("x")),
  };
  for (auto who : {speaker::manager, speaker::member, speaker::client, speaker::anyone})
    for (const auto& what : all)
      for (auto to : {standing::front, standing::sink, standing::instance, standing::slot})
        for (auto id : {stated, asked, answered}) {
          auto talk = open(who);
          EXPECT_NE(hear(talk, what, id, id_of(to)), "") << caf::to_string(what);
        }
}

// given: what may be said, as part of a stream, urgent, answered, or with stages; to who was not told of; a question of
// nobody / expected: refused
TEST_F(conversation_test, knows_ways_to_say_it) {
  const auto what = caf::make_message(client_request{});
  for (std::uint64_t top = 0; top < 16; ++top) {
    auto talk = open(speaker::client);
    EXPECT_EQ(hear(talk, what, top << 60 | 5, here[0].id()).empty(), top == 1) << top;
  }
  auto talk = open(speaker::client);
  EXPECT_EQ(hear(talk, what, asked, here[1].id() + 1'000), "a message to an actor that it was not told of");
  EXPECT_EQ(hear(talk, what, asked, here[0].id(), 0), "a question of nobody");
  const auto staged =
      bytes_of(theirs, std::vector<caf::strong_actor_ptr>{caf::actor_cast<caf::strong_actor_ptr>(there[0])}, what);
  EXPECT_EQ(talk.hear(ours, header(frame_kind::direct_message, staged.size(), asked, 9, here[0].id()), staged),
            "a message with stages");
}

// given: a question of ours / expected: one answer is heard, of that number and to who asked; no other
TEST_F(conversation_test, hears_one_answer_to_each_question) {
  auto talk = open(speaker::manager);
  const auto what = caf::make_message(welcome{});
  EXPECT_EQ(hear(talk, what, answered + 1, here[2].id()), "an answer that nobody waits for");
  EXPECT_EQ(hear(talk, what, answered, here[3].id()), "an answer that nobody waits for");
  EXPECT_EQ(hear(talk, what, answered, here[2].id(), 0), "");
  EXPECT_EQ(hear(talk, what, answered, here[2].id()), "an answer that nobody waits for");
  EXPECT_EQ(hear(talk, caf::make_message(caf::make_error(parcae_error::internal, 7)), answered, here[2].id()),
            "an answer that nobody waits for");
}

// given: questions of the other side, answers, and all else that is said / expected: those that are open are counted
TEST_F(conversation_test, counts_what_is_not_answered) {
  auto talk = open(speaker::client);
  const auto question = caf::make_message(client_request{}), answer = caf::make_message(client_reply{});
  EXPECT_EQ(talk.unanswered(), 0u);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(hear(talk, question, asked, here[0].id()), "");
  EXPECT_EQ(talk.unanswered(), 2u);
  say(talk, answer, stated, here[0].id());
  say(talk, answer, asked, here[0].id());
  EXPECT_EQ(talk.unanswered(), 2u);
  for (auto left : {1u, 0u, 0u}) {
    say(talk, answer, answered, here[0].id());
    EXPECT_EQ(talk.unanswered(), left);
  }
  auto member = open(speaker::member);
  EXPECT_EQ(hear(member, caf::make_message(leaving_notice{}), stated, here[0].id()), "");
  EXPECT_EQ(hear(member, caf::make_message(place_answer{}), answered, here[2].id()), "");
  EXPECT_EQ(member.unanswered(), 0u);
}

// given: handshakes / expected: two of a client, as CAF has it, one of a server, of one node, which is not this one
TEST_F(conversation_test, knows_handshakes) {
  auto talk = open(speaker::client);
  const auto again = bytes_of(theirs, theirs.node()), other = bytes_of(theirs, caf::make_node_id(3, {3}));
  const auto kind = frame_kind::client_handshake;
  auto strange = open(speaker::client);
  EXPECT_EQ(strange.hear(ours, header(kind, other.size()), other), "a handshake as another node than before");
  EXPECT_EQ(talk.hear(ours, header(kind, again.size()), again), "");
  EXPECT_EQ(talk.hear(ours, header(kind, again.size()), again), "one handshake too many");
  conversation mirror(link_side::accepted, speaker::client);
  const auto self = bytes_of(ours, ours.node());
  EXPECT_EQ(mirror.hear(ours, header(kind, self.size()), self), "a handshake as this process itself");
}

// given: monitors and ends of actors, as CAF sends them / expected: of who was told of, and of their own
TEST_F(conversation_test, knows_who_is_monitored) {
  auto talk = open(speaker::member);
  const auto payload = bytes_of(theirs, theirs.node(), ours.node());
  const auto monitor = [&](std::uint64_t who) {
    return talk.hear(ours, header(frame_kind::monitor_message, payload.size(), 0, 0, who), payload);
  };
  EXPECT_EQ(monitor(here[0].id()), "");
  EXPECT_EQ(monitor(here[1].id()), "");
  EXPECT_EQ(monitor(here[3].id()), "a wish to monitor an actor that it was not told of");
  const auto end = bytes_of(theirs, theirs.node(), ours.node(), caf::error{});
  EXPECT_EQ(talk.hear(ours, header(frame_kind::down_message, end.size(), 0, 9), end), "");
}

// given: a node that says something as ever new actors / expected: not more than it may have at once
TEST_F(conversation_test, remembers_so_many_actors) {
  auto talk = open(speaker::member);
  const auto end = bytes_of(theirs, theirs.node(), ours.node(), caf::error{});
  const auto what = caf::make_message(leaving_notice{});
  std::uint64_t actor = 100;
  for (std::size_t i = 0; i < 2 * conversation::max_actors; ++i) { // that end again
    ASSERT_EQ(hear(talk, what, stated, here[0].id(), ++actor), "");
    ASSERT_EQ(talk.hear(ours, header(frame_kind::down_message, end.size(), 0, actor), end), "");
  }
  for (std::size_t i = 0; i < conversation::max_actors; ++i)
    ASSERT_EQ(hear(talk, what, stated, here[0].id(), ++actor), "");
  EXPECT_EQ(hear(talk, what, stated, here[0].id(), ++actor), "more actors than a node may have");
}

// given: what CAF asks each node for what it could spawn there / expected: it does not go out; what comes behind it
// does
TEST_F(conversation_test, does_not_say_what_nobody_hears) {
  auto talk = open(speaker::client);
  const auto payload = content(ours, caf::make_message(caf::sys_atom_v, caf::get_atom_v, std::string("info")));
  auto question = header(frame_kind::direct_message, payload.size(), stated, here[3].id(),
                         static_cast<std::uint64_t>(caf::atom("SpawnServ")));
  question.flags = frame_header::named_receiver;
  auto bytes = encode_header(question);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  const auto beat = encode_header({});
  bytes.insert(bytes.end(), beat.begin(), beat.end());
  std::vector<char> out;
  outgoing speech;
  speech.pass(&ours, bytes, out, talk);
  EXPECT_EQ(out, beat);
  EXPECT_NE(hear(talk, caf::make_message(client_request{}), asked, here[3].id()), ""); // and it was not told of
}

// given: heartbeats, wishes to monitor, ends of actors; HELLO of 1,024 slots with a wish and an end for each /
// expected: each costs something, and all of the latter not more than may be said at once
TEST_F(conversation_test, all_that_is_said_counts) {
  auto talk = open(speaker::member);
  const auto wish = bytes_of(theirs, theirs.node(), ours.node());
  const auto end = bytes_of(theirs, theirs.node(), ours.node(), caf::error{});
  const auto costs = [&](frame_kind kind, const std::vector<char>& payload, std::uint64_t from, std::uint64_t to) {
    const auto before = talk.heard();
    EXPECT_EQ(talk.hear(ours, header(kind, payload.size(), 0, from, to), payload), "");
    return talk.heard() > before;
  };
  EXPECT_TRUE(costs(frame_kind::heartbeat, {}, 0, 0));
  const auto before = talk.heard();
  hello x;
  x.slots = 1'024;
  const std::vector<slot_actor> slots(x.slots, caf::actor_cast<slot_actor>(there[2]));
  EXPECT_EQ(hear(talk, caf::make_message(x, caf::actor_cast<instance_actor>(there[1]), slots), asked, here[0].id()),
            "");
  for (std::uint32_t i = 0; i < x.slots; ++i) {
    EXPECT_TRUE(costs(frame_kind::monitor_message, wish, 0, here[0].id()));
    EXPECT_TRUE(costs(frame_kind::down_message, end, 100 + i, 0));
  }
  EXPECT_LE(talk.heard() - before, link_options().questions);
}

// given: so much a second / expected: what is there at once, then as it comes; not more than a second's is saved
TEST(allowance, is_by_the_second) {
  allowance x(100);
  const auto begin = steady_clock::now();
  EXPECT_EQ(x.take(begin, 100), 0ms);
  EXPECT_NEAR(x.take(begin, 50).count(), 500, 2);
  EXPECT_EQ(x.take(begin + 1s, 50), 0ms);
  EXPECT_EQ(x.take(begin + 1h, 100), 0ms);
  EXPECT_NEAR(x.take(begin + 1h, 100).count(), 1'000, 2);
}

// given: a node of one certificate, whose connection ended / expected: for an hour nobody else is that node; who has
// the certificate, also one made anew, is at once
TEST(node_claims, are_their_certificates) {
  node_claims all;
  const int a = 0, b = 0;
  const identity ours{.role = membership::node, .name = "a", .serial = "1"};
  auto renewed = ours, other = ours;
  renewed.serial = "2";
  other.name = "b";
  EXPECT_EQ(all.claim("n", &a, ours), "");
  EXPECT_EQ(all.identity_of("n"), ours);
  EXPECT_EQ(all.claim("n", &b, ours), "it says to be a node that another connection is of");
  all.release("n", &b, 0ms); // not its own
  EXPECT_EQ(all.identity_of("n"), ours);
  all.release("n", &a, 0ms);
  EXPECT_EQ(all.identity_of("n"), std::nullopt);
  all.expire(59min);
  EXPECT_EQ(all.claim("n", &b, other), "it says to be a node that is node a");
  EXPECT_EQ(all.claim("n", &b, std::nullopt), "it says to be a node that is node a");
  EXPECT_EQ(all.claim("n", &b, renewed), "");
  all.release("n", &b, 60min);
  all.expire(121min);
  EXPECT_EQ(all.claim("n", &b, other), "");
}

// given: a certificate that was of ever new nodes / expected: those of others stay theirs
TEST(node_claims, are_forgotten_by_certificate) {
  node_claims all;
  const int a = 0;
  const identity ours{.role = membership::node, .name = "a", .serial = "1"},
      flood{.role = membership::node, .name = "b", .serial = "2"};
  EXPECT_EQ(all.claim("n", &a, ours), "");
  all.release("n", &a, 0ms);
  for (std::size_t i = 0; i < 2 * node_claims::max_ended; ++i) {
    EXPECT_EQ(all.claim("f" + std::to_string(i), &a, flood), "");
    all.release("f" + std::to_string(i), &a, std::chrono::milliseconds(i));
  }
  EXPECT_EQ(all.claim("f0", &a, ours), "");
  EXPECT_NE(all.claim("n", &a, flood), "");
}

} // namespace
} // namespace parcae

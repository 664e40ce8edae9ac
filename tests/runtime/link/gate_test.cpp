// The gate: which bytes get as far as CAF.

#include "protocols/wire/type_ids.hpp"
#include "runtime/link/frame_gate.hpp"
#include "runtime/link/payload_check.hpp"
#include "runtime/process/system.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <gmock/gmock.h>

namespace parcae {
namespace {

constexpr std::size_t max_payload_bytes = 1024 * 1024;

frame_header handshake(link_side here, std::uint32_t payload = 32) {
  frame_header x;
  x.kind = here == link_side::accepted ? frame_kind::client_handshake : frame_kind::server_handshake;
  x.data = here == link_side::accepted ? 0 : 3;
  x.payload_bytes = payload;
  return x;
}

frame_header message(std::uint32_t payload, std::uint64_t to = 7) {
  frame_header x;
  x.kind = frame_kind::direct_message;
  x.payload_bytes = payload;
  x.data = 1;
  x.source = 5;
  x.destination = to;
  return x;
}

std::vector<char> frame(const frame_header& x) {
  auto result = encode_header(x);
  result.resize(result.size() + x.payload_bytes, 'x');
  return result;
}

std::string anything(const frame_header&, std::span<const char>) {
  return {};
}

// given / expected: headers on each side, first and later; what is let in
TEST(frame_gate, knows_headers) {
  const auto good = [](const frame_header& x, link_side here, bool first) {
    return problem_of(x, here, first, max_payload_bytes);
  };
  using enum link_side;
  EXPECT_EQ(good(handshake(accepted), accepted, true), "");
  EXPECT_EQ(good(handshake(dialled), dialled, true), "");
  EXPECT_EQ(good(handshake(accepted), accepted, false), ""); // CAF repeats its client's
  EXPECT_EQ(good(message(10), accepted, false), "");
  frame_header heartbeat;
  EXPECT_EQ(good(heartbeat, dialled, false), "");
  frame_header monitor;
  monitor.kind = frame_kind::monitor_message;
  monitor.payload_bytes = 64;
  monitor.destination = 4;
  EXPECT_EQ(good(monitor, accepted, false), "");
  frame_header down = monitor;
  down.kind = frame_kind::down_message;
  std::swap(down.source, down.destination);
  EXPECT_EQ(good(down, accepted, false), "");
  auto to_name = message(10, static_cast<std::uint64_t>(caf::atom("SpawnServ")));
  to_name.flags = frame_header::named_receiver;
  EXPECT_EQ(good(to_name, accepted, false), "a message to a name, which nobody here has for others");

  // The two that ended a process: a handshake without content, and one of 4 GB.
  EXPECT_EQ(good(handshake(accepted, 0), accepted, true), "an impossible handshake");
  EXPECT_EQ(good(handshake(accepted, 0xFFFF'FFFF), accepted, true), "a frame of 4294967295 bytes");
  EXPECT_EQ(good(handshake(accepted, max_small_bytes + 1), accepted, true), "a frame of 16385 bytes");
  EXPECT_EQ(good(message(max_payload_bytes + 1), accepted, false), "a frame of 1048577 bytes");
  EXPECT_EQ(good(message(10), accepted, true), "no handshake");
  EXPECT_EQ(good(heartbeat, accepted, true), "no handshake");
  EXPECT_EQ(good(handshake(dialled), accepted, true), "no handshake");
  EXPECT_EQ(good(handshake(accepted), dialled, true), "no handshake");
  EXPECT_EQ(good(handshake(dialled), dialled, false), "a second handshake");
  EXPECT_EQ(good(handshake(accepted), dialled, false), "a handshake in the wrong direction");
  EXPECT_NE(good(message(10, 0), accepted, false), "");
  EXPECT_NE(good(message(0), accepted, false), "");
  auto routed = message(10);
  routed.kind = frame_kind::routed_message;
  EXPECT_EQ(good(routed, accepted, false), "a message for or from a third node");
  for (auto spoilt : {heartbeat, monitor, down}) {
    spoilt.data = 1;
    EXPECT_NE(good(spoilt, accepted, false), "");
  }
  auto strange = message(10);
  strange.flags = 4;
  EXPECT_EQ(good(strange, accepted, false), "not a frame");
  strange = message(10);
  strange.padding = 1;
  EXPECT_EQ(good(strange, accepted, false), "not a frame");
  strange = message(10);
  strange.kind = static_cast<frame_kind>(7);
  EXPECT_EQ(good(strange, accepted, false), "not a frame");
}

// given: all values of each byte of the header, others as they should be / expected: what is let in CAF takes for valid
TEST(frame_gate, lets_in_only_what_caf_takes_for_valid) {
  for (auto here : {link_side::accepted, link_side::dialled})
    for (bool first : {true, false})
      for (auto base : {encode_header(handshake(here)), encode_header(message(9)), encode_header({})})
        for (std::size_t at = 0; at < base.size(); ++at)
          for (int value = 0; value < 256; ++value) {
            auto bytes = base;
            bytes[at] = static_cast<char>(value);
            const auto x = decode_header(bytes);
            EXPECT_EQ(encode_header(x), bytes);
            if (problem_of(x, here, first, max_payload_bytes) != "")
              continue;
            caf::io::basp::header theirs;
            caf::binary_deserializer source(nullptr, bytes);
            ASSERT_FALSE(source(theirs));
            EXPECT_TRUE(caf::io::basp::valid(theirs)) << at << " " << value;
            EXPECT_LE(theirs.payload_len, first ? max_small_bytes : max_payload_bytes);
          }
}

// given: frames in pieces of all sizes / expected: the same bytes come out, whole frames only, little is kept
TEST(frame_gate, passes_whole_frames_however_they_come) {
  std::vector<char> all;
  for (auto x : {handshake(link_side::accepted), message(1), frame_header{}, message(40'000), frame_header{}}) {
    const auto bytes = frame(x);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  for (std::size_t piece : {1, 2, 31, 32, 33, 64, 65, 1000, 16'384, 100'000}) {
    frame_gate gate(link_side::accepted, max_payload_bytes);
    std::vector<char> out;
    for (std::size_t i = 0; i < all.size(); i += piece)
      ASSERT_EQ(gate.pass(std::span(all).subspan(i, std::min(piece, all.size() - i)), out, anything), "");
    EXPECT_EQ(out, all) << piece;
    EXPECT_LE(gate.held(), 64u * 1024);
  }
  // Half a frame stays, however often it is knocked for.
  frame_gate gate(link_side::accepted, max_payload_bytes);
  std::vector<char> out;
  const auto begin = frame(handshake(link_side::accepted, 1000));
  for (std::size_t i = 0; i + 1 < begin.size(); ++i)
    ASSERT_EQ(gate.pass(std::span(begin).subspan(i, 1), out, anything), "");
  EXPECT_TRUE(out.empty());
  EXPECT_FALSE(gate.opened());
  EXPECT_EQ(gate.pass(std::span(begin).last(1), out, anything), "");
  EXPECT_TRUE(gate.opened());
}

struct payload : testing::Test {
  template <class... Ts>
  std::vector<char> bytes_of(const Ts&... xs) {
    std::vector<char> result;
    caf::binary_serializer sink(system, result);
    EXPECT_FALSE(sink(const_cast<Ts&>(xs)...));
    return result;
  }

  std::vector<char> bytes_of_message(const caf::message& x) {
    return bytes_of(std::vector<caf::strong_actor_ptr>{}, x);
  }

  std::string problem(frame_kind kind, const std::vector<char>& bytes) {
    frame_header x;
    x.kind = kind;
    payload_terms terms{other, {}};
    if (kind == frame_kind::direct_message)
      terms.may_be = [](const permission&) { return true; };
    return check_payload(system, x, bytes, terms).problem;
  }

  std::string problem(const caf::message& x) { return problem(frame_kind::direct_message, bytes_of_message(x)); }

  /// A HELLO, which has about everything, handles of other nodes too.
  caf::message hello_message() {
    hello x;
    x.name = "a";
    x.host = "127.0.0.1";
    x.slots = 2;
    return caf::make_message(x, instance_actor{}, std::vector<slot_actor>(2));
  }

  system_config config;
  caf::actor_system system{config};
  const caf::node_id other = caf::make_node_id(7, {1, 2, 3});
};

// given: what CAF and Parcae send / expected: nothing wrong; a handshake tells its node
TEST_F(payload, of_our_own_is_good) {
  frame_header x;
  x.kind = frame_kind::client_handshake;
  const auto verdict = check_payload(system, x, bytes_of(system.node()), {});
  EXPECT_EQ(verdict.problem, "");
  EXPECT_EQ(verdict.node, system.node());
  EXPECT_EQ(problem(frame_kind::server_handshake,
                    bytes_of(system.node(), std::vector<std::string>{application_identifier()}, caf::actor_id{4},
                             system.message_types(caf::detail::type_list<manager_actor>{}))),
            "");
  EXPECT_EQ(problem(frame_kind::monitor_message, bytes_of(other, system.node())), "");
  EXPECT_EQ(
      problem(frame_kind::down_message,
              bytes_of(other, system.node(), caf::make_error(parcae_error::duplicate_name, std::string("someone")))),
      "");
  EXPECT_EQ(problem(hello_message()), "");
  EXPECT_EQ(problem(caf::make_message(client_request{std::vector<char>(100'000)})), "");
}

// given: lengths that are not there, nesting without end, types of CAF's that are not for others, a link to an actor
// here / expected: refused, with little memory
TEST_F(payload, that_lies_is_refused) {
  for (std::uint32_t claimed : {1'000u, 0x7FFF'FFFFu, 0xFFFF'FFFFu}) {
    auto bytes = bytes_of_message(caf::make_message(client_request{}));
    bytes.pop_back();                               // the length of no bytes
    for (auto left = claimed; left > 0; left >>= 7) // as CAF writes lengths
      bytes.push_back(static_cast<char>((left & 0x7F) | (left >= 0x80 ? 0x80 : 0)));
    EXPECT_EQ(problem(frame_kind::direct_message, bytes), "a payload that cannot be read") << claimed;
  }
  auto nested = caf::make_message(std::string("x"));
  for (int i = 0; i < 20; ++i)
    nested = caf::make_message(caf::make_error(parcae_error::internal, nested));
  EXPECT_EQ(problem(nested), "a payload that cannot be read");
  for (const auto& strange : {caf::message{}, caf::make_message(caf::group{}), caf::make_message(1),
                              caf::make_message(caf::down_msg{}), caf::make_message(released_atom_v, 1)})
    EXPECT_EQ(problem(strange), "a message that nobody may say") << caf::to_string(strange);
  EXPECT_EQ(problem(caf::make_message(timer_atom_v)), "a message that nobody may say");
  EXPECT_EQ(
      problem(frame_kind::down_message, bytes_of(other, system.node(), caf::make_error(parcae_error::internal, 1))),
      "a payload that cannot be read");
  // Memory is what counts: of some bytes each, texts take 32 and more.
  EXPECT_EQ(problem(caf::make_message(leaving_notice{"a", {}, 0, std::string(20'000, 'x')})),
            "a message that is larger than it may be");
  // Actors of this process, and of third nodes, which CAF would make a way to.
  auto here = system.spawn([](caf::event_based_actor*) -> caf::behavior { return {[](int) {}}; });
  system.registry().put(here.id(), caf::actor_cast<caf::strong_actor_ptr>(here));
  EXPECT_EQ(problem(caf::make_message(attach_atom_v, addressee{}, caf::actor_cast<report_sink>(here))),
            "a handle of another process");
  EXPECT_EQ(
      problem(caf::make_message(hello{}, instance_actor{}, std::vector<slot_actor>{caf::actor_cast<slot_actor>(here)})),
      "a handle of another process");
  const auto third = caf::make_node_id(9, {9});
  auto& sent = system.node();
  auto foreign = bytes_of_message(caf::make_message(attach_atom_v, addressee{}, caf::actor_cast<report_sink>(here)));
  const auto ours = bytes_of(sent), theirs = bytes_of(third);
  std::ranges::copy(theirs, std::ranges::search(foreign, ours).begin());
  EXPECT_EQ(problem(frame_kind::direct_message, foreign), "a handle of another process");
  caf::anon_send_exit(here, caf::exit_reason::kill);
  for (auto kind : {frame_kind::monitor_message, frame_kind::down_message})
    for (const auto& [from, to] : {std::pair{other, third}, {third, system.node()}, {system.node(), other}})
      EXPECT_EQ(
          problem(kind, kind == frame_kind::monitor_message ? bytes_of(from, to) : bytes_of(from, to, caf::error{})),
          "news for or of a third node");
  auto longer = bytes_of(system.node());
  longer.push_back(0);
  EXPECT_EQ(problem(frame_kind::client_handshake, longer), "a payload that cannot be read");
  EXPECT_EQ(problem(frame_kind::client_handshake, {}), "");
  EXPECT_EQ(problem(frame_kind::client_handshake, bytes_of(caf::node_id{})), "a handshake of nobody");
}

} // namespace
} // namespace parcae

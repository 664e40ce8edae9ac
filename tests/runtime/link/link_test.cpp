// Two processes' control planes in one, and strangers between them.

#include "runtime/link/frame_gate.hpp"
#include "tests/runtime/link/link_fixture.hpp"
#include "tests/support/bare_peer.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/test_authority.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

namespace parcae {
namespace {

using boost::asio::ip::tcp;
using std::chrono::steady_clock;

constexpr std::string_view greeting{"parcae control 1"};

std::size_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// given: small messages and large ones / expected: answers; one that is larger than any may be ends the connection,
// which monitors tell, while CAF lets its request wait
TEST_F(link_test, carries_messages) {
  control_plane client;
  auto to = reach(client, port);
  ASSERT_TRUE(to) << render(to.error());
  for (std::size_t bytes : {0u, 1u, 100u, 16'000u, 1'000'000u})
    EXPECT_EQ(ask(client, *to, bytes), std::to_string(bytes));
  caf::scoped_actor self(client.system());
  self->monitor(*to);
  EXPECT_EQ(ask(client, *to, 9'000'000, 1s), "no answer in time");
  bool down = false;
  self->receive([&](const caf::down_msg&) { down = true; }, caf::after(20s) >> [] {});
  EXPECT_TRUE(down);
  EXPECT_THAT(log_text(), HasSubstr("a frame of 9000"));
  auto again = reach(client, port);
  ASSERT_TRUE(again) << render(again.error());
  EXPECT_EQ(ask(client, *again, 5), "5");
}

// given: the server ends / expected: a monitor tells within a moment; nobody is reached any more, at once
TEST_F(link_test, tells_the_end) {
  control_plane client;
  auto to = reach(client, port);
  ASSERT_TRUE(to) << render(to.error());
  caf::scoped_actor self(client.system());
  self->monitor(*to);
  const auto begin = steady_clock::now();
  stop_server();
  bool down = false;
  self->receive([&](const caf::down_msg&) { down = true; }, caf::after(20s) >> [] {});
  EXPECT_TRUE(down);
  EXPECT_LT(steady_clock::now() - begin, 1s);
  auto gone = reach(client, port);
  ASSERT_FALSE(gone);
  EXPECT_TRUE(gone.error() == caf::sec::cannot_connect_to_node) << render(gone.error());
}

// given: a port where connections are taken and nothing is said / expected: given up after the time that was said, the
// actor that dials goes on
TEST_F(link_test, waits_for_the_first_word) {
  tcp::acceptor silent(io, {boost::asio::ip::address_v4::loopback(), 0});
  control_plane client({.dial = 300ms});
  const auto begin = steady_clock::now();
  auto nobody = reach(client, silent.local_endpoint().port());
  ASSERT_FALSE(nobody);
  EXPECT_TRUE(nobody.error() == caf::sec::connection_timeout) << render(nobody.error());
  EXPECT_GE(steady_clock::now() - begin, 300ms);
  EXPECT_TRUE(reach(client, port));
}

// given: what ended a process that let CAF read it: a handshake without content, one of 4 GB, one whose content claims
// 2 GB; with our greeting and without / expected: without it not a byte comes back, with it CAF's handshake at most;
// the connection ends, one line each, memory stays, and others are served
TEST_F(link_test, hostile_bytes_are_refused) {
  frame_header empty, huge, liar;
  empty.kind = huge.kind = liar.kind = frame_kind::client_handshake;
  huge.payload_bytes = 0xFFFF'FFFF;
  liar.payload_bytes = 32;
  auto lies = encode_header(liar);
  lies.resize(64, static_cast<char>(0xFF));
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  for (const auto& bytes : {encode_header(empty), encode_header(huge), lies}) {
    auto greeted = stranger(std::string(greeting) + std::string(bytes.begin(), bytes.end()));
    EXPECT_NE(hears(greeted), std::nullopt);
  }
  for (const auto& bytes : {encode_header(empty), encode_header(huge), lies}) {
    auto raw = stranger(std::string(bytes.begin(), bytes.end()));
    EXPECT_EQ(hears(raw), "");
  }
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 16 * 1024) << "KiB";
  const auto said = log_text();
  for (const auto* why : {"it is no program of Parcae's", "an impossible handshake", "a frame of 4294967295 bytes",
                          "a payload that cannot be read"})
    EXPECT_THAT(said, HasSubstr(why));
  control_plane client;
  auto to = reach(client, port);
  ASSERT_TRUE(to) << render(to.error());
  EXPECT_EQ(ask(client, *to, 5), "5");
}

// given: someone who shakes hands as a node that is connected / expected: refused, the node's connection stands
TEST_F(link_test, nobody_takes_a_nodes_place) {
  control_plane client;
  auto to = reach(client, port);
  ASSERT_TRUE(to) << render(to.error());
  ASSERT_EQ(ask(client, *to, 5), "5"); // its handshake is through
  std::vector<char> payload;
  caf::binary_serializer sink(client.system(), payload);
  auto node = client.system().node();
  ASSERT_FALSE(sink(node));
  frame_header x;
  x.kind = frame_kind::client_handshake;
  x.flags = frame_header::select_connection;
  x.payload_bytes = static_cast<std::uint32_t>(payload.size());
  const auto header = encode_header(x);
  auto impostor = stranger(std::string(greeting) + std::string(header.begin(), header.end()) +
                           std::string(payload.begin(), payload.end()));
  EXPECT_NE(hears(impostor), std::nullopt);
  EXPECT_THAT(log_text(), HasSubstr("a node that another connection is of"));
  EXPECT_EQ(ask(client, *to, 5), "5");
}

// given: who has shaken hands, and then says to what is published what CAF's actors obey, or to who it was not told of
// / expected: each ends the connection, with why in the log; what is published lives and answers
TEST_F(link_test, only_what_is_on_the_list_is_heard) {
  control_plane client;
  auto to = reach(client, port);
  ASSERT_TRUE(to) << render(to.error());
  using caf::make_message;
  const auto kill = make_message(caf::exit_msg{caf::actor_addr{}, caf::exit_reason::kill});
  const auto end = make_message(caf::exit_msg{caf::actor_addr{}, caf::exit_reason::user_shutdown});
  const auto good = make_message(client_request{std::vector<char>(5)});
  const std::vector<caf::message> all{kill,
                                      end,
                                      make_message(caf::make_error(caf::sec::runtime_error)),
                                      make_message(caf::sys_atom_v, caf::get_atom_v, std::string("info")),
                                      make_message(std::string("\x1b[2J")),
                                      caf::message{}};
  std::uint32_t number = 1'000;
  for (const auto& what : all) {
    bare_peer peer(port, ++number);
    peer.say(peer.front, bare_peer::statement, content(what));
    peer.rest();
    EXPECT_EQ(ask(client, *to, 5), "5") << caf::to_string(what);
    EXPECT_THAT(log_text(), HasSubstr("a message that nobody may say"));
  }
  EXPECT_LE(std::ranges::count(log_text(), '\n'), 5); // members' lines are limited as strangers' are
  const auto refused = [&](std::uint64_t actor, std::uint64_t id) {
    bare_peer peer(port, ++number);
    peer.say(actor == 0 ? peer.front : actor, id, content(good), 7);
    peer.rest();
    EXPECT_EQ(ask(client, *to, 5), "5");
  };
  for (std::uint64_t actor = 1; actor < 4; ++actor)
    refused(1'000 + actor, bare_peer::statement + 1);
  refused(0, bare_peer::answer + bare_peer::statement + 1);
  refused(0, 1); // urgent
}

// given: a command that waits, as the FRONT's do for the registry, and who answers it unasked, under all numbers it may
// have / expected: the answer is the registry's
TEST_F(link_test, nobody_else_answers) {
  std::promise<void> asked;
  auto registry = server->system().spawn([&](service_actor::pointer self) -> service_actor::behavior_type {
    auto open = std::make_shared<caf::typed_response_promise<client_reply>>();
    return {[=, &asked](const client_request& x) -> caf::result<client_reply> {
      if (x.bytes.empty()) { // this test's
        open->deliver(client_reply{std::vector<char>(8)});
        return client_reply{};
      }
      *open = self->make_response_promise<client_reply>();
      asked.set_value();
      return *open;
    }};
  });
  caf::anon_send_exit(service, caf::exit_reason::user_shutdown);
  service = server->system().spawn([&](service_actor::pointer self) -> service_actor::behavior_type {
    return {[self, registry](const client_request& x) -> caf::result<client_reply> {
      auto promise = self->make_response_promise<client_reply>();
      self->request(registry, 20s, x)
          .then([promise](const client_reply& y) mutable { promise.deliver(y); },
                [promise](caf::error& e) mutable { promise.deliver(std::move(e)); });
      return promise;
    }};
  });
  publish();
  control_plane client;
  auto to = reach(client, port);
  ASSERT_TRUE(to) << render(to.error());
  auto answer = std::async(std::launch::async, [&] { return ask(client, *to, 5); });
  asked.get_future().get();
  for (std::uint64_t number = 1; number < 8; ++number) {
    bare_peer forger(port, static_cast<std::uint32_t>(2'000 + number));
    forger.say(forger.front, bare_peer::answer + bare_peer::statement + number,
               content(caf::make_message(client_reply{std::vector<char>(13)})));
    forger.rest();
  }
  caf::anon_send(registry, client_request{});
  EXPECT_EQ(answer.get(), "8");
  caf::anon_send_exit(registry, caf::exit_reason::user_shutdown);
}

// given: 100 connections made and lost in every state / expected: no descriptor is left behind
TEST_F(link_test, lost_connections_leave_nothing) {
  {
    control_plane warm;
    ASSERT_TRUE(reach(warm, port));
    stranger("x"); // of this test's own descriptors
  }
  ASSERT_TRUE(eventually([&] { return descriptors() < 60; }));
  const auto before = descriptors();
  for (int i = 0; i < 100; ++i) {
    stranger(greeting.substr(0, static_cast<std::size_t>(i) % 17));
    if (i % 10 == 0) {
      control_plane client;
      EXPECT_TRUE(reach(client, port));
    }
  }
  EXPECT_TRUE(eventually([&] { return descriptors() <= before; })) << descriptors() << " of " << before;
}

struct few_questions : link_test {
  few_questions() { options.questions = 50; }
};

// given: who asks a hundred things at once, where fifty may be asked in a second, and then another; and somebody else /
// expected: the former waits until its turn has come, and is answered; the latter is answered
TEST_F(few_questions, who_asks_too_much_waits) {
  control_plane greedy, modest;
  auto theirs = reach(greedy, port), ours = reach(modest, port);
  ASSERT_TRUE(theirs && ours);
  caf::scoped_actor self(greedy.system());
  const auto begin = steady_clock::now();
  for (int i = 0; i < 100; ++i)
    self->request(*theirs, 20s, client_request{});
  EXPECT_EQ(ask(modest, *ours, 5), "5");
  EXPECT_EQ(ask(greedy, *theirs, 5), "5");
  EXPECT_EQ(ask(greedy, *theirs, 5), "5"); // what came at once is heard at once, and paid for behind that
  EXPECT_GE(steady_clock::now() - begin, 900ms);
}

struct with_certificates : few_questions {
  with_certificates() {
    options.bundle = authority.bundle(membership::manager, "manager");
    options.of_one = {3, 50};
  }

  struct caller {
    std::unique_ptr<control_plane> plane; ///< null: it was refused
    service_actor to;
    explicit operator bool() const { return !!plane; }
  };

  caller client(const std::filesystem::path& bundle) {
    caller result{std::make_unique<control_plane>(link_options{.bundle = bundle}), {}};
    auto reached = reach(*result.plane, port);
    if (!reached)
      return {};
    result.to = *reached;
    return result;
  }

  test_authority authority;
};

// given: as many connections with one client's certificates as there may be, and one more, also with one made anew; a
// hundred questions on two of them / expected: it is refused, until one of them ends; another's is not; both together
// ask no more than one may
TEST_F(with_certificates, one_holder_has_so_many_connections) {
  const auto bundle = authority.bundle(membership::client, "a"), other = authority.bundle(membership::client, "b");
  const auto a = client(bundle), b = client(bundle);
  auto c = client(bundle);
  ASSERT_TRUE(a && b && c);
  EXPECT_FALSE(client(authority.bundle(membership::client, "a")));
  EXPECT_THAT(log_text(), HasSubstr("its certificate has as many connections here as one may have"));
  EXPECT_TRUE(client(other));
  c.to = nullptr;
  c.plane.reset();
  EXPECT_TRUE(eventually([&] { return !!client(bundle); }));
  const auto begin = steady_clock::now();
  caf::scoped_actor one(a.plane->system()), two(b.plane->system());
  for (int i = 0; i < 50; ++i) {
    one->request(a.to, 20s, client_request{});
    two->request(b.to, 20s, client_request{});
  }
  for (int i = 0; i < 2; ++i) // what came at once is heard at once, and paid for behind that
    for (const auto* x : {&a, &b})
      EXPECT_EQ(ask(*x->plane, x->to, 5), "5");
  EXPECT_GE(steady_clock::now() - begin, 900ms);
}

// given: what a member may say and no client, by its size / expected: a client's connection ends before it is there
TEST_F(with_certificates, how_much_is_by_role) {
  const auto ann = client(authority.bundle(membership::client, "a"));
  ASSERT_TRUE(ann);
  EXPECT_EQ(ask(*ann.plane, ann.to, 1'000'000), "1000000");
  EXPECT_EQ(ask(*ann.plane, ann.to, 2'000'000, 1s), "no answer in time");
  EXPECT_THAT(log_text(), HasSubstr("a frame of 2000"));
}

struct short_of_patience : link_test {
  short_of_patience() {
    options.greeting = options.first_frame = 300ms;
    options.strangers = 64;
  }
};

// given: 500 connections that say nothing, more than may wait / expected: who has something to say is served within a
// second; the others are closed when their time is over
TEST_F(short_of_patience, silent_connections_delay_nobody) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
  setrlimit(RLIMIT_NOFILE, &limit);
  std::vector<tcp::socket> silent;
  for (int i = 0; i < 500; ++i)
    silent.push_back(stranger(i % 2 == 0 ? std::string_view() : greeting));
  control_plane client;
  const auto begin = steady_clock::now();
  auto to = reach(client, port);
  ASSERT_TRUE(to) << render(to.error());
  EXPECT_LT(steady_clock::now() - begin, 1s);
  for (auto& x : silent)
    EXPECT_NE(hears(x), std::nullopt);
  EXPECT_THAT(log_text(), HasSubstr("others wait"));
  EXPECT_EQ(ask(client, *to, 5), "5");
}

// given: a stranger that says a byte, and no more; another that greets, and no more / expected: both closed in time,
// and why is in the log
TEST_F(short_of_patience, half_a_word_is_not_waited_for) {
  auto byte = stranger(greeting.substr(0, 1)), greeted = stranger(greeting);
  EXPECT_EQ(hears(byte), "");
  EXPECT_NE(hears(greeted), std::nullopt);
  EXPECT_THAT(log_text(), HasSubstr("it did not say what it is in time"));
  EXPECT_THAT(log_text(), HasSubstr("it did not shake hands in time"));
}

} // namespace
} // namespace parcae

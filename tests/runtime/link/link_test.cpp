// Two processes' control planes in one, and strangers between them.

#include "protocols/wire/type_ids.hpp"
#include "runtime/link/frame_gate.hpp"
#include "runtime/process/system.hpp"
#include "tests/support/dial.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <gmock/gmock.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <future>
#include <optional>
#include <sstream>

namespace parcae {
namespace {

using namespace std::chrono_literals;
using boost::asio::ip::tcp;
using std::chrono::steady_clock;
using testing::HasSubstr;

constexpr std::string_view greeting{"parcae control 1"};

std::size_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

service_actor::behavior_type echo(service_actor::pointer) {
  return {[](const client_request& x) { return client_reply{x.bytes}; }};
}

struct link_test : testing::Test {
  void SetUp() override {
    server.emplace(options);
    service = server->system().spawn(echo);
    caf::scoped_actor self(server->system());
    self->request(server->middleman(), 10s, caf::publish_atom_v, std::uint16_t{0},
                  caf::actor_cast<caf::strong_actor_ptr>(service), server->system().message_types(service),
                  std::string("127.0.0.1"), true)
        .receive([&](std::uint16_t x) { port = x; }, [](const caf::error& e) { FAIL() << render(e); });
  }

  void TearDown() override {
    stop_server();
    spdlog::set_default_logger(logger_before);
  }

  void stop_server() {
    caf::anon_send_exit(service, caf::exit_reason::user_shutdown);
    service = nullptr;
    server.reset();
  }

  caf::expected<service_actor> reach(control_plane& from, std::uint16_t at) {
    return dial<service_actor>(from.system(), from.middleman(), {"localhost", at});
  }

  /// Bytes that come back for that many, or the error's text.
  static std::string ask(control_plane& from, const service_actor& to, std::size_t bytes,
                         std::chrono::seconds limit = 20s) {
    caf::scoped_actor self(from.system());
    std::string result;
    self->request(to, limit, client_request{std::vector<char>(bytes, 'x')})
        .receive([&](const client_reply& x) { result = std::to_string(x.bytes.size()); },
                 [&](const caf::error& e) { result = render(e); });
    return result;
  }

  tcp::socket stranger(std::string_view says) {
    tcp::socket result(io);
    result.connect({boost::asio::ip::address_v4::loopback(), port});
    boost::asio::write(result, boost::asio::buffer(says));
    return result;
  }

  /// What it hears until the connection ends; nothing if that takes longer than 20 s.
  static std::optional<std::string> hears(tcp::socket& x) {
    auto told = std::async(std::launch::async, [&] {
      std::string result;
      boost::system::error_code end;
      boost::asio::read(x, boost::asio::dynamic_buffer(result), end);
      return result;
    });
    if (told.wait_for(20s) == std::future_status::ready)
      return told.get();
    x.shutdown(tcp::socket::shutdown_both);
    return std::nullopt;
  }

  bool eventually(const std::function<bool()>& condition) {
    for (const auto end = steady_clock::now() + 20s; steady_clock::now() < end;)
      if (condition())
        return true;
    return false;
  }

  std::string log_text() {
    spdlog::default_logger()->flush();
    return lines.str();
  }

  std::ostringstream lines;
  std::shared_ptr<spdlog::logger> logger_before = [this] {
    auto before = spdlog::default_logger();
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines)));
    return before;
  }();
  link_options options;
  boost::asio::io_context io;
  std::optional<control_plane> server;
  service_actor service;
  std::uint16_t port = 0;
};

// given: small messages and large ones / expected: answers; one that is larger than any may be ends the connection,
// which monitors tell, while CAF lets its request wait
TEST_F(link_test, carries_messages) {
  control_plane client;
  auto to = reach(client, port);
  ASSERT_TRUE(to) << render(to.error());
  for (std::size_t bytes : {0u, 1u, 100u, 16'000u, 900'000u, 7'000'000u})
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

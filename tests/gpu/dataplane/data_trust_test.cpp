// Data connections in TLS: who is let in, and what becomes of the others. The communicator's own tests run in TLS, too.

#include "gpu/dataplane/frames.hpp"
#include "protocols/trust/credentials.hpp"
#include "tests/gpu/dataplane/data_plane_fixture.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <fstream>
#include <future>
#include <optional>
#include <utility>
#include <vector>

using namespace parcae;
using namespace parcae::rig;
using boost::asio::ip::tcp;
using ::testing::HasSubstr;
namespace fs = std::filesystem;
namespace ssl = boost::asio::ssl;

namespace {

/// Someone with a program of its own, and any certificate or none. Reads end within ten seconds.
struct stranger {
  stranger(std::uint16_t port, const fs::path& bundle) : context(ssl::context::tls_client), stream(io, context) {
    if (!bundle.empty()) {
      SSL_use_certificate_file(stream.native_handle(), bundle.c_str(), SSL_FILETYPE_PEM);
      SSL_use_PrivateKey_file(stream.native_handle(), bundle.c_str(), SSL_FILETYPE_PEM);
    }
    stream.next_layer().connect({boost::asio::ip::address_v4::loopback(), port});
    timeval limit{10, 0};
    ::setsockopt(stream.next_layer().native_handle(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    boost::system::error_code ignored;
    stream.handshake(ssl::stream_base::client, ignored);
  }

  std::optional<refusal> say(const greeting& x) {
    boost::system::error_code failure;
    boost::asio::write(stream, boost::asio::buffer(encode(x)), failure);
    std::array<std::byte, verdict_size> answer;
    boost::asio::read(stream, boost::asio::buffer(answer), failure);
    return failure ? std::nullopt : decode_verdict(answer);
  }

  boost::asio::io_context io;
  ssl::context context;
  ssl::stream<tcp::socket> stream;
};

using bundles = std::vector<fs::path>;

struct data_trust : ::testing::Test {
  void SetUp() override { begin_log(); }

  void begin_log() {
    log = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(200);
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("", log));
  }

  bool says(const std::string& what) {
    return eventually([&] {
      for (const auto& line : log->last_formatted())
        if (line.find(what) != std::string::npos)
          return true;
      return false;
    });
  }

  static greeting greeting_of(const cluster& c) {
    return {purpose::generation, 0, 1, c.plan.job, c.plan.next, c.plan.token, {}, {}};
  }

  test_authority authority;
  const fs::path first = authority.bundle(membership::node, "node-0");
  const fs::path second = authority.bundle(membership::node, "node-1");
  std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> log;
};

void expect_works(communicator& from, communicator& to) {
  tag what{channel::activation, 1, 0};
  const auto bytes = random_bytes(100'000, 1);
  std::vector<std::byte> in(bytes.size());
  const auto sent = from.send(to.self(), what, bytes);
  to.wait(to.receive(from.self(), what, in), patience);
  from.wait(sent, patience);
  EXPECT_TRUE(in == bytes);
}

} // namespace

// given: who dials with the right greeting and the right token, but a certificate that is not good for it / expected:
// no verdict, or the one that says so; one line in the log with the reason. With the right certificate: accepted
TEST_F(data_trust, who_dials_is_looked_at) {
  const test_authority others;
  const auto revoked = authority.bundle(membership::node, "stolen");
  authority.revoke("stolen", second);
  struct {
    const char* who;
    fs::path bundle;
    std::optional<refusal> verdict;
    const char* line;
  } cases[] = {
      {"nobody", {}, std::nullopt, "peer did not return a certificate"},
      {"past its time", authority.bundle(membership::node, "old", -24h), std::nullopt, "certificate has expired"},
      {"another cluster's", others.bundle(membership::node, "node-0"), std::nullopt, "its certificate: "},
      {"revoked", revoked, std::nullopt, "certificate revoked"},
      {"a client", authority.bundle(membership::client, "me"), std::nullopt, "it is client me, and no node"},
      {"the manager", authority.bundle(membership::manager, "manager"), std::nullopt, "its certificate: "},
      {"another node", authority.bundle(membership::node, "node-2"), refusal::name, "its certificate is of another"},
  };
  for (const auto& x : cases) {
    begin_log();
    cluster c(bundles{first, second});
    auto wrong = greeting_of(c), right = wrong;
    wrong.token.low ^= 1;
    // Participant 1 prepares the generation until somebody is participant 0 to it.
    auto prepared = std::async(std::launch::async, [&] { return c.connect(1); });
    EXPECT_EQ(stranger(c.ports[1]->port(), x.bundle).say(right), x.verdict) << x.who;
    EXPECT_TRUE(says(x.line)) << x.who;
    EXPECT_EQ(stranger(c.ports[1]->port(), first).say(wrong), refusal::token) << x.who;
    EXPECT_TRUE(says("wrong token"));
    stranger good(c.ports[1]->port(), first);
    EXPECT_EQ(good.say(right), refusal::none) << x.who;
    prepared.get();
  }
}

// given: a port dialled that is of another node, of no node, or plain / expected: named unreachable, and why
TEST_F(data_trust, who_is_dialled_is_looked_at) {
  const auto connect = [&](const fs::path& there) -> std::string {
    cluster c(bundles{first, there});
    try {
      c.connect(0, 4s); // until then it tries again
    } catch (const unreachable_peer& e) {
      return e.what();
    }
    return {};
  };
  const test_authority others;
  const std::pair<fs::path, std::string> table[] = {
      {authority.bundle(membership::node, "node-7"), "node node-7 is not node-1"},
      {authority.bundle(membership::client, "me"), "its certificate: "},
      {authority.bundle(membership::manager, "m"), "it is manager m, and no node"},
      {{}, "no TLS handshake"},
      {others.bundle(membership::node, "node-1"), "its certificate: "}};
  std::vector<std::future<std::string>> said;
  for (const auto& x : table)
    said.push_back(std::async(std::launch::async, [&] { return connect(x.first); }));
  for (std::size_t i = 0; i < said.size(); ++i)
    EXPECT_THAT(said[i].get(), HasSubstr(table[i].second));
}

// given: the token of a slot's snapshots, by the slot's own node and by another / expected: only the former's are taken
TEST_F(data_trust, snapshots_are_of_who_sends_them) {
  auto keeper = make_data_port("127.0.0.1", 0, second);
  keeper->accept_snapshots({7}, secret_key{{5}}, {}, [](const commit_result&, const shard_bytes&) {});
  const auto permit = permit_of({{5}}, {"node-0", {3}, 1});
  greeting hello{purpose::snapshot, 1, 0, {7}, {}, permit.token, {3}, "node-0"};
  EXPECT_EQ(stranger(keeper->port(), authority.bundle(membership::node, "node-2")).say(hello), refusal::name);
  EXPECT_EQ(stranger(keeper->port(), first).say(hello), refusal::none);
  hello.name = "node-2";
  EXPECT_EQ(stranger(keeper->port(), first).say(hello), refusal::token);

  auto sender = make_data_port("127.0.0.1", 0, first);
  auto stream = sender->open_snapshot_stream({7}, {{"node-1", {1}, 0}, "127.0.0.1", keeper->port()}, permit);
  auto x = std::make_shared<snapshot>();
  x->job = {7};
  x->shards.push_back(to_send(std::make_shared<const shard_bytes>(
      shard_bytes{0, {1, {1}}, {random_bytes(3'000'000, 1), random_bytes(1, 2), {}}})));
  stream->send(x);
  EXPECT_TRUE(stream->wait_until_idle(patience));
}

// given: all that a node said when it connected, said again / expected: no verdict, no connection
TEST_F(data_trust, what_was_said_is_good_once) {
  cluster c(bundles{first, second});
  boost::asio::io_context io;
  tcp::acceptor relay(io, {boost::asio::ip::address_v4::loopback(), 0});
  const auto there = c.plan.target.participants[1].port;
  std::string said;
  std::thread passing([&] {
    auto from = relay.accept();
    tcp::socket to(io);
    to.connect({boost::asio::ip::address_v4::loopback(), there});
    const auto pass = [](tcp::socket& a, tcp::socket& b, std::string* copy) {
      std::array<char, 4096> piece;
      boost::system::error_code end;
      while (const auto n = a.read_some(boost::asio::buffer(piece), end)) {
        if (copy)
          copy->append(piece.data(), n);
        boost::asio::write(b, boost::asio::buffer(piece.data(), n), end);
      }
      b.shutdown(tcp::socket::shutdown_both, end);
    };
    std::thread back([&] { pass(to, from, nullptr); });
    pass(from, to, &said);
    back.join();
  });
  c.plan.target.participants[1].port = relay.local_endpoint().port();
  {
    auto ends = c.connect_all();
    expect_works(*ends[0], *ends[1]);
  }
  passing.join();
  auto waiting = std::async(std::launch::async, [&] { EXPECT_THROW(c.connect(1, 2s), unreachable_peer); });
  tcp::socket again(io);
  again.connect({boost::asio::ip::address_v4::loopback(), there});
  boost::system::error_code end;
  boost::asio::write(again, boost::asio::buffer(said), end);
  std::string heard;
  boost::asio::read(again, boost::asio::dynamic_buffer(heard), end);
  EXPECT_TRUE(says("bad record mac"));
  waiting.get();
}

// given: a certificate that ends while its node is connected, and one waits for it / expected: that fails at once, and
// why is in the log; it is not let in any more
TEST_F(data_trust, ended_is_ended) {
  const auto brief = authority.bundle(membership::node, "node-0", 4s);
  cluster c(bundles{brief, second});
  auto ends = c.connect_all();
  expect_works(*ends[0], *ends[1]);
  std::vector<std::byte> in(10);
  auto receive = ends[1]->receive(0, {channel::exchange, 0, 0}, in);
  std::string why;
  try {
    ends[1]->wait(receive, patience);
  } catch (const communication_error& e) {
    why = e.what();
  }
  EXPECT_THAT(why, HasSubstr("its certificate has ended"));
  EXPECT_TRUE(says("its certificate has ended"));
  c.plan.next = {4};
  auto refused = std::async(std::launch::async, [&] { EXPECT_THROW(c.connect(1, 1s), unreachable_peer); });
  EXPECT_THROW(c.connect(0, 1s), unreachable_peer);
  refused.get();
}

// given: a bundle revoked while its node is connected, and read again / expected: what waits for it fails at once; it
// is not let in any more; a new certificate of that name is
TEST_F(data_trust, revoked_is_ended) {
  cluster c(bundles{first, second});
  auto ends = c.connect_all();
  expect_works(*ends[0], *ends[1]);
  authority.revoke("node-0", second);
  std::vector<std::byte> in(10);
  auto receive = ends[1]->receive(0, {channel::exchange, 0, 0}, in);
  auto waiting = std::async(std::launch::async, [&] {
    try {
      ends[1]->wait(receive, patience);
    } catch (const communication_error& e) {
      return std::string(e.what());
    }
    return std::string();
  });
  EXPECT_EQ(c.ports[1]->read_bundle_again(), "");
  ASSERT_EQ(waiting.wait_for(5s), std::future_status::ready);
  EXPECT_THAT(waiting.get(), HasSubstr("its certificate is revoked"));
  EXPECT_TRUE(says("its certificate is revoked"));
  c.plan.next = {4};
  auto refused = std::async(std::launch::async, [&] { EXPECT_THROW(c.connect(1, 1s), unreachable_peer); });
  EXPECT_THROW(c.connect(0, 1s), unreachable_peer);
  refused.get();

  authority.bundle(membership::node, "node-0");
  EXPECT_EQ(c.ports[0]->read_bundle_again(), "");
  c.plan.next = {5};
  ends = c.connect_all();
  expect_works(*ends[0], *ends[1]);
  std::ofstream(second) << "no bundle any more";
  EXPECT_THAT(c.ports[1]->read_bundle_again(), HasSubstr("cannot use the bundle"));
  expect_works(*ends[0], *ends[1]);
}

// given: 300 connections that begin a handshake with as much as is let in, and go on no more / expected: less than 64
// KiB each is held, of 256 at most, and who knows what to say is let in meanwhile
TEST_F(data_trust, strangers_are_given_little) {
  cluster c(bundles{first, second});
  c.connect_all();
  const auto peak_kib = [] {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    return used.ru_maxrss;
  };
  boost::asio::io_context io;
  std::vector<tcp::socket> all;
  std::string most(0x2003, 'x'); // a record of 8 KiB, but for its last bytes
  most.replace(0, hello_bytes, std::string("\x16\x03\x01\x20\x00\x01\x00\x1F\xFC", hello_bytes));
  all.reserve(600);
  const auto before = peak_kib();
  for (int i = 0; i < 300; ++i) {
    auto& x = all.emplace_back(io);
    x.connect({boost::asio::ip::address_v4::loopback(), c.ports[1]->port()});
    boost::asio::write(x, boost::asio::buffer(most));
  }
  EXPECT_TRUE(says("others wait, and it said nothing"));
  c.plan.next = {4};
  const auto begin = std::chrono::steady_clock::now();
  auto ends = c.connect_all();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
  expect_works(*ends[0], *ends[1]);
  EXPECT_LT(peak_kib() - before, 256 * 64);
  std::string heard;
  boost::system::error_code end;
  boost::asio::read(all.back(), boost::asio::dynamic_buffer(heard), end);
  EXPECT_EQ(heard, "");
}

// given: who connects and says nothing, and who shows a good certificate and says nothing then / expected: closed after
// five seconds, and the log says so
TEST_F(data_trust, the_silent_are_closed) {
  cluster c(bundles{first, second});
  const auto begin = std::chrono::steady_clock::now();
  stranger polite(c.ports[1]->port(), first);
  boost::asio::io_context io;
  tcp::socket silent(io);
  silent.connect({boost::asio::ip::address_v4::loopback(), c.ports[1]->port()});
  boost::system::error_code end;
  char one;
  EXPECT_EQ(silent.read_some(boost::asio::buffer(&one, 1), end), 0u);
  EXPECT_EQ(polite.stream.read_some(boost::asio::buffer(&one, 1), end), 0u);
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GT(took, 4s);
  EXPECT_LT(took, 9s);
  EXPECT_TRUE(says("(node node-0): it said nothing in time"));
}

// given: ports and connections between them / expected: no program that this process starts has them
TEST_F(data_trust, sockets_are_not_inherited) {
  cluster c(bundles{first, second});
  auto ends = c.connect_all();
  int sockets = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    const int file = std::stoi(entry.path().filename());
    std::error_code gone;
    if (fs::read_symlink(entry, gone).string().starts_with("socket:") && !gone) {
      ++sockets;
      EXPECT_TRUE(::fcntl(file, F_GETFD) & FD_CLOEXEC) << file;
    }
  }
  EXPECT_GE(sockets, 4);
}

// given: no bundle / expected: only loopback is listened on and dialled; one line says what to do
TEST_F(data_trust, without_a_bundle_there_is_only_loopback) {
  for (const auto* host : {"0.0.0.0", "::"})
    try {
      make_data_port(host);
      ADD_FAILURE() << host;
    } catch (const std::runtime_error& e) {
      EXPECT_THAT(e.what(), HasSubstr("parcae init"));
    }
  cluster c(2, fs::path());
  c.plan.target.participants[1].host = "192.0.2.1"; // of nobody (RFC 5737)
  try {
    c.connect(0, 300ms);
    ADD_FAILURE();
  } catch (const unreachable_peer& e) {
    EXPECT_THAT(e.what(), HasSubstr("only loopback"));
  }
  c.plan.target.participants[1].host = "localhost";
  auto ends = c.connect_all();
  expect_works(*ends[0], *ends[1]);
}

// given: IPv6 / expected: listened on and reached, where the machine has it
TEST_F(data_trust, speaks_ipv6) {
  if (!fs::exists("/proc/net/if_inet6"))
    GTEST_SKIP() << "no IPv6 here";
  cluster c(bundles{first, second});
  c.ports[1] = make_data_port("::1", 0, second);
  c.plan.target.participants[1].host = "::1";
  c.plan.target.participants[1].port = c.ports[1]->port();
  auto ends = c.connect_all();
  expect_works(*ends[0], *ends[1]);
}

// Certificates: who is let to shake hands.

#include "protocols/trust/authority.hpp"
#include "protocols/trust/credentials.hpp"
#include "protocols/trust/tls_session.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/ssl/stream.hpp>

#include <gmock/gmock.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <numeric>
#include <optional>

namespace parcae {
namespace {

using namespace std::chrono_literals;
using std::chrono::days;
using testing::HasSubstr;
using testing::StartsWith;
namespace fs = std::filesystem;
namespace ssl = boost::asio::ssl;
using stream_protocol = boost::asio::local::stream_protocol;

mode_t mode_of(const fs::path& path) {
  struct ::stat facts {};
  EXPECT_EQ(::stat(path.c_str(), &facts), 0);
  return facts.st_mode & 07777;
}

std::string content(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string problem_of(const fs::path& bundle) {
  try {
    credentials x(bundle);
    return {};
  } catch (const std::runtime_error& e) {
    return e.what();
  }
}

struct trust : testing::Test {
  void SetUp() override {
    std::string pattern = testing::TempDir() + "trust.XXXXXX";
    folder = ::mkdtemp(pattern.data());
    make_authority(folder / "a", days(10));
    manager = issue_bundle(folder / "a", membership::manager, "manager", days(10));
    node = issue_bundle(folder / "a", membership::node, "node", days(10));
  }
  void TearDown() override { fs::remove_all(folder); }

  /// What each side says of the handshake.
  struct outcome {
    std::string server, client;                   ///< problems
    std::optional<identity> of_server, of_client; ///< as the other side sees it
    std::string version;
  };

  outcome shake(ssl::context& server, ssl::context& client) {
    boost::asio::io_context io;
    stream_protocol::socket a(io), b(io);
    boost::asio::local::connect_pair(a, b);
    ssl::stream<stream_protocol::socket&> here(a, server), there(b, client);
    outcome result;
    const auto note = [](std::string& to, ssl::stream<stream_protocol::socket&>& x) {
      return [&](const boost::system::error_code& e) {
        if (!e)
          return;
        to = handshake_problem(x.native_handle(), e.message());
        boost::system::error_code ignored;
        x.next_layer().close(ignored);
      };
    };
    here.async_handshake(ssl::stream_base::server, note(result.server, here));
    there.async_handshake(ssl::stream_base::client, note(result.client, there));
    io.run_for(10s);
    result.of_client = credentials::peer_of(here.native_handle());
    result.of_server = credentials::peer_of(there.native_handle());
    result.version = SSL_get_version(here.native_handle());
    return result;
  }

  outcome shake(const fs::path& server, const fs::path& client) {
    const credentials a(server), b(client);
    return shake(a.context(), b.context());
  }

  fs::path folder, manager, node;
};

// given: a bundle of each role / expected: TLS 1.3, each side knows who the other is; keys are for their owner
TEST_F(trust, both_sides_know_each_other) {
  const auto x = shake(manager, node);
  EXPECT_EQ(x.server, "");
  EXPECT_EQ(x.client, "");
  EXPECT_EQ(x.version, "TLSv1.3");
  ASSERT_TRUE(x.of_client && x.of_server);
  EXPECT_EQ(to_string(*x.of_client), "node node");
  EXPECT_EQ(to_string(*x.of_server), "manager manager");
  EXPECT_EQ(*x.of_client, credentials(node).self());
  for (const auto* secret : {"authority.key", "manager.pem", "node.pem", "issued"})
    EXPECT_EQ(mode_of(folder / "a" / secret), 0600u) << secret;
}

// given: peers with no certificate, another authority's, an expired one, an older TLS; certificates used for what they
// are not / expected: refused by the side that sees it, which says why
TEST_F(trust, strangers_are_refused) {
  const credentials good(manager);
  ssl::context bare(ssl::context::tls);
  EXPECT_THAT(shake(good.context(), bare).server, HasSubstr("certificate"));

  make_authority(folder / "b", days(10));
  const credentials other(issue_bundle(folder / "b", membership::node, "node", days(10)));
  EXPECT_THAT(shake(good.context(), other.context()).server + shake(good.context(), other.context()).client,
              HasSubstr("its certificate: "));

  const credentials old(node);
  SSL_CTX_set_min_proto_version(old.context().native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_max_proto_version(old.context().native_handle(), TLS1_2_VERSION);
  EXPECT_NE(shake(good.context(), old.context()).server, "");

  const auto client = issue_bundle(folder / "a", membership::client, "me", days(10));
  EXPECT_EQ(shake(manager, client).server, "");
  EXPECT_THAT(shake(client, node).client, HasSubstr("its certificate: ")); // it is for clients only
  EXPECT_THAT(shake(node, manager).server, HasSubstr("its certificate: "));
}

// given: a bundle revoked, the list read again / expected: refused from then on, others are not; who has it cannot even
// use it where the list is; another with its name can be issued
TEST_F(trust, revoked_is_refused) {
  const credentials before(manager), stolen(node);
  EXPECT_EQ(shake(before.context(), stolen.context()).server, "");
  EXPECT_EQ(revoke_bundles(folder / "a", "node"), 1);
  EXPECT_EQ(revoke_bundles(folder / "a", "node"), 0);
  const credentials after(manager);
  EXPECT_THAT(shake(after.context(), stolen.context()).server, HasSubstr("certificate revoked"));
  EXPECT_TRUE(after.revoked(stolen.self()));
  EXPECT_FALSE(before.revoked(stolen.self()));
  EXPECT_FALSE(after.revoked(after.self()));
  EXPECT_THAT(problem_of(node), HasSubstr("certificate revoked"));
  const auto renewed = issue_bundle(folder / "a", membership::node, "node", days(10));
  EXPECT_EQ(shake(manager, renewed).server, "");
  EXPECT_THROW(revoke_bundles(folder / "a", "nobody"), std::runtime_error);
}

// given: bundles that are spoilt or past their time / expected: what is wrong, in one line, when they are read
TEST_F(trust, spoilt_bundles_are_told) {
  EXPECT_THAT(problem_of(folder / "nothing"), HasSubstr("nothing"));
  const auto expired = issue_bundle(folder / "a", membership::node, "old", days(-1));
  EXPECT_THAT(problem_of(expired), HasSubstr("certificate has expired"));
  const auto spoil = [&](const std::string& text) {
    const auto path = folder / "a" / "spoilt.pem";
    std::ofstream(path) << text;
    ::chmod(path.c_str(), 0600);
    return problem_of(path);
  };
  const auto good = content(node), other = content(manager);
  const auto certificate = good.find("-----BEGIN CERT");
  EXPECT_EQ(spoil(good), "");
  EXPECT_THAT(spoil(""), HasSubstr("no certificate"));
  EXPECT_THAT(spoil(good.substr(certificate)), HasSubstr("no key"));
  EXPECT_THAT(spoil(good.substr(0, good.rfind("-----BEGIN CERT"))), HasSubstr("of its authority"));
  EXPECT_THAT(spoil(good.substr(0, certificate) + other.substr(other.find("-----BEGIN CERT"))),
              HasSubstr("do not belong together"));
  ::chmod(node.c_str(), 0644);
  EXPECT_THAT(problem_of(node), HasSubstr("open to everybody: chmod 600"));
  EXPECT_THAT(problem_of(folder / "a" / "revoked.pem"), HasSubstr("open to everybody"));
}

// given: a second authority in a folder, names that are none / expected: refused in one line; nothing is overwritten
TEST_F(trust, an_authority_is_made_once) {
  const auto before = content(folder / "a" / "authority.pem");
  EXPECT_THROW(make_authority(folder / "a", days(1)), std::runtime_error);
  EXPECT_EQ(content(folder / "a" / "authority.pem"), before);
  for (const auto* bad : {"", "..", "a/b", "-a", "authority", "revoked", "a b", "ä"})
    EXPECT_THROW(issue_bundle(folder / "a", membership::node, bad, days(1)), std::runtime_error) << bad;
  EXPECT_THROW(issue_bundle(folder / "none", membership::node, "a", days(1)), std::runtime_error);
}

// given: two sessions over a socket pair whose buffers are small, each sending while it receives, keys that last for
// 100 KB, pieces of all sizes / expected: all arrives, in order, with keys replaced many times
TEST_F(trust, sessions_replace_their_keys) {
  const auto own = std::make_shared<credentials>(node);
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  tls_session a(own, ends[0], link_side::accepted, 100'000), b(own, ends[1], link_side::dialled, 100'000);
  for (int i = 0; i < 20; ++i)
    for (auto* x : {&a, &b})
      ASSERT_NE(x->shake_hands(), tls_session::handshake::failed) << x->problem();
  ASSERT_EQ(to_string(*a.peer()), "node node");
  a.widen();
  std::vector<std::uint32_t> out(2'000'000), in(out.size()), back(out.size());
  std::iota(out.begin(), out.end(), 0);
  struct {
    tls_session *from, *to;
    std::vector<std::uint32_t>& arrived;
    std::size_t sent = 0, got = 0;
  } ways[] = {{&a, &b, in}, {&b, &a, back}};
  const auto size = out.size() * sizeof out[0];
  std::size_t piece = 1;
  for (const auto end = std::chrono::steady_clock::now() + 30s; std::chrono::steady_clock::now() < end;) {
    for (auto& w : ways) {
      piece = piece * 7 % 300'007;
      const auto first = std::min(piece, size - w.sent), second = std::min<std::size_t>(50, size - w.sent - first);
      auto* bytes = reinterpret_cast<char*>(out.data()) + w.sent;
      const iovec pieces[] = {{bytes, first}, {bytes + first, second}};
      const auto n = w.from->send(pieces);
      ASSERT_TRUE(n >= 0 || errno == EAGAIN) << w.from->problem();
      w.sent += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
      const iovec rest{reinterpret_cast<char*>(w.arrived.data()) + w.got, size - w.got};
      const auto m = w.got == size ? 0 : w.to->receive({&rest, 1});
      ASSERT_TRUE(m >= 0 || errno == EAGAIN) << w.to->problem();
      w.got += static_cast<std::size_t>(std::max<ssize_t>(m, 0));
    }
    if (ways[0].got == size && ways[1].got == size)
      break;
  }
  EXPECT_TRUE(in == out);
  EXPECT_TRUE(back == out);
  ::close(ends[1]);
  char one;
  const iovec rest{&one, 1};
  EXPECT_EQ(a.receive({&rest, 1}), 0);
  ::close(ends[0]);
}

// given / expected: identities as certificates say them; names that a node's certificate lets it join under
TEST(identity, is_an_uri) {
  for (auto role : {membership::manager, membership::node, membership::client}) {
    const identity x{role, "a.b_c-1", {}};
    EXPECT_EQ(parse_identity_uri(uri_of(x)), x);
  }
  for (const auto* bad : {"", "parcae://", "parcae://node", "parcae://node/", "parcae://king/a", "http://node/a",
                          "parcae://node/a/b", "parcae://node/a b", "parcae://node/-"})
    EXPECT_EQ(parse_identity_uri(bad), std::nullopt) << bad;
  const identity a{membership::node, "a", {}};
  for (const auto* good : {"a", "a-1", "a-b-c"})
    EXPECT_TRUE(may_join_as(a, good)) << good;
  for (const auto* bad : {"", "b", "ab", "a1", "b-a"})
    EXPECT_FALSE(may_join_as(a, bad)) << bad;
  EXPECT_FALSE(may_join_as({membership::client, "a", {}}, "a"));
}

} // namespace
} // namespace parcae

// Certificates: who is let to shake hands.

#include "protocols/trust/authority.hpp"
#include "protocols/trust/credentials.hpp"
#include "protocols/trust/tls_session.hpp"
#include "tests/support/files.hpp"
#include "tests/support/names.hpp"
#include "tests/support/thrown_by.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/ssl/stream.hpp>

#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <numeric>
#include <optional>

namespace parcae {
namespace {

using std::chrono::days;
namespace fs = std::filesystem;
namespace ssl = boost::asio::ssl;
using stream_protocol = boost::asio::local::stream_protocol;

mode_t mode_of(const fs::path& path) {
  struct ::stat facts {};
  EXPECT_EQ(::stat(path.c_str(), &facts), 0);
  return facts.st_mode & 07777;
}

std::string problem_of(const fs::path& bundle) {
  return thrown_by([&] { credentials x(bundle); });
}

struct trust : testing::Test {
  void SetUp() override {
    make_authority(folder / "a", days(10));
    manager = issue_bundle(folder / "a", membership::manager, "manager", days(10));
    node = issue_bundle(folder / "a", membership::node, "node", days(10));
  }

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

  own_folder folder;
  fs::path manager, node;
};

// given: a bundle of each role / expected: TLS 1.3, each side knows who the other is; keys are for their owner
TEST_F(trust, both_sides_know_each_other) {
  const auto x = shake(manager, node);
  EXPECT_EQ(x.server, "");
  EXPECT_EQ(x.client, "");
  EXPECT_EQ(x.version, "TLSv1.3");
  ASSERT_TRUE(x.of_client && x.of_server);
  EXPECT_EQ(to_string(*x.of_client), "a node");
  EXPECT_EQ(to_string(*x.of_server), "a manager");
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
  ASSERT_EQ(to_string(*a.peer()), "a node");
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

// given: the list of revocations gone, or an older one, when it is read again / expected: refused, with what to do:
// what was revoked stays so; a newer one is read, whatever its date
TEST_F(trust, a_list_is_never_taken_back) {
  const auto list = folder / "a" / "revoked.pem", kept = folder / "kept";
  const auto problem_after = [&](const credentials& before) {
    return thrown_by([&] { credentials x(manager, &before); });
  };
  const credentials none(manager);
  revoke_bundles(folder / "a", "node");
  EXPECT_EQ(problem_after(none), "");
  fs::copy_file(list, kept);
  const credentials one(manager, &none);
  fs::remove(list);
  EXPECT_THAT(problem_after(one), HasSubstr("revoked.pem is gone, with 1 of the certificates that are revoked"));
  EXPECT_EQ(problem_after(none), ""); // there was nothing in it
  fs::copy_file(kept, list);
  issue_bundle(folder / "a", membership::node, "more", days(10));
  revoke_bundles(folder / "a", "more");
  const credentials two(manager, &one);
  fs::copy_file(kept, list, fs::copy_options::overwrite_existing);
  EXPECT_THAT(problem_after(two), HasSubstr("is older than what was read before, and lacks 1 of"));
  EXPECT_EQ(problem_after(one), "");
}

// given: a bundle of a new authority, read again where the old one had revoked something / expected: its list is asked
// for, if it has one; the old one's is refused, with what to do; without a list nothing is revoked
TEST_F(trust, a_new_authority_has_a_list_of_its_own) {
  revoke_bundles(folder / "a", "node");
  const credentials before(manager);
  make_authority(folder / "b", days(10));
  const auto renewed = issue_bundle(folder / "b", membership::manager, "manager", days(10));
  fs::copy_file(folder / "b" / "manager.pem", manager, fs::copy_options::overwrite_existing);
  EXPECT_THAT(thrown_by([&] { credentials refused(manager, &before); }),
              HasSubstr("revoked.pem is another authority's: put this one's there, or none"));
  fs::remove(folder / "a" / "revoked.pem");
  EXPECT_NO_THROW(credentials(manager, &before));
  const auto who = credentials(issue_bundle(folder / "b", membership::node, "other", days(10))).self();
  revoke_bundles(folder / "b", "other");
  EXPECT_TRUE(credentials(renewed, &before).revoked(who));
}

// given: a peer of another authority, on either side / expected: that is said, and not how OpenSSL found it
TEST_F(trust, another_authority_is_named_as_such) {
  make_authority(folder / "b", days(10));
  const auto other = issue_bundle(folder / "b", membership::manager, "manager", days(10));
  EXPECT_THAT(shake(other, node).client, HasSubstr("its certificate: another authority made it than ours"));
}

// given: names that another certificate's node could join under, or whose bundle would be another's / expected:
// refused, with what to do, unless that one has ended or is revoked; for its own role and name another can always be
// made
TEST_F(trust, a_name_is_of_one_certificate) {
  const auto a = folder / "a";
  const auto problem = [&](membership role, const std::string& name, bool fleet = false) {
    return thrown_by([&] { issue_bundle(a, role, name, days(10), fleet); });
  };
  EXPECT_THAT(problem(membership::keeper, "node"), HasSubstr("choose another, or revoke that with --revoke node"));
  EXPECT_EQ(problem(membership::node, "spot", true), "");
  EXPECT_THAT(problem(membership::node, "spot-a"), HasSubstr("would be a name of node spot-*"));
  EXPECT_THAT(problem(membership::keeper, "spot-k"), HasSubstr("would be a name of node spot-*"));
  EXPECT_EQ(problem(membership::client, "spot-c"), ""); // it never joins
  EXPECT_EQ(problem(membership::node, "spot"), "");     // one for it alone, too
  EXPECT_EQ(problem(membership::keeper, "b-1"), "");
  EXPECT_THAT(problem(membership::node, "b", true), HasSubstr("would be a name of keeper b-1"));
  EXPECT_EQ(revoke_bundles(a, "spot"), 2);
  EXPECT_EQ(problem(membership::node, "spot-a"), "");
  issue_bundle(a, membership::node, "old", days(-1));
  EXPECT_EQ(problem(membership::keeper, "old"), "");
}

// given / expected: which names a certificate lets a worker or a keeper join under; what is said to who may not
TEST(identity, joins_as_what_it_is) {
  const identity one{membership::node, "spot", {}}, fleet{membership::node, "spot", {}, true},
      keeper{membership::keeper, "k", {}};
  EXPECT_TRUE(may_join_as(one, "spot"));
  EXPECT_TRUE(may_join_as(keeper, "k"));
  for (const auto* more : {"spot-a", "spot-a-b"}) {
    EXPECT_FALSE(may_join_as(one, more)) << more;
    EXPECT_TRUE(may_join_as(fleet, more)) << more;
  }
  for (const auto* bad : {"", "spot", "spot-", "spots", "spot1", "b-spot-a"})
    EXPECT_FALSE(may_join_as(fleet, bad)) << bad;
  for (auto role : {membership::manager, membership::client, membership::operator_})
    EXPECT_FALSE(may_join_as({role, "spot", {}}, "spot"));
  EXPECT_EQ(problem_of_joining(one, "spot", false), "");
  EXPECT_EQ(problem_of_joining(fleet, "spot-a", false), "");
  EXPECT_EQ(problem_of_joining(keeper, "k", true), "");
  EXPECT_THAT(problem_of_joining(one, "spot", true), HasSubstr("a keeper needs one made with `parcae init DIR"));
  EXPECT_THAT(problem_of_joining(keeper, "k", false), HasSubstr("--role node"));
  EXPECT_THAT(problem_of_joining(one, "spot-a", false), HasSubstr("`parcae init DIR --fleet spot` makes one for"));
  EXPECT_THAT(problem_of_joining(fleet, "spot", false), HasSubstr("for spot-MORE: use such a name"));
}

// given: certificates that end now, soon and later / expected: what to do from 14 days before
TEST(identity, its_end_is_said_in_time) {
  using std::chrono::sys_days;
  const auto end = std::chrono::sys_seconds(sys_days(std::chrono::year(2026) / 12 / 2));
  identity x{membership::node, "spot", {}, true, end};
  EXPECT_EQ(problem_of_end(x, end - 15 * 24h), "");
  EXPECT_EQ(problem_of_end(x, end - 13 * 24h),
            "the certificate of node spot-* ends on 2026-12-02: make another with `parcae init DIR --fleet spot`, and "
            "put it in its place, with SIGHUP");
  x = {membership::client, "ann", {}, false, end};
  EXPECT_EQ(problem_of_end(x, end),
            "the certificate of client ann ended on 2026-12-02: make another with `parcae init DIR --add ann --role "
            "client`, and put it in its place");
}

// given / expected: identities as certificates say them; those of the version before are for one node
TEST(identity, is_an_uri) {
  for (const auto role : all_memberships) {
    const identity x{role, "a.b_c-1", {}};
    EXPECT_EQ(parse_identity_uri(uri_of(x)), x);
  }
  const identity fleet{membership::node, "a", {}, true};
  EXPECT_EQ(uri_of(fleet), "parcae://node/a-*");
  EXPECT_EQ(parse_identity_uri(uri_of(fleet)), fleet);
  EXPECT_EQ(parse_identity_uri("parcae://node/node"), (identity{membership::node, "node", {}}));
  for (const auto* bad :
       {"", "parcae://", "parcae://node", "parcae://node/", "parcae://king/a", "http://node/a", "parcae://node/a/b",
        "parcae://node/a b", "parcae://node/-", "parcae://node/-*", "parcae://keeper/a-*", "parcae://node/a*"})
    EXPECT_EQ(parse_identity_uri(bad), std::nullopt) << bad;
}

} // namespace
} // namespace parcae

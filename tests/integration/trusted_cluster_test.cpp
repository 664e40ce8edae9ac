// A cluster with certificates, and who is not let in.

#include "protocols/trust/authority.hpp"
#include "protocols/trust/credentials.hpp"
#include "protocols/wire/type_ids.hpp"
#include "runtime/link/link.hpp"
#include "runtime/process/system.hpp"
#include "tests/support/cluster.hpp"
#include "tests/support/dial.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/silent_instance.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <csignal>

namespace parcae {
namespace {

using boost::asio::ip::tcp;
using std::chrono::days;
using std::chrono::steady_clock;
namespace fs = std::filesystem;

struct trusted_cluster : cluster_test {
  void TearDown() override {
    if (HasFailure())
      std::cout << content(log);
  }

  void SetUp() override {
    make_authority(certificates, days(10));
    make_authority(folder.path() / "others", days(10));
    for (const auto role : all_memberships)
      bundle(role, std::string(to_string(role)), days(10), role == membership::node);
    launch_manager("127.0.0.1:0");
  }

  fs::path bundle(membership role, const std::string& name, std::chrono::seconds validity = days(10),
                  bool fleet = false) {
    return issue_bundle(certificates, role, name, validity, fleet);
  }

  void launch_manager(const std::string& listen) {
    const auto out = folder.path() / "manager.out";
    fs::remove(out);
    manager_process = std::make_unique<child_process>(
        launch_options{{sibling_program("parcae"), "manager", "--listen", listen, "--bundle",
                        certificates / "manager.pem", "--state", folder.path() / "state"},
                       out,
                       log});
    where = {};
    for (const auto end = steady_clock::now() + limit; where.port == 0 && steady_clock::now() < end;)
      if (const auto line = content(out); line.ends_with('\n'))
        where = parse_address(line.substr(line.rfind(' ') + 1, line.size() - line.rfind(' ') - 2));
    ASSERT_NE(where.port, 0) << content(log);
  }

  child_process& start_node(const std::string& name, const fs::path& shown, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{
        sibling_program("parcae-node"), "--manager", to_string(where), "--name", name, "--own-machine"};
    if (!shown.empty())
      arguments.insert(arguments.end(), {"--bundle", shown});
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto text = folder.path() / (name + ".log");
    return nodes.emplace_back(launch_options{std::move(arguments), text, text});
  }

  outcome run_here(std::vector<std::string> arguments, const fs::path& shown) {
    arguments.insert(arguments.begin(), sibling_program("parcae"));
    arguments.insert(arguments.end(), {"--manager", to_string(where)});
    if (!shown.empty())
      arguments.insert(arguments.end(), {"--bundle", shown});
    return run_program(std::move(arguments));
  }

  bool says(const fs::path& file, const std::string& what) {
    return eventually([&] { return content(file).find(what) != std::string::npos; }, limit);
  }

  std::size_t workers() { return living(manager_client({where, certificates / "client.pem"}).status(), "worker"); }

  bool eventually_workers(std::size_t count) {
    return eventually(
        [&] {
          try {
            return workers() == count;
          } catch (const client_error&) {
            return false;
          }
        },
        limit);
  }

  const fs::path certificates = folder.path() / "certificates";
  const fs::path log = folder.path() / "manager.log";
  address where;
  std::unique_ptr<child_process> manager_process;
  std::deque<child_process> nodes;
};

// given: a manager on all addresses, nodes and commands with bundles / expected: a job runs to its end; that there is
// no
// --data is a warning
TEST_F(trusted_cluster, trains) {
  start_node("keeper", certificates / "keeper.pem", {"--role", "keeper", "--state", folder.path() / "state"});
  start_node("node-a", certificates / "node.pem");
  ASSERT_TRUE(eventually_workers(1));
  const auto file = folder.path() / "job.toml";
  std::ofstream(file) << "job.steps = 5\nmodel.kind = 'mlp'\ndata.path = '/usr/share/common-licenses/GPL-3'\n";
  EXPECT_TRUE(says(folder.path() / "node-a.log", "warning node-a: jobs may read whatever this user may"));
  const auto done = run_here({"submit", file, "--wait"}, certificates / "client.pem");
  EXPECT_EQ(done.status, 0) << done.error;
  EXPECT_THAT(done.error, HasSubstr("is done"));
}

// given: a command with no certificate, an expired one, another cluster's, a revoked one, also when the list of
// revocations is gone again, a node's; one on its way to somebody who is no manager / expected: each refused, the user
// is told, and the manager's log says whom and why
TEST_F(trusted_cluster, refuses_commands) {
  EXPECT_EQ(run_here({"status"}, certificates / "client.pem").status, 0);
  const auto plain = run_here({"status"}, {});
  EXPECT_EQ(plain.status, 1);
  EXPECT_TRUE(says(log, "no TLS handshake"));
  const auto foreign = issue_bundle(folder.path() / "others", membership::client, "me", days(10));
  const auto not_ours = run_here({"status"}, foreign);
  EXPECT_EQ(not_ours.status, 1);
  EXPECT_THAT(not_ours.error, HasSubstr("not permitted: its certificate: another authority made it than ours"));
  EXPECT_THAT(not_ours.error, Not(HasSubstr("start one")));
  const auto stolen = bundle(membership::client, "stolen");
  fs::create_directory(folder.path() / "away");
  fs::copy_file(stolen, folder.path() / "away" / "stolen.pem"); // where there is no list of revocations
  fs::permissions(folder.path() / "away" / "stolen.pem", fs::perms::owner_read);
  EXPECT_EQ(run_here({"status"}, folder.path() / "away" / "stolen.pem").status, 0);
  revoke_bundles(certificates, "stolen");
  manager_process->signal(SIGHUP);
  ASSERT_TRUE(says(log, "certificates are read again"));
  const auto revoked = run_here({"status"}, folder.path() / "away" / "stolen.pem");
  EXPECT_EQ(revoked.status, 1);
  EXPECT_THAT(revoked.error, HasSubstr("it refuses client stolen: "));
  EXPECT_TRUE(says(log, "its certificate: certificate revoked"));
  fs::rename(certificates / "revoked.pem", folder.path() / "kept");
  manager_process->signal(SIGHUP);
  ASSERT_TRUE(says(log, "revoked.pem is gone, with 1 of the certificates that are revoked"));
  EXPECT_EQ(run_here({"status"}, folder.path() / "away" / "stolen.pem").status, 1);
  EXPECT_EQ(run_here({"status"}, certificates / "client.pem").status, 0);
  fs::rename(folder.path() / "kept", certificates / "revoked.pem");
  const auto expired = bundle(membership::client, "old", days(-1));
  const auto late = run_here({"status"}, expired);
  EXPECT_EQ(late.status, 1);
  EXPECT_THAT(late.error, HasSubstr("certificate has expired"));
  const auto node = run_here({"status"}, certificates / "node.pem");
  EXPECT_EQ(node.status, 1);
  EXPECT_THAT(node.error, HasSubstr("not permitted: node node-* is no client"));
}

// given: a job of one client; another, an operator, a client that preempts / expected: only owner and operator may
TEST_F(trusted_cluster, a_job_is_its_owners) {
  const auto ann = bundle(membership::client, "ann"), bob = bundle(membership::client, "bob");
  const auto file = folder.path() / "job.toml";
  std::ofstream(file) << "job.steps = 5\nmodel.kind = 'mlp'\ndata.path = '/usr/share/common-licenses/GPL-3'\n";
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(run_here({"submit", file}, ann).status, 0);
  EXPECT_THAT(run_here({"status", "1"}, bob).output, HasSubstr("of ann"));
  const auto refused = run_here({"cancel", "1"}, bob);
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.error, HasSubstr("not permitted: job 1 is ann's, not bob's"));
  EXPECT_EQ(run_here({"cancel", "1"}, ann).status, 0);
  EXPECT_EQ(run_here({"cancel", "2"}, certificates / "operator.pem").status, 0);
  EXPECT_THAT(run_here({"preempt", "--any", "1"}, ann).error, HasSubstr("needs an operator's certificate"));
  EXPECT_THAT(run_here({"preempt", "--any", "1"}, certificates / "operator.pem").error, HasSubstr("0 workers"));
}

// given: addresses that are not of this machine, or of nobody, too few addresses of memory / expected: the true cause,
// and what to do about it
TEST_F(trusted_cluster, causes_are_true) {
  const auto program = sibling_program("parcae").string();
  const auto listen = run_program({program, "manager", "--listen", "203.0.113.7:4242", "--bundle",
                                   certificates / "manager.pem", "--state", folder.path() / "other"});
  EXPECT_EQ(listen.status, 1);
  EXPECT_THAT(listen.error, HasSubstr("cannot listen on 203.0.113.7:4242: that is no address of this machine"));
  const auto unknown =
      run_program({program, "status", "--manager", "nowhere.invalid:4242", "--bundle", certificates / "client.pem"});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_THAT(unknown.error, HasSubstr("(the name nowhere.invalid is not resolved: "));
  EXPECT_THAT(unknown.error, HasSubstr("; check --manager"));
  const auto absent =
      run_program({program, "status", "--manager", "127.0.0.1:1", "--bundle", certificates / "client.pem"});
  EXPECT_THAT(absent.error, HasSubstr("(nobody listens there); start one with `parcae manager`"));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) // whose shadow memory takes more
  const auto small = run_program({"/bin/sh", "-c",
                                  "ulimit -v 300000; exec " + program + " manager --listen 127.0.0.1:0 --state " +
                                      (folder.path() / "small").string()});
  EXPECT_EQ(small.status, 1);
  EXPECT_THAT(small.error, HasSubstr("cannot run: only 292 MiB of addresses are allowed"));
  EXPECT_EQ(small.output, "");
#endif
}

// given: certificates that end soon, of the manager, a node and who asks / expected: `status` and their logs say so
TEST_F(trusted_cluster, ends_of_certificates_are_said) {
  start_node("a", bundle(membership::node, "a"));
  ASSERT_TRUE(eventually_workers(1));
  EXPECT_TRUE(says(folder.path() / "a.log", "the certificate of node a ends on "));
  EXPECT_TRUE(says(log, "instance a is at risk: the certificate of node a ends on "));
  EXPECT_TRUE(says(log, "the certificate of a manager ends on "));
  const auto said = run_here({"status"}, certificates / "client.pem");
  EXPECT_THAT(said.output, HasSubstr("manager: the certificate of a manager ends on "));
  EXPECT_THAT(said.output, HasSubstr("at risk (the certificate of node a ends on "));
  EXPECT_THAT(said.error, HasSubstr("the certificate of a client ends on "));
}

// given: nodes without a certificate, with a client's, with another's name; a node that is revoked while it is a member
// / expected: refused or ended, each with its reason; a certificate replaced goes on being good
TEST_F(trusted_cluster, refuses_nodes) {
  const auto a = bundle(membership::node, "a"), b = bundle(membership::node, "b", days(10), true);
  auto& bare = start_node("x", {});
  EXPECT_TRUE(says(folder.path() / "x.log", "cannot reach the manager"));
  EXPECT_EQ(bare.wait(0s), std::nullopt); // it dials again and again
  bare.signal(SIGKILL);
  EXPECT_EQ(start_node("client", certificates / "client.pem").wait(limit), 1);
  EXPECT_TRUE(says(folder.path() / "client.log", "the certificate is for a client: a worker needs"));
  EXPECT_EQ(start_node("node-k", certificates / "node.pem", {"--role", "keeper"}).wait(limit), 1);
  EXPECT_TRUE(says(folder.path() / "node-k.log", "a keeper needs one made with"));
  EXPECT_EQ(start_node("b-1", a).wait(limit), 1);
  EXPECT_TRUE(says(folder.path() / "b-1.log", "cannot be b-1 with the bundle"));
  auto& member = start_node("a", a);
  start_node("b-2", b);
  ASSERT_TRUE(eventually_workers(2));
  const auto renewed = bundle(membership::node, "b", days(10), true);
  revoke_bundles(certificates, "a");
  manager_process->signal(SIGHUP);
  EXPECT_TRUE(says(log, "(node a): its certificate is revoked"));
  EXPECT_TRUE(eventually_workers(1));
  EXPECT_EQ(member.wait(0s), std::nullopt); // what it holds is not given up
  start_node("b-3", renewed);
  EXPECT_TRUE(eventually_workers(2));
}

// given: a member whose certificate ends; another one is put in its place / expected: its connection ends with it, and
// it joins again with the new one; the process is the same
TEST_F(trusted_cluster, a_certificate_that_ends_ends_its_connection) {
  const auto brief = bundle(membership::node, "a", 8s);
  auto& member = start_node("a", brief);
  ASSERT_TRUE(eventually_workers(1));
  EXPECT_TRUE(says(log, "(node a): its certificate has ended"));
  EXPECT_TRUE(eventually_workers(0));
  EXPECT_EQ(member.wait(0s), std::nullopt);
  bundle(membership::node, "a");
  member.signal(SIGHUP);
  EXPECT_TRUE(eventually_workers(1));
}

// given: the manager's certificate is revoked, and another one put in its place / expected: commands refuse the manager
// until SIGHUP, and then do not: it has not been started again, and its node is a member all the time
TEST_F(trusted_cluster, the_managers_certificate_is_replaced_while_it_runs) {
  start_node("node-a", certificates / "node.pem");
  ASSERT_TRUE(eventually_workers(1));
  EXPECT_EQ(revoke_bundles(certificates, "manager"), 1);
  bundle(membership::manager, "manager");
  const auto refused = run_here({"status"}, certificates / "client.pem");
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.error, HasSubstr("certificate revoked"));
  manager_process->signal(SIGHUP);
  ASSERT_TRUE(says(log, "certificates are read again"));
  EXPECT_EQ(run_here({"status"}, certificates / "client.pem").status, 0);
  EXPECT_EQ(workers(), 1u);
  EXPECT_EQ(manager_process->wait(0s), std::nullopt);
}

// given: a node that is told a manager whose name nobody knows / expected: it ends, and says that in one line
TEST_F(trusted_cluster, a_manager_of_no_address_is_told_once) {
  const auto lost = run_program({sibling_program("parcae-node"), "--manager", "nowhere.invalid:4242", "--bundle",
                                 certificates / "node.pem", "--name", "node-a", "--cloud", "none"});
  EXPECT_EQ(lost.status, 1);
  EXPECT_THAT(lost.error, HasSubstr("there is no way to nowhere.invalid:4242"));
  EXPECT_THAT(lost.error, HasSubstr("check --manager"));
  EXPECT_EQ(std::ranges::count(lost.error, '\n'), 1) << lost.error;
}

// given: someone with a good certificate and a program of its own: HELLO by a client, under another's name by a node,
// as a keeper by a worker; the end of another announced / expected: not permitted, and nothing happens
TEST_F(trusted_cluster, certificates_say_who_may_what) {
  start_node("node-a", certificates / "node.pem");
  ASSERT_TRUE(eventually_workers(1));
  const auto other = bundle(membership::node, "other");
  struct {
    fs::path shown;
    std::string name;
    role as;
    std::string refused;
  } liars[] = {{other, "node-b", role::worker, "worker node-b: the certificate is for other alone"},
               {other, "other", role::keeper, "keeper other: the certificate is for node other: a keeper needs"}};
  for (const auto& liar : liars) {
    control_plane plane({.bundle = liar.shown});
    auto to = dial<manager_actor>(plane.system(), plane.middleman(), where);
    ASSERT_TRUE(to) << render(to.error());
    auto never = spawn_silent_instance(plane.system());
    hello x;
    x.name = liar.name;
    x.role = liar.as;
    x.host = "127.0.0.1";
    x.port = 1;
    x.slots = 0;
    caf::scoped_actor self(plane.system());
    caf::error refused;
    self->request(*to, 10s, x, never, std::vector<slot_actor>{})
        .receive([](const welcome&) { ADD_FAILURE() << "welcome"; }, [&](caf::error& e) { refused = std::move(e); });
    EXPECT_TRUE(refused == parcae_error::not_permitted) << render(refused);
    self->send(*to, leaving_notice{"node-a", {}, 0});
    caf::anon_send_exit(never, caf::exit_reason::user_shutdown);
    EXPECT_TRUE(says(log, "may not announce the end of node-a"));
    EXPECT_TRUE(says(log, "not permitted: to join as the " + liar.refused));
  }
  EXPECT_EQ(workers(), 1u);
}

// given: the openssl tool / expected: TLS 1.3 is spoken; 1.2 and older are not, and who shows nothing hears nothing
// given: the beginning of a handshake recorded, and said again / expected: no more than a handshake's first answer
TEST_F(trusted_cluster, speaks_tls_1_3_only) {
  const auto ask = [&](const std::string& more) {
    return run_program({"/bin/sh", "-c",
                        "openssl s_client -connect " + to_string(where) + " -CAfile " +
                            (certificates / "authority.pem").string() + " " + more + " </dev/null"});
  };
  EXPECT_THAT(ask("-tls1_3").output, HasSubstr("TLSv1.3"));
  for (const auto* old : {"-tls1_2", "-tls1_1", "-tls1"}) {
    // By itself the tool does not even offer TLS 1.1 and 1.0, and an alert is the other side's.
    const auto refused = ask(old + std::string(" -cipher ALL:@SECLEVEL=0"));
    EXPECT_THAT(refused.output, HasSubstr("Cipher is (NONE)")) << old;
    EXPECT_THAT(refused.error, HasSubstr("SSL alert number")) << old;
  }
  EXPECT_TRUE(says(log, "no TLS handshake"));

  // A relay that records what a command says, and passes it on.
  boost::asio::io_context io;
  tcp::acceptor relay(io, {boost::asio::ip::address_v4::loopback(), 0});
  std::string said;
  std::thread passing([&] {
    auto from = relay.accept();
    tcp::socket to(io);
    to.connect({boost::asio::ip::address_v4::loopback(), where.port});
    std::thread back([&] {
      std::array<char, 4096> piece;
      boost::system::error_code end;
      while (const auto n = to.read_some(boost::asio::buffer(piece), end))
        boost::asio::write(from, boost::asio::buffer(piece.data(), n), end);
      from.shutdown(tcp::socket::shutdown_both, end);
    });
    std::array<char, 4096> piece;
    boost::system::error_code end;
    while (const auto n = from.read_some(boost::asio::buffer(piece), end)) {
      said.append(piece.data(), n);
      boost::asio::write(to, boost::asio::buffer(piece.data(), n), end);
    }
    to.shutdown(tcp::socket::shutdown_both, end);
    back.join();
  });
  const auto good = run_program({sibling_program("parcae"), "status", "--manager",
                                 "127.0.0.1:" + std::to_string(relay.local_endpoint().port()), "--bundle",
                                 certificates / "client.pem"});
  passing.join();
  ASSERT_EQ(good.status, 0) << good.error;
  tcp::socket again(io);
  again.connect({boost::asio::ip::address_v4::loopback(), where.port});
  boost::system::error_code end;
  boost::asio::write(again, boost::asio::buffer(said), end);
  std::string heard;
  boost::asio::read(again, boost::asio::dynamic_buffer(heard), end);
  EXPECT_TRUE(says(log, "bad record mac")) << content(log);
}

// given: 200 connections that begin a handshake with as much as is let in, and go on no more; others that announce a
// first message of 128 KiB / expected: less than 64 KiB each is held; the latter are refused at once
TEST_F(trusted_cluster, strangers_are_given_little_memory) {
  const auto peak = [&] {
    std::ifstream file("/proc/" + std::to_string(manager_process->pid()) + "/status");
    long result = 0;
    for (std::string word; file >> word;)
      if (word == "VmHWM:")
        file >> result;
    return result;
  };
  boost::asio::io_context io;
  std::vector<tcp::socket> all;
  const auto begin = [&](const std::string& says) {
    auto& x = all.emplace_back(io);
    x.connect({boost::asio::ip::address_v4::loopback(), where.port});
    boost::asio::write(x, boost::asio::buffer(says));
  };
  EXPECT_EQ(run_here({"status"}, certificates / "client.pem").status, 0);
  const auto before = peak();
  std::string most(0x2003, 'x'); // a record of 8 KiB, but for its last bytes
  most.replace(0, hello_bytes, std::string("\x16\x03\x01\x20\x00\x01\x00\x1F\xFC", hello_bytes));
  for (int i = 0; i < 200; ++i)
    begin(most);
  EXPECT_EQ(run_here({"status"}, certificates / "client.pem").status, 0);
  EXPECT_LT(peak() - before, 200 * 64) << "KiB";
  begin(std::string("\x16\x03\x01\x40\x00\x01\x02\x00\x00", 9));
  std::string heard;
  boost::system::error_code end;
  boost::asio::read(all.back(), boost::asio::dynamic_buffer(heard), end);
  EXPECT_EQ(heard, "");
  EXPECT_TRUE(says(log, "no TLS handshake"));
}

// given: IPv6 and every address / expected: listened on, and reached, where the machine has it
TEST_F(trusted_cluster, listens_anywhere) {
  manager_process.reset();
  launch_manager("0.0.0.0:0");
  where.host = "127.0.0.1";
  EXPECT_EQ(run_here({"status"}, certificates / "client.pem").status, 0);
  manager_process.reset();
  if (!fs::exists("/proc/net/if_inet6"))
    GTEST_SKIP() << "no IPv6 here";
  launch_manager("[::1]:0");
  EXPECT_EQ(where.host, "::1");
  EXPECT_EQ(run_here({"status"}, certificates / "client.pem").status, 0);
}

// given: `parcae init` as people use it / expected: bundles, with keys for their owner only; a second one is refused
TEST_F(trusted_cluster, is_made_by_init) {
  const auto made = folder.path() / "made";
  const auto program = sibling_program("parcae").string();
  EXPECT_EQ(run_program({program, "init", made}).status, 0);
  for (const auto* name : {"manager.pem", "node.pem", "client.pem", "authority.key"})
    EXPECT_EQ(fs::status(made / name).permissions(), fs::perms::owner_read | fs::perms::owner_write) << name;
  EXPECT_EQ(run_program({program, "init", made, "--add", "spot-a", "--role", "node"}).status, 0);
  EXPECT_TRUE(fs::exists(made / "spot-a.pem"));
  EXPECT_EQ(run_program({program, "init", made, "--revoke", "spot-a"}).status, 0);
  EXPECT_EQ(run_program({program, "init", made}).status, 1);
  EXPECT_EQ(run_program({program, "init", made, "--add", "x"}).status, 2);
  EXPECT_EQ(run_program({program, "manager", "--listen", "0.0.0.0:0"}).status, 2);
  const auto wrong = run_program({program, "manager", "--listen", "127.0.0.1:0", "--bundle", made / "client.pem"});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.error, HasSubstr("it is for a client, not for a manager"));
}

} // namespace
} // namespace parcae

// A real manager and what strangers do at its port.

#include "runtime/link/frame_gate.hpp"
#include "tests/support/bare_peer.hpp"
#include "tests/support/cluster.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <sys/resource.h>

#include <random>

namespace parcae {
namespace {

using boost::asio::ip::tcp;
using std::chrono::steady_clock;

struct strangers : cluster_test {
  std::string log() const { return content(folder.path() / "first" / "manager.log"); }

  tcp::socket stranger(const std::string& says, std::uint16_t port) {
    tcp::socket result(io);
    result.connect({boost::asio::ip::address_v4::loopback(), port});
    boost::system::error_code ended;
    boost::asio::write(result, boost::asio::buffer(says), ended);
    return result;
  }
  tcp::socket stranger(const std::string& says) { return stranger(says, cluster->where().port); }

  /// In KiB, at most ever.
  long peak_memory() {
    std::ifstream file("/proc/" + std::to_string(cluster->manager().pid()) + "/status");
    for (std::string word; file >> word;)
      if (word == "VmHWM:") {
        long result = 0;
        file >> result;
        return result;
      }
    return 0;
  }

  const std::string greeting = "parcae control 1";
  boost::asio::io_context io;
};

std::string to_string(const frame_header& x) {
  const auto bytes = encode_header(x);
  return {bytes.begin(), bytes.end()};
}

// given: while a job runs, what ended managers before: handshakes without content, of 4 GB, with content that claims
// 2 GB; noise of all kinds / expected: the job does not notice, memory stays, the log says it in few lines
TEST_F(strangers, hostile_bytes_cost_nothing) {
  const auto id = start_job(small_job(1'000'000), {"a"});
  const auto before = wait_for_training(id, 1);
  const auto memory = peak_memory();
  frame_header empty, huge, liar;
  empty.kind = huge.kind = liar.kind = frame_kind::client_handshake;
  huge.payload_bytes = 0xFFFF'FFFF;
  liar.payload_bytes = 32;
  std::mt19937_64 random(2);
  std::vector<std::string> all{to_string(empty), to_string(huge), to_string(liar) + std::string(32, '\xFF')};
  for (int i = 0; i < 50; ++i) {
    all.emplace_back(1 + random() % 300, '\0');
    for (auto& c : all.back())
      c = static_cast<char>(random());
  }
  for (const auto& bytes : all)
    for (const auto& says : {bytes, greeting + bytes}) {
      auto x = stranger(says);
      boost::system::error_code end;
      x.shutdown(tcp::socket::shutdown_send, end); // it may be refused already
      std::string heard;
      boost::asio::read(x, boost::asio::dynamic_buffer(heard), end); // until it is refused
    }
  const auto now = job_of(cluster->client().status({.job = id}), id).steps_done;
  const auto after = wait_for_job(id, "progress",
                                  [&](const job_status& j) { return j.state != "running" || j.steps_done > now + 20; });
  EXPECT_EQ(after.state, "running") << after.problem;
  EXPECT_EQ(after.generation, before.generation);
  EXPECT_EQ(after.replayed_steps, 0u);
  EXPECT_LT(peak_memory() - memory, 32 * 1024) << "KiB";
  EXPECT_THAT(log(), HasSubstr("refused a connection from 127.0.0.1"));
  EXPECT_LT(std::ranges::count(log(), '\n'), 60);
}

// given: who has shaken hands as a node does, and then says what ended managers: empty content as part of a stream, to
// each actor that there could be / expected: the connection ends, with one line; the manager lives
TEST_F(strangers, members_say_only_what_is_on_the_list) {
  const auto pid = cluster->manager().pid();
  const std::string empty{0, 0, 0, 3, '@', '<', '>'}; // no stages, and a message of no types
  for (const std::uint64_t category : {2, 3})
    for (std::uint32_t i = 0; i < 3; ++i) {
      bare_peer peer(cluster->where().port, 100 + i);
      ASSERT_NE(peer.front, 0u);
      peer.say(i == 0 ? peer.front : i, category << 60, empty);
      peer.rest();
    }
  EXPECT_EQ(run({"status"}).status, 0);
  EXPECT_EQ(cluster->manager().pid(), pid);
  EXPECT_THAT(log(), HasSubstr("a message of a kind that nobody may say"));
}

// given: 500 connections that say nothing, half of them behind a greeting / expected: a node joins, and a command is
// answered, within a second of what it takes alone; each costs the manager less than 64 KiB
TEST_F(strangers, silence_delays_nobody) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
  setrlimit(RLIMIT_NOFILE, &limit);
  const auto time_to_join = [&](const std::string& name, std::size_t count) {
    const auto begin = steady_clock::now();
    cluster->start_node(name);
    wait_for_workers(count);
    return steady_clock::now() - begin;
  };
  const auto alone = time_to_join("a", 1);
  const auto memory = peak_memory();
  std::vector<tcp::socket> silent;
  for (int i = 0; i < 500; ++i)
    silent.push_back(stranger(i % 2 == 0 ? "" : greeting));
  const auto crowded = time_to_join("b", 2);
  EXPECT_LT(crowded - alone, 1s);
  const auto begin = steady_clock::now();
  EXPECT_EQ(run({"status"}).status, 0);
  EXPECT_LT(steady_clock::now() - begin, 2s);
  EXPECT_LT(peak_memory() - memory, 500 * 64) << "KiB";
}

// given: a manager that may open 64 files, and 100 connections that say nothing / expected: a node joins all the same
TEST_F(strangers, few_descriptors_are_enough) {
  const auto out = folder.path() / "few.out", err = folder.path() / "few.log";
  child_process few(
      {{"/bin/sh", "-c", "ulimit -n 64 && exec \"$0\" manager --listen 127.0.0.1:0", sibling_program("parcae")},
       out,
       err});
  address where;
  for (const auto end = steady_clock::now() + limit; where.port == 0 && steady_clock::now() < end;)
    if (const auto line = content(out); line.ends_with('\n'))
      where = parse_address(line.substr(line.rfind(' ') + 1, line.size() - line.rfind(' ') - 2));
  ASSERT_NE(where.port, 0);
  std::vector<tcp::socket> silent;
  for (int i = 0; i < 100; ++i)
    silent.push_back(stranger(i % 2 == 0 ? "" : greeting, where.port));
  child_process node({{sibling_program("parcae-node"), "--manager", to_string(where), "--name", "a"},
                      folder.path() / "node.log",
                      folder.path() / "node.log"});
  bool joined = false;
  for (const auto end = steady_clock::now() + limit; !joined && steady_clock::now() < end;)
    try {
      joined = living(manager_client(where).status(), "worker") == 1;
    } catch (const client_error&) {
    }
  EXPECT_TRUE(joined);
  EXPECT_THAT(content(err), HasSubstr("others wait"));
}

} // namespace
} // namespace parcae

// A real manager and 1,000 nodes: real connections, which say what nodes say.

#include "tests/support/cluster.hpp"
#include "tests/support/crowd.hpp"

#include <sys/resource.h>

#include <iostream>

namespace parcae {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int count = 1'000;

struct many_nodes : cluster_test {
  void SetUp() override {
    constexpr rlim_t files = 8'192; // here a connection and its io_context are four, in the manager three
    rlimit now{};
    getrlimit(RLIMIT_NOFILE, &now);
    if (now.rlim_max < files)
      GTEST_SKIP() << "a process may open " << now.rlim_max << " files here: " << files << " are needed";
    now.rlim_cur = std::max(now.rlim_cur, files);
    setrlimit(RLIMIT_NOFILE, &now);
    cluster_test::SetUp();
  }

  /// Of the manager, in KiB.
  long memory(const std::string& what) {
    std::ifstream file("/proc/" + std::to_string(cluster->manager().pid()) + "/status");
    for (std::string word; file >> word;)
      if (word == what + ":") {
        long result = 0;
        file >> result;
        return result;
      }
    return 0;
  }

  std::size_t descriptors() {
    const std::filesystem::directory_iterator all("/proc/" + std::to_string(cluster->manager().pid()) + "/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }
};

// given: 1,000 nodes, each with a connection of its own, which say HELLO each second, for some seconds; then all
// connections end at once / expected: all are let in and none is lost; `status` answers within a second, and names
// each; each costs the manager less than 64 KiB; then all are forgotten, with their descriptors
TEST_F(many_nodes, come_and_go) {
  const auto files = descriptors();
  const auto before = memory("VmRSS");
  std::optional<crowd> all(std::in_place);
  const auto began = steady_clock::now();
  for (int i = 0; i < count; ++i) {
    all->join(cluster->where().port, i);
    all->beat();
  }
  cluster->wait_for("all nodes", limit, [&](const status_reply& s) {
    all->beat();
    return living(s, "worker") == count;
  });
  const auto joined = steady_clock::now();
  milliseconds slowest{0};
  while (steady_clock::now() < joined + 8s) { // longer than who is silent is believed
    all->beat();
    const auto asked = steady_clock::now();
    const auto said = run({"status"});
    slowest = std::max(slowest, duration_cast<milliseconds>(steady_clock::now() - asked));
    ASSERT_EQ(said.status, 0) << said.error;
    for (const int i : {0, 1, count / 2, count - 1})
      EXPECT_THAT(said.output, HasSubstr(hello_writer::name_of(i)));
    EXPECT_EQ(living(cluster->client().status(), "worker"), count);
  }
  EXPECT_LT(slowest, 1s);
  const auto grown = memory("VmHWM") - before;
  EXPECT_LT(grown, 64 * count) << "KiB";
  all.reset();
  const auto left = steady_clock::now();
  cluster->wait_for("nobody", limit, [&](const status_reply& s) { return living(s, "worker") == 0; });
  const auto forgotten = steady_clock::now() - left;
  EXPECT_LT(forgotten, 5s); // as long as who is silent is believed
  for (const auto end = steady_clock::now() + limit; descriptors() > files && steady_clock::now() < end;)
    cluster->client().status();
  EXPECT_LE(descriptors(), files);
  std::cout << "joined in " << duration_cast<milliseconds>(joined - began).count() << " ms, status took "
            << slowest.count() << " ms at most, " << grown / 1024 << " MiB more, forgotten in "
            << duration_cast<milliseconds>(forgotten).count() << " ms\n";
}

// given: 1,000 nodes that say as much of themselves as they may / expected: more than one answer has room for, and
// `status` names each
TEST_F(many_nodes, are_told_in_pages) {
  crowd all(std::string(500, 'p'), std::string(hello::longest_warning, 'w'));
  for (int i = 0; i < count; ++i)
    all.join(cluster->where().port, i);
  const auto told = cluster->wait_for("all nodes", limit, [&](const status_reply& s) {
    all.beat();
    return living(s, "worker") == count;
  });
  EXPECT_GT(encode(reply{told}).size(), client_message_limit_bytes);
  const auto said = run({"status"});
  ASSERT_EQ(said.status, 0) << said.error;
  for (int i = 0; i < count; ++i)
    EXPECT_NE(said.output.find("instance " + hello_writer::name_of(i) + " "), std::string::npos) << i;
}

} // namespace
} // namespace parcae

// A real manager and 1,000 nodes: real connections, which say what nodes say.

#include "protocols/wire/type_ids.hpp"
#include "tests/support/bare_peer.hpp"
#include "tests/support/cluster.hpp"
#include "tests/support/other_node.hpp"

#include <caf/all.hpp>

#include <sys/resource.h>

#include <cstdio>
#include <deque>
#include <iostream>

namespace parcae {
namespace {

using namespace std::chrono_literals;
using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

constexpr int count = 1'000;

/// HELLO of worker n0000, as CAF writes it, of actors 1 (its instance) and 2 (its slot) of a node that is nobody's.
class hello_writer {
public:
  /// `processor`, `warning`: what each says of itself.
  hello_writer(const std::string& processor, const std::string& warning) {
    auto nobody = system_.spawn(ignore_all);
    const auto actor = [&](caf::actor_id id) { return on_another_node(system_, nobody, id); };
    hello x;
    x.name = name_of(0);
    x.life = incarnation{1};
    x.host = "127.0.0.1";
    x.port = 1;
    x.processor = processor;
    x.warning = warning;
    x.memory.bytes = 1 << 30;
    auto message = caf::make_message(x, caf::actor_cast<instance_actor>(actor(1)),
                                     std::vector<slot_actor>{caf::actor_cast<slot_actor>(actor(2))});
    text_ = bytes_of(std::vector<caf::strong_actor_ptr>{}, message);
    node_ = bytes_of(caf::make_node_id(7, {1}));
    caf::anon_send_exit(nobody, caf::exit_reason::user_shutdown);
  }

  static std::string name_of(int number) {
    char result[8];
    std::snprintf(result, sizeof result, "n%04d", number);
    return result;
  }

  /// `node`: as CAF writes it.
  std::string of(int number, const std::string& node) const {
    auto result = text_;
    for (const auto& [from, to] : {std::pair(node_, node), {name_of(0), name_of(number)}})
      for (auto at = result.find(from); at != result.npos; at = result.find(from, at + from.size()))
        result.replace(at, from.size(), to);
    return result;
  }

private:
  struct config : caf::actor_system_config {
    config() { parcae::add_message_types(*this); }
  };

  template <class... Ts>
  std::string bytes_of(const Ts&... xs) {
    std::vector<char> result;
    caf::binary_serializer sink(system_, result);
    if (sink(const_cast<Ts&>(xs)...))
      throw std::runtime_error("what is ours can be written");
    return {result.begin(), result.end()};
  }

  config settings_;
  caf::actor_system system_{settings_};
  std::string text_, node_;
};

/// Nodes that join, and say HELLO each second. Their connections end with it.
class crowd {
public:
  explicit crowd(const std::string& processor = "cpu", const std::string& warning = {}) : writer_(processor, warning) {}

  void join(std::uint16_t port, int number) {
    constexpr std::uint32_t first_process = 5'000'000; // of no real one
    auto& x = all_.emplace_back(port, first_process + static_cast<std::uint32_t>(number));
    hellos_.push_back(writer_.of(number, x.self));
    greet(all_.size() - 1);
  }

  /// To be called often.
  void beat() {
    if (steady_clock::now() < next_)
      return;
    next_ = steady_clock::now() + 1s;
    ++said_;
    for (std::size_t i = 0; i < all_.size(); ++i)
      greet(i);
  }

private:
  void greet(std::size_t i) {
    auto& x = all_[i];
    x.heard();
    EXPECT_TRUE(x.say(x.front, bare_peer::statement + said_, hellos_[i], 1)) << i;
  }

  hello_writer writer_;
  std::deque<bare_peer> all_;
  std::vector<std::string> hellos_;
  std::uint64_t said_ = 1;
  steady_clock::time_point next_ = steady_clock::now() + 1s;
};

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

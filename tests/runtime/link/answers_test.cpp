// Who asks much, and takes no answers.

#include "tests/runtime/link/link_fixture.hpp"
#include "tests/support/bare_peer.hpp"
#include "tests/support/eventually.hpp"

#include <atomic>

namespace parcae {
namespace {

/// Many things are asked at once, and the answers are large.
struct many_answers : link_test {
  static constexpr std::size_t answer_bytes = 100'000, questions = 500;

  many_answers() { options.questions = 1e6; }

  void SetUp() override {
    link_test::SetUp();
    caf::anon_send_exit(service, caf::exit_reason::user_shutdown);
    service = server->system().spawn([this](service_actor::pointer) -> service_actor::behavior_type {
      return {[this](const client_request& x) {
        heard += x.bytes.empty();
        return client_reply{std::vector<char>(x.bytes.empty() ? answer_bytes : 1)};
      }};
    });
    publish();
  }

  void ask_all(bare_peer& peer) {
    for (std::uint64_t i = 1; i <= questions; ++i)
      ASSERT_TRUE(peer.say(peer.front, bare_peer::statement + i, content(caf::make_message(client_request{})), 7));
  }

  std::atomic<std::size_t> heard = 0;
};

// given: who takes the answers only when somebody else was served for a while / expected: by then little was heard of
// the former, as its answers would fill the memory; in the end all is answered
TEST_F(many_answers, who_takes_none_is_not_heard) {
  control_plane modest;
  auto to = reach(modest, port);
  ASSERT_TRUE(to) << render(to.error());
  bare_peer greedy(port);
  ask_all(greedy);
  EXPECT_TRUE(eventually([&] { return heard > 0; }));
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(ask(modest, *to, 5), "1");
  EXPECT_LT(heard, questions / 2) << "those whose answers sockets hold, and few more";
  std::size_t taken = 0;
  EXPECT_TRUE(eventually([&] { return (taken += greedy.heard().size()) >= questions * answer_bytes; })) << taken;
  EXPECT_EQ(heard, questions);
}

struct impatient : many_answers {
  impatient() { options.write = 500ms; }
};

// given: who never takes them / expected: its connection is closed, and why is in the log
TEST_F(impatient, who_takes_none_is_closed) {
  bare_peer greedy(port);
  ask_all(greedy);
  EXPECT_TRUE(eventually([&] { return !greedy.say({}, ""); }));
  EXPECT_THAT(log_text(), HasSubstr("it did not take its answers in time"));
}

} // namespace
} // namespace parcae

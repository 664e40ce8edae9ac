// Hooks: what is said to them, when, what is believed of their answers, and the thread that calls them.

#include "runtime/child/process.hpp"
#include "runtime/market/hook_schedule.hpp"
#include "runtime/market/provision.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/web_double.hpp"

#include <boost/json.hpp>

#include <gmock/gmock.h>
#include <signal.h>

#include <deque>
#include <fstream>
#include <mutex>

namespace parcae {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
namespace json = boost::json;

provision_request wanting(std::uint64_t number, std::uint32_t n) {
  return {number,
          {{"w2a-spot", "p3.2xlarge", "us-west-2a", n, {"a", "b"}, {"c"}}, {"od", "p3.2xlarge", "x", 0, {}, {}}}};
}

// given: what is wanted / expected: the JSON that hooks are written for, to the letter
TEST(hook_text, of_a_request) {
  EXPECT_EQ(hook_request(wanting(17, 6), "boss:4242"),
            R"({"version":1,"request":17,"manager":"boss:4242","pools":[)"
            R"({"name":"w2a-spot","kind":"p3.2xlarge","place":"us-west-2a","want":6,"have":["a","b"],"release":["c"]},)"
            R"({"name":"od","kind":"p3.2xlarge","place":"x","want":0,"have":[],"release":[]}]})");
}

// given: answers / expected: each pool asked for; -1 and what is left out are not known; others are passed over
TEST(hook_text, of_an_answer) {
  const auto asked = wanting(1, 6);
  const pool_word unknown{"od", {}, ""};
  EXPECT_THAT(*hook_answer(R"({"pools":[{"name":"w2a-spot","can":4,"why":"capacity-not-available"}]})", asked),
              ElementsAre(pool_word{"w2a-spot", 4, "capacity-not-available"}, unknown));
  EXPECT_THAT(
      *hook_answer(R"({"pools":[{"name":"?","can":9},{"name":"od","can":-1},{"name":"w2a-spot","can":0}],"x":1})",
                   asked),
      ElementsAre(pool_word{"w2a-spot", 0, ""}, unknown));
  EXPECT_EQ(hook_answer(R"({"pools":[{"name":"od","can":1,"why":"a\n)" + std::string(1000, 'x') + R"("}]})", asked)
                ->at(1)
                .why.size(),
            200u);
}

// given: answers that are none / expected: nothing of them is believed; one line says why
TEST(hook_text, of_a_bad_answer) {
  const auto asked = wanting(1, 6);
  const std::vector<std::pair<std::string, std::string>> all{
      {"", "no JSON"},
      {"launched 3 instances\n", R"(no JSON: "launched 3 instances)"},
      {R"({"pools":[]} {})", "no JSON"},
      {std::string(40'000, '['), "no JSON"},
      {std::string(70'000, ' '), "more than 65536 bytes"},
      {"[]", "must be {\"pools\""},
      {R"({"pools":{}})", "must be {\"pools\""},
      {R"({"pools":[3]})", "an object with a name"},
      {R"({"pools":[{"can":3}]})", "an object with a name"},
      {R"({"pools":[{"name":"od"}]})", "can of the pool od must be a whole number from -1 to 100000"},
      {R"({"pools":[{"name":"od","can":"3"}]})", "must be a whole number"},
      {R"({"pools":[{"name":"od","can":1.5}]})", "must be a whole number"},
      {R"({"pools":[{"name":"od","can":-2}]})", "must be a whole number"},
      {R"({"pools":[{"name":"od","can":99999999999999999999}]})", "must be a whole number"},
      {R"({"pools":[{"name":"od","can":3,"why":3}]})", "why of the pool od must be a string"},
      {R"({"pools":[{"name":"od","can":3},{"name":"od","can":4}]})", "has the pool od twice"},
  };
  for (const auto& [text, why] : all) {
    const auto x = hook_answer(text, asked);
    ASSERT_FALSE(x) << text.substr(0, 100);
    EXPECT_THAT(x.error(), HasSubstr(why));
    EXPECT_EQ(x.error().find('\n'), std::string::npos);
  }
}

// given: a hook's life / expected: the table of hook_schedule.hpp, row by row
TEST(hook_schedule, says_when_to_call) {
  constexpr hook_pace pace;
  constexpr hook_state::time_point t0{1'000'000s};
  hook_state x;
  EXPECT_EQ(next_call(x, pace), std::nullopt);
  x.wanted = 1;
  EXPECT_LE(*next_call(x, pace), t0) << "at once";
  called(x, 1, true, t0, t0 + 20s);
  EXPECT_EQ(next_call(x, pace), t0 + 600s);
  x.wanted = 2;
  EXPECT_LE(*next_call(x, pace), t0 + 20s) << "at once";
  auto now = t0 + 30s;
  for (const auto pause : {5s, 10s, 20s, 40s, 80s, 160s, 300s, 300s}) {
    called(x, 2, false, now, now + 60s);
    EXPECT_EQ(next_call(x, pace), now + 60s + pause);
    now += 60s + pause;
  }
  x.wanted = 3;
  EXPECT_EQ(next_call(x, pace), now) << "a hook that fails is not called more often for what is new";
  called(x, 2, true, now, now + 1s);
  EXPECT_LE(*next_call(x, pace), now + 1s) << "3 was wanted while 2 was said";
  called(x, 3, true, now + 1s, now + 2s);
  EXPECT_EQ(next_call(x, pace), now + 601s);
}

class hook_test : public testing::Test {
protected:
  std::string program(const std::string& script) {
    const auto path = folder.path() / ("hook" + std::to_string(++programs));
    std::ofstream(path) << "#!/bin/sh\ncd " << folder.path().string() << "\n" << script;
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path.string();
  }

  provision_options quick(const std::string& hook) {
    provision_options x{hook, "boss:4242"};
    x.pace.pause = {5ms, 20ms};
    x.pace.again = 1h;
    return x;
  }

  std::function<void(const provision_answer&)> listener() {
    return [this](const provision_answer& x) {
      const std::lock_guard held(mutex);
      answers.push_back(x);
    };
  }

  /// The next answer.
  provision_answer next() {
    provision_answer result;
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard held(mutex);
      if (answers.empty())
        return false;
      result = answers.front();
      answers.pop_front();
      return true;
    }));
    return result;
  }

  std::string content(const std::string& name) {
    std::ifstream file(folder.path() / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  pid_t number_in(const std::string& name) {
    const auto text = content(name);
    return text.ends_with('\n') ? std::stoi(text) : 0;
  }

  static bool is_gone(pid_t x) { // or a zombie that its new parent has not reaped
    std::ifstream status("/proc/" + std::to_string(x) + "/stat");
    std::string text{std::istreambuf_iterator<char>(status), {}};
    return text.find(") Z ") != std::string::npos || kill(x, 0) != 0;
  }

  scratch_folder folder{"parcae-hook-test-"};
  int programs = 0;
  std::mutex mutex;
  std::deque<provision_answer> answers;
};

// given: a program / expected: it gets the request, its answer comes; again only when something new is wanted
TEST_F(hook_test, a_program_is_asked) {
  provisioner hook(quick(program(R"(cat > said; echo '{"pools":[{"name":"w2a-spot","can":2}]}')")), listener());
  hook.want(wanting(1, 6));
  auto x = next();
  EXPECT_EQ(x.problem, "");
  EXPECT_EQ(x.request, 1u);
  EXPECT_THAT(x.pools, ElementsAre(pool_word{"w2a-spot", 2, ""}, pool_word{"od", {}, ""}));
  EXPECT_EQ(content("said"), hook_request(wanting(1, 6), "boss:4242"));
  hook.want(wanting(2, 7));
  EXPECT_EQ(next().request, 2u);
  EXPECT_EQ(content("said"), hook_request(wanting(2, 7), "boss:4242"));
  EXPECT_TRUE(answers.empty());
}

// given: the same is wanted for long / expected: it is said again
TEST_F(hook_test, is_told_again) {
  auto options = quick(program(R"(cat > /dev/null; echo '{"pools":[]}')"));
  options.pace.again = 10ms;
  provisioner hook(options, listener());
  hook.want(wanting(1, 6));
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(next().request, 1u);
}

// given: a call under way while others are wanted / expected: one call at a time; the last that was wanted is next
TEST_F(hook_test, the_last_that_is_wanted_counts) {
  provisioner hook(quick(program("cat > said; echo x >> begun\nwhile [ ! -e go ]; do sleep 0.01; done\n"
                                 R"(echo '{"pools":[]}')")),
                   listener());
  hook.want(wanting(1, 6));
  EXPECT_TRUE(eventually([&] { return content("begun") == "x\n"; }));
  for (std::uint64_t i = 2; i <= 9; ++i)
    hook.want(wanting(i, 6));
  std::ofstream(folder.path() / "go") << "go";
  EXPECT_EQ(next().request, 1u);
  EXPECT_EQ(next().request, 9u);
  EXPECT_EQ(content("begun"), "x\nx\n");
}

// given: programs that fail, say too much, are silent, are killed / expected: one line each; they are called again
TEST_F(hook_test, a_program_that_fails) {
  const std::vector<std::pair<std::string, std::string>> all{
      {"echo ready; echo 'no credentials' >&2; exit 3", "it ended with status 3: no credentials"},
      {"kill -9 $$", "it was ended by signal 9"},
      {"exec /no/such/program", "it cannot be started, or what it calls (status 127)"},
      {"echo nonsense", "its answer is no JSON"},
      {"yes", "its answer has more than 65536 bytes"},
      {"yes 'no end' >&2", "it wrote over a million bytes of errors"},
      {"true", "its answer is no JSON"},
  };
  for (const auto& [script, why] : all) {
    const auto path = program(script);
    provisioner hook(quick(path), listener());
    hook.want(wanting(4, 6));
    for (int i = 0; i < 2; ++i) {
      const auto x = next();
      EXPECT_THAT(x.problem, HasSubstr("the hook " + path + " failed: " + why));
      EXPECT_THAT(x.pools, ElementsAre());
    }
  }
  EXPECT_THROW(provisioner(quick("/no/such/program"), listener()), std::runtime_error);
  EXPECT_THROW(provisioner(quick(folder.path().string()), listener()), std::runtime_error);
  EXPECT_THROW(provisioner(quick("http://a b"), listener()), std::runtime_error);
}

// given: a program that hangs, with a child / expected: both are killed when its time is over, with what it said last
TEST_F(hook_test, a_program_that_hangs_is_killed_with_its_group) {
  auto options = quick(program("sleep 1000 & echo $! > child; echo waiting >&2; wait"));
  options.pace.call = 500ms;
  options.pace.pause = {1h, 1h};
  provisioner hook(options, listener());
  hook.want(wanting(1, 6));
  EXPECT_THAT(next().problem, HasSubstr("it did not answer within 500ms: waiting"));
  EXPECT_TRUE(eventually([&] { return is_gone(number_in("child")); }));
}

// given: a program in the midst of a call / expected: it ends with its provisioner, soon
TEST_F(hook_test, a_program_ends_with_its_provisioner) {
  auto hook = std::make_unique<provisioner>(quick(program("sleep 1000 & echo $! > child; wait")), listener());
  hook->want(wanting(1, 6));
  EXPECT_TRUE(eventually([&] { return number_in("child") > 0; }));
  const auto began = std::chrono::steady_clock::now();
  hook.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 10s) << "not the 60 s of a call";
  EXPECT_TRUE(eventually([&] { return is_gone(number_in("child")); }));
  EXPECT_TRUE(answers.empty());
}

// given: a program that starts what is to outlive it / expected: it lives; it holds no file of ours, and obeys signals
TEST_F(hook_test, what_has_a_session_of_its_own_outlives_the_call) {
  signal(SIGPIPE, SIG_IGN);
  const auto held = open("/dev/null", O_RDONLY); // without O_CLOEXEC
  {
    provisioner hook(
        quick(program("setsid -f sh -c 'echo $$ > child; ls /proc/$$/fd > files; grep SigIgn /proc/$$/status "
                      "> ignored; touch done; exec sleep 1000' > /dev/null 2>&1 < /dev/null\n"
                      "until [ -e done ]; do sleep 0.01; done\n" // setsid returns before its child has a session
                      R"(echo '{"pools":[]}')")),
        listener());
    hook.want(wanting(1, 6));
    EXPECT_EQ(next().problem, "");
  }
  close(held);
  const auto child = number_in("child");
  ASSERT_GT(child, 0);
  EXPECT_FALSE(is_gone(child));
  EXPECT_EQ(content("files").find(std::to_string(held) + "\n"), std::string::npos) << content("files");
  EXPECT_THAT(content("ignored"), HasSubstr("0000000000000000"));
  kill(child, SIGKILL);
}

// given: a hook at a URL that answers, fails, lies / expected: it gets the same JSON by POST
TEST_F(hook_test, a_url_is_asked) {
  std::deque<web_double::request> requests;
  web_double server([&](const web_double::request& x) {
    const std::lock_guard held(mutex);
    requests.push_back(x);
    if (requests.size() == 1)
      return web_double::make(500, "no");
    return web_double::make(200,
                            requests.size() == 2 ? std::string(70'000, ' ') : R"({"pools":[{"name":"od","can":1}]})");
  });
  provisioner hook(quick(server.url() + "/hook?token=secret"), listener());
  hook.want(wanting(1, 6));
  EXPECT_EQ(next().problem, "the hook " + server.url() + "/hook failed: it was answered with HTTP status 500");
  EXPECT_THAT(next().problem, HasSubstr("failed: "));
  const auto x = next();
  EXPECT_EQ(x.problem, "");
  EXPECT_THAT(x.pools, ElementsAre(pool_word{"w2a-spot", {}, ""}, pool_word{"od", 1, ""}));
  const std::lock_guard held(mutex);
  ASSERT_EQ(requests.size(), 3u);
  for (const auto& r : requests) {
    EXPECT_EQ(r.method_string(), "POST");
    EXPECT_EQ(r.target(), "/hook?token=secret");
    EXPECT_EQ(r["Content-Type"], "application/json");
    EXPECT_EQ(r.body(), hook_request(wanting(1, 6), "boss:4242"));
  }
}

} // namespace
} // namespace parcae

// Each line of the README's table of answers is a case.

#include "tests/runtime/web/served.hpp"
#include "tests/support/files.hpp"
#include "tests/support/names.hpp"

#include <regex>

namespace parcae {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;

struct bad_input {
  const char *what, *answer; ///< as in the README
  void (*try_it)(web_server_test& t);
};

void without_token(web_server_test& t) {
  t.start();
  t.expect_refused(web_question{}, 401);
  t.expect_refused(t.with_token({}, 'c'), 401);
  for (const auto* x : {"Bearer", "Bearer ", "Basic YTph"})
    t.expect_refused(web_question{.headers = {{"Authorization", x}}}, 401);
  t.expect_refused(web_question{.headers = {{"Authorization", "Bearer " + std::string(63, 'a')}}}, 401);
  t.expect_refused(web_question{.headers = {{"Cookie", "token=" + std::string(64, 'a')}}}, 401);
  t.expect_refused(web_question{.target = "/api/v1/status?token=" + std::string(64, 'a')}, 401);
  t.expect_refused(web_question{.target = "/metrics"}, 401);
  EXPECT_EQ(t.ask({}).headers.at("WWW-Authenticate"), "Bearer");
  EXPECT_EQ(t.ask({.target = "/healthz"}).status, 200u) << "but who looks after it may ask whether it lives";
  EXPECT_EQ(t.ask(t.with_token({})).status, 200u);
  EXPECT_EQ(t.ask({.headers = {{"Authorization", "bearer " + std::string(64, 'a')}}}).status, 200u);
}

void token_for_looking(web_server_test& t) {
  t.start();
  auto x = t.change("jobs/3/cancel");
  x.headers["Authorization"] = "Bearer " + std::string(64, 'b');
  t.expect_refused(x, 403);
  EXPECT_EQ(t.ask(t.with_token({}, 'b')).status, 200u);
}

void wrong_host(web_server_test& t) {
  t.start();
  for (const auto* x :
       {"evil.example", "127.0.0.1.evil.example", "10.0.0.1", "0.0.0.0", "", "[::2]:80", "[::1", "localhost:99999"}) {
    auto question = t.look("status");
    question.headers["Host"] = x;
    t.expect_refused(question, 421);
    question.target = "/healthz";
    t.expect_refused(question, 421);
  }
  t.expect_refused("GET /healthz HTTP/1.0\r\n\r\n", 421);
  t.expect_refused("GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n", 421);
  for (const auto* x : {"127.0.0.1", "localhost:8080", "[::1]:8080", "Parcae.Example:443"}) {
    auto question = t.look("status");
    question.headers["Host"] = x;
    EXPECT_EQ(t.ask(question).status, 200u) << x;
  }
}

void page_from_elsewhere(web_server_test& t) {
  t.start();
  for (const auto* x : {"http://evil.example", "null", "http://127.0.0.1:1", "127.0.0.1"}) {
    auto question = t.look("status");
    question.headers["Origin"] = x;
    t.expect_refused(question, 403);
  }
  for (const auto* x : {"cross-site", "same-site"}) {
    auto question = t.look("status");
    question.headers["Sec-Fetch-Site"] = x;
    t.expect_refused(question, 403);
  }
  auto own = t.look("status");
  own.headers["Origin"] = "http://127.0.0.1:" + std::to_string(t.server->port());
  own.headers["Sec-Fetch-Site"] = "same-origin";
  const auto reply = t.ask(own);
  EXPECT_EQ(reply.status, 200u);
  EXPECT_FALSE(reply.headers.contains("Access-Control-Allow-Origin"));
}

void large_header(web_server_test& t) {
  t.start();
  auto x = t.look("status");
  x.headers["More"] = std::string(8 * 1024, 'x');
  t.expect_refused(x, 431);
  x.headers["More"] = std::string(7 * 1024, 'x');
  EXPECT_EQ(t.ask(x).status, 200u);
}

void large_body(web_server_test& t) {
  t.start();
  t.expect_refused(t.change("jobs", std::string((1 << 20) + 1, 'x')), 413);
  auto x = t.change("jobs");
  x.headers.erase("Content-Length");
  x.headers["Transfer-Encoding"] = "chunked";
  t.expect_refused(x.text(t.server->port()) + "100001\r\n" + std::string((1 << 20) + 1, 'x') + "\r\n0\r\n\r\n", 413);
  EXPECT_EQ(t.ask(t.change("jobs", std::string(1 << 20, 'x'))).status, 200u);
}

void malformed(web_server_test& t) {
  t.start();
  for (const auto* x : {"\x16\x03\x01\x02\x01\xfc\x03\x03\r\n\r\n", "hello\r\n\r\n",
                        "GET /api/v1/status HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"})
    t.expect_refused(x, 400);
  for (const auto* x : {"/../etc/passwd", "/api/v1/../../etc/passwd", "/%2e%2e/etc/passwd", "/api/v1/jobs/..%2f3",
                        "/api//status", "api/v1/status", "/%", "/%zz", "/a%00b", "/a%0ab"})
    t.expect_refused(t.with_token({.target = x}), 400);
  for (const auto* x : {"jobs/x", "jobs/-1", "jobs/3x", "jobs/99999999999999999999", "events?job=x"})
    t.expect_refused(t.look(x), 400);
  for (const auto* x : {"{", "[]", "", "{\"names\": [1]}", "{\"any\": -1}", "{\"any\": 1, \"names\": [\"a\"]}",
                        "{\"other\": 1}", "{\"any\": 1, \"notice\": \"soon\"}", "{\"any\": 1, \"notice\": \"25h\"}"}) {
    t.start(); // there is a pace of changes
    t.expect_refused(t.change("preempt", x), 400);
  }
  for (const auto* x : {"high", "-", "--5", "-1001", "1001"}) {
    t.start();
    t.expect_refused(t.change("jobs?priority=" + std::string(x), "x"), 400);
  }
}

void other_method(web_server_test& t) {
  t.start();
  for (const auto* x : {"PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "FLY"}) {
    auto question = t.look("status");
    question.method = x;
    t.expect_refused(question, 405);
  }
  EXPECT_EQ(t.ask(t.with_token({.method = "DELETE"})).headers.at("Allow"), "GET, HEAD, POST");
  const auto head = t.ask(t.with_token({.method = "HEAD"}));
  EXPECT_EQ(head.status, 200u);
  EXPECT_EQ(head.headers.at("Content-Length"), t.ask(t.with_token({})).headers.at("Content-Length"));
  EXPECT_EQ(t.ask(t.with_token({.method = "HEAD", .target = "/api/v1/events"})).status, 200u);
}

void unknown_path(web_server_test& t) {
  t.start();
  for (const auto* x : {"/nothing", "/api", "/api/v1", "/api/v2/status", "/api/v1/nothing", "/api/v1/status/3",
                        "/api/v1/jobs/3/nothing", "/clusters", "/clusters/third", "/clusters/third/api/v1/status",
                        "/clusters/mine/nothing", "/a/a/a/a/a/a/a/a/a/a"})
    t.expect_refused(t.with_token({.target = x}), 404);
  t.expect_refused(t.change("status"), 404);
  t.expect_refused(t.change("jobs/3"), 404);
  t.expect_refused(t.look("jobs/4"), 404);
  t.expect_refused(t.change("jobs/4/cancel"), 404);
  EXPECT_EQ(t.ask(t.look("jobs/3")).status, 200u);
}

void too_many_changes(web_server_test& t) {
  t.start();
  auto client = t.client();
  std::string all;
  for (int i = 0; i < 100; ++i)
    all += t.change("jobs/3/cancel").text(t.server->port());
  client.send(all);
  int good = 0;
  for (int i = 0; i < 100; ++i)
    if (const auto reply = client.receive(); reply.status == 200) {
      ++good;
    } else {
      ASSERT_EQ(reply.status, 429u);
      ASSERT_EQ(reply.headers.at("Retry-After"), "1");
    }
  EXPECT_GE(good, 10);
  EXPECT_LT(good, 90) << "some seconds would be needed";
  EXPECT_EQ(client.ask(t.look("status")).status, 200u) << "one may look meanwhile";
  EXPECT_TRUE(eventually([&] { return client.ask(t.change("jobs/3/cancel")).status == 200; }));
}

void manager_refuses(web_server_test& t) {
  t.start();
  const auto reply = t.ask(t.change("jobs/3/checkpoint"));
  EXPECT_EQ(reply.status, 409u);
  EXPECT_EQ(json::parse(reply.body).at("error"), "no keeper holds a version of it");
}

void manager_away(web_server_test& t) {
  t.start();
  t.server->actions.hold();
  std::vector<web_client> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.push_back(t.client());
    waiting.back().send(t.look("jobs/3").text(t.server->port()));
  }
  EXPECT_TRUE(eventually([&] { return t.server->actions.waiting() == 4; }));
  t.expect_refused(t.look("jobs/3"), 503);
  EXPECT_EQ(t.ask(t.look("status")).status, 200u) << "what is known needs nobody";
  t.server->actions.let_go();
  for (auto& x : waiting)
    EXPECT_EQ(x.receive().status, 200u);

  asio::io_context context;
  web_board board("life");
  const auto actions = make_web_actions({"127.0.0.1:1", ""});
  web_routes routes({}, {{"mine", board, *actions}});
  board.away("nobody is there", 5);
  const web_head head{.method = "GET", .target = "/api/v1/status", .host = "127.0.0.1"};
  try {
    routes.take(head, {}, served_site::now());
    FAIL() << "there is no status";
  } catch (const web_error& e) {
    EXPECT_EQ(e.status, 503u);
    EXPECT_STREQ(e.what(), "nobody is there");
  }
  EXPECT_EQ(routes.take({.method = "GET", .target = "/readyz"}, {}, served_site::now()).now.status, 503u);
  try {
    actions->cancel(3);
    FAIL() << "nobody can";
  } catch (const web_error& e) {
    EXPECT_EQ(e.status, 503u) << e.what();
  }
}

void too_many_connections(web_server_test& t) {
  t.start();
  std::vector<web_client> all;
  const auto read_events = [&](const std::string& from) {
    for (int i = 0; i < 8; ++i) {
      all.push_back(t.client(from.c_str()));
      all.back().send(t.look("events").text(t.server->port()));
      EXPECT_TRUE(all.back().receive_until("\r\n\r\n").starts_with("HTTP/1.1 200 OK"));
    }
  };
  read_events("127.0.0.1");
  auto ninth = t.client();
  const auto refusal = ninth.receive();
  EXPECT_EQ(refusal.status, 503u);
  EXPECT_THAT(refusal.body, testing::HasSubstr("{\"error\":\"there are too many connections"));
  EXPECT_EQ(ninth.receive_all(), "");
  for (int i = 2; i <= 8; ++i)
    read_events("127.0.0." + std::to_string(i));
  auto sixty_fifth = t.client("127.0.0.9");
  EXPECT_EQ(sixty_fifth.receive().status, 503u);
  EXPECT_EQ(sixty_fifth.receive_all(), "");
  std::vector<web_client> flood;
  for (int i = 0; i < 200; ++i)
    flood.push_back(t.client("127.0.0.10"));
  t.tell_events(1, 1);
  for (auto& x : all)
    EXPECT_THAT(x.receive_until("\n\n"), testing::HasSubstr("event: ")) << "who is there is served";
  all.clear();
  flood.clear();
  t.expect_free();
}

void silence(web_server_test& t) {
  EXPECT_EQ(web_limits{}.idle, 30s);
  t.start({.idle = 100ms});
  auto mute = t.client(), slow = t.client(), between = t.client(), body = t.client();
  slow.send("GET /api/v1/st");
  EXPECT_EQ(between.ask(t.look("status")).status, 200u);
  const auto whole = t.change("jobs", "all of it").text(t.server->port());
  body.send(whole.substr(0, whole.size() - 3));
  for (auto* x : {&mute, &slow, &between, &body})
    EXPECT_EQ(x->receive_all(), "");
}

void takes_nothing(web_server_test& t) {
  t.start({.of_one_address = 1, .idle = 100ms});
  t.tell_events(100, 2000); // more than the system keeps between them
  web_client x(t.server->port(), "127.0.0.1", 4096);
  for (int i = 0; i < 20; ++i)
    x.send(t.look("status").text(t.server->port()));
  t.expect_free(); // once its place is
  std::size_t bytes = 0;
  for (std::string some; !(some = x.receive_some()).empty();)
    bytes += some.size();
  EXPECT_LT(bytes, 20u * 2'000'000);
}

std::uint64_t last_in(const std::string& events) {
  const auto i = events.rfind("\n\n", events.size() - 2);
  const auto from = events.rfind("id: life-", i == events.npos ? events.size() : i);
  return from == events.npos ? 0 : std::stoull(events.substr(from + 9));
}

void far_behind(web_server_test& t) {
  EXPECT_EQ(web_limits{}.behind_bytes, std::size_t{1} << 20);
  t.start();
  web_client slow(t.server->port(), "127.0.0.1", 4096);
  auto question = t.look("events");
  slow.send(question.text(t.server->port()));
  auto heard = slow.receive_until("\"news\"");
  auto quick = t.client();
  quick.send(question.text(t.server->port()));
  std::string whole;
  for (std::uint64_t i = 0; i < 3; ++i) { // together more than 1 MiB, and less than the log keeps
    t.tell_events(1000 + 1000 * i, 600);
    whole += quick.receive_until("\"text\":\"" + std::to_string(1599 + 1000 * i) + " ");
  }
  for (std::string some; !(some = slow.receive_some()).empty();)
    heard += some;
  EXPECT_LT(heard.size(), whole.size()) << "it was let go";

  const auto last = last_in(heard);
  question.headers["Last-Event-ID"] = "life-" + std::to_string(last);
  auto again = t.client();
  again.send(question.text(t.server->port()));
  const auto rest = again.receive_until("\"text\":\"3599 ");
  EXPECT_THAT(rest, HasSubstr("\r\n\r\nid: life-" + std::to_string(last + 1) + "\n")) << "none is left out";
  EXPECT_THAT(rest, Not(HasSubstr("id: life-" + std::to_string(last) + "\n"))) << "none comes twice";
}

// clang-format off
constexpr bad_input table[] = {
  {"no token, or a wrong one", "401", without_token},
  {"a change with the token for looking", "403", token_for_looking},
  {"a Host that is not this server's, none, or several", "421", wrong_host},
  {"a page from elsewhere (Origin, Sec-Fetch-Site)", "403", page_from_elsewhere},
  {"a header above 8 KiB", "431", large_header},
  {"a body above 1 MiB", "413", large_body},
  {"no HTTP; broken JSON; a wrong key or value; a path with `..`", "400", malformed},
  {"a method other than GET, HEAD, POST", "405", other_method},
  {"an unknown path, job or cluster", "404", unknown_path},
  {"more than 10 changes in a second", "429", too_many_changes},
  {"the manager refuses", "409, with its line", manager_refuses},
  {"the manager is away; four questions wait for this one already", "503", manager_away},
  {"a ninth connection of one address, a 65th of all, while none of them waits for a request", "503, and the end",
   too_many_connections},
  {"silence of 30 s", "the end", silence},
  {"a reader who takes nothing for 30 s", "the end", takes_nothing},
  {"a reader of events that is 1 MiB behind", "the end; with `Last-Event-ID` it goes on where it was", far_behind},
};
// clang-format on

struct bad_inputs : web_server_test, testing::WithParamInterface<bad_input> {};

// given: a line of the table / expected: its answer, and a server that goes on
TEST_P(bad_inputs, is_answered_so) {
  GetParam().try_it(*this);
  server->actions.let_go();
  expect_free();
}

INSTANTIATE_TEST_SUITE_P(web, bad_inputs, testing::ValuesIn(table), [](const auto& x) {
  return std::regex_replace(std::string(x.param.what), std::regex("[^A-Za-z0-9]+"), "_");
});

// given: the README's table / expected: the lines that are tried, each of them and no other
TEST(web_readme, has_a_case_for_each_line) {
  const auto text = content(PARCAE_WEB_README);
  std::string rows = "| what came | answer |\n|---|---|\n";
  for (const auto& x : table)
    rows += "| " + std::string(x.what) + " | " + x.answer + " |\n";
  EXPECT_NE(text.find("\n" + rows), text.npos) << "the README should have\n" << rows;
}

} // namespace
} // namespace parcae

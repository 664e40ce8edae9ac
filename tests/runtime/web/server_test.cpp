// What the server answers to who asks as one should.

#include "tests/runtime/web/served.hpp"
#include "tests/support/names.hpp"

namespace parcae {
namespace {

namespace json = boost::json;

// given: a status / expected: each resource of it, and headers that keep a page to itself
TEST_F(web_server_test, tells_what_the_manager_told) {
  start();
  const auto reply = ask(look("status"));
  EXPECT_EQ(reply.status, 200u);
  EXPECT_EQ(json::parse(reply.body).at("jobs").at(0).at("name"), "text");
  EXPECT_EQ(reply.headers.at("Content-Type"), "application/json");
  EXPECT_EQ(reply.headers.at("Cache-Control"), "no-store");
  EXPECT_EQ(reply.headers.at("X-Content-Type-Options"), "nosniff");
  EXPECT_THAT(reply.headers.at("Content-Security-Policy"), StartsWith("default-src 'self';"));
  const auto picture = json::parse(ask(look("picture")).body);
  EXPECT_EQ(picture.at("status"), json::parse(reply.body));
  EXPECT_EQ(picture.at("up"), true);
  EXPECT_EQ(json::parse(ask(look("history")).body).at("steps").at(0), 21);
  EXPECT_EQ(json::parse(ask(look("jobs/3/losses")).body).at("every"), 1000);
  EXPECT_EQ(json::parse(ask(look("jobs/3/losses?points=20")).body).at("every"), 20);
  EXPECT_EQ(json::parse(ask(look("jobs/3/losses?from=7")).body).at("next"), 7);
  EXPECT_EQ(ask(look("jobs/3/losses?from=-1")).status, 400u);
  EXPECT_EQ(json::parse(ask(look("checkpoints")).body).at("job"), 3);
  EXPECT_EQ(json::parse(ask(look("job-keys")).body).at("keys").at(0).at("section"), "job");
  EXPECT_EQ(json::parse(ask(look("schema")).body).at("type"), "object");
  EXPECT_THAT(ask(with_token({.target = "/metrics"})).body, HasSubstr("\nparcae_manager_up 1\n"));
  EXPECT_EQ(ask(with_token({.target = "/healthz"})).body, "ok\n");
  EXPECT_EQ(ask(with_token({.target = "/readyz"})).status, 200u);
  server->do_there([&] { server->board.away("it is gone", 77); });
  const auto away = json::parse(ask(look("picture")).body);
  EXPECT_EQ(away.at("up"), false);
  EXPECT_EQ(away.at("why"), "it is gone");
  EXPECT_EQ(away.at("since_wall_us"), 77);
  EXPECT_EQ(away.at("status"), json::parse(reply.body)) << "what is old is still told";
}

// given: two clusters, of the other of which nothing is known yet; then its status / expected: a list with both; what
// has no prefix is the first's; each has its page, resources and metrics; events and questions are one's own
TEST_F(web_server_test, tells_of_each_cluster) {
  start();
  const auto other = [](const std::string& what) { return with_token({.target = "/clusters/other" + what}); };
  auto list = json::parse(ask(look("clusters")).body);
  EXPECT_EQ(list.at(0).at("name"), "mine");
  EXPECT_EQ(list.at(0).at("up"), true);
  EXPECT_EQ(list.at(0).at("job").at("name"), "text");
  EXPECT_EQ(list.at(1).at("name"), "other");
  EXPECT_EQ(list.at(1).at("why"), "no manager has answered yet");
  EXPECT_TRUE(list.at(1).at("job").is_null());
  EXPECT_EQ(ask(other("/api/v1/status")).status, 503u);
  EXPECT_EQ(ask(other("/readyz")).status, 503u);
  EXPECT_THAT(ask(other("/metrics")).body, HasSubstr("\nparcae_manager_up 0\n"));
  EXPECT_EQ(ask(with_token({.target = "/clusters/mine/api/v1/status"})).body, ask(look("status")).body);
  EXPECT_EQ(ask(other("/")).body, ask({.target = "/"}).body);
  EXPECT_EQ(ask(other("/page.css")).status, 200u);
  const auto moved = ask(other("?x"));
  EXPECT_EQ(moved.status, 308u);
  EXPECT_EQ(moved.headers.at("Location"), "other/");
  EXPECT_EQ(ask({.target = "/clusters/other/api/v1/status"}).status, 401u);

  auto mine = client(), others = client();
  mine.send(look("events").text(server->port()));
  others.send(other("/api/v1/events").text(server->port()));
  server->do_there([&] {
    auto x = sample_status();
    x.jobs.front().name = "theirs";
    x.news = {{1, 1, "warning", "only there"}};
    server->other_board.heard(std::make_shared<status_reply>(x), served_site::now());
  });
  EXPECT_THAT(others.receive_until("only there"), HasSubstr("only there"));
  tell_events(900, 1);
  EXPECT_THAT(mine.receive_until("900 x"), Not(HasSubstr("only there")));
  list = json::parse(ask(look("clusters")).body);
  EXPECT_EQ(list.at(1).at("up"), true);
  EXPECT_EQ(list.at(1).at("job").at("name"), "theirs");
  EXPECT_EQ(json::parse(ask(other("/api/v1/status")).body).at("jobs").at(0).at("name"), "theirs");
}

// given: as many questions as may wait for one cluster's manager, which does not answer / expected: no more of them,
// while the other's are answered
TEST_F(web_server_test, a_cluster_that_is_silent_holds_up_no_other) {
  start();
  server->actions.hold();
  std::vector<web_client> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.push_back(client());
    waiting.back().send(look("jobs/3").text(server->port()));
  }
  EXPECT_TRUE(eventually([&] { return server->actions.waiting() == 4; }));
  EXPECT_EQ(ask(look("jobs/3")).status, 503u);
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(ask(with_token({.target = "/clusters/other/api/v1/jobs/3"})).status, 200u);
  server->actions.let_go();
  for (auto& x : waiting)
    EXPECT_EQ(x.receive().status, 200u);
}

// given: parameters of 3 MB, asked for twice on a connection / expected: all of them, as a file to be kept
TEST_F(web_server_test, sends_parameters) {
  start();
  auto x = client();
  for (int i = 0; i < 2; ++i) {
    const auto reply = x.ask(look("jobs/3/parameters"));
    EXPECT_EQ(reply.status, 200u);
    EXPECT_EQ(reply.body, std::string(3'000'000, 'p'));
    EXPECT_EQ(reply.headers.at("Content-Disposition"), "attachment; filename=\"job-3.safetensors\"");
  }
  EXPECT_EQ(x.ask(look("jobs/4/parameters")).status, 404u);
  const web_question question{.target = std::string(api) + "jobs/3/parameters"};
  EXPECT_EQ(x.ask(with_token(question, 'b')).body, std::string(3'000'000, 'q')) << "who only looks asks for none";
  auto only_head = with_token(question);
  only_head.method = "HEAD";
  const auto reply = ask(only_head);
  EXPECT_EQ(reply.status, 200u);
  EXPECT_EQ(reply.body, "");
}

// given: a job in TOML and JSON with all that can be said, a preemption / expected: the actions get it as it was said
TEST_F(web_server_test, hands_on_what_is_to_be_done) {
  start();
  auto x = change("jobs?name=my%20job&set=job.steps%3D5&set=model.layers=2&priority=-7", "[job]\nsteps = 1\n");
  const auto told = json::parse(ask(x).body);
  EXPECT_EQ(told, json::value({{"text", "[job]\nsteps = 1\n"},
                               {"json", false},
                               {"name", "my job"},
                               {"changes", json::array{"job.steps=5", "model.layers=2"}},
                               {"priority", -7}}));
  x = change("jobs?check", "{}");
  x.headers["Content-Type"] = "application/json; charset=utf-8";
  const auto checked = json::parse(ask(x).body);
  EXPECT_EQ(checked.at("checked"), true);
  EXPECT_EQ(checked.at("json"), true);
  EXPECT_EQ(json::parse(ask(change("preempt", R"({"names": ["a", "b"], "notice": "30s"})")).body).at("names"),
            json::value(json::array{"a", "b"}));
  EXPECT_EQ(json::parse(ask(change("jobs/3/cancel")).body).at("job"), 3);
}

// given: requests one after the other on one connection, some sent at once / expected: an answer to each, in their
// order
TEST_F(web_server_test, goes_on_after_an_answer) {
  start();
  auto x = client();
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(x.ask(look("status")).status, 200u);
  EXPECT_EQ(x.ask(look("nothing")).status, 404u);
  x.send(look("status").text(server->port()) + look("nothing").text(server->port()) +
         look("jobs/3").text(server->port()));
  for (const unsigned status : {200, 404, 200})
    EXPECT_EQ(x.receive().status, status);
}

// given: readers of events that hang up, more often than one address may be connected / expected: their places are
// free at once
TEST_F(web_server_test, a_reader_who_goes_leaves_a_place) {
  start();
  for (int i = 0; i < 40; ++i) {
    std::vector<web_client> readers;
    for (int k = 0; k < 4; ++k) {
      readers.push_back(client());
      readers.back().send(look("events").text(server->port()));
      EXPECT_THAT(readers.back().receive_until("\n\n"), StartsWith("HTTP/1.1 200"));
    }
    readers.clear();
    expect_free();
  }
}

// given: eight connections of one address that were answered, and wait / expected: a ninth is answered, and a tenth;
// those that had waited longest have ended, the others have not
TEST_F(web_server_test, who_waits_for_nothing_gives_its_place) {
  start();
  std::vector<web_client> all;
  for (int i = 0; i < 10; ++i) {
    all.push_back(client());
    EXPECT_EQ(all.back().ask(look("status")).status, 200u) << i;
  }
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_EQ(all[i].receive_all(), "");
  for (std::size_t i = 2; i < all.size(); ++i)
    EXPECT_EQ(all[i].ask(look("status")).status, 200u) << i;
}

// given: a reader of the events of one job / expected: those of no other job, and those of none
TEST_F(web_server_test, tells_events_of_one_job) {
  start();
  auto mine = client(), other = client();
  mine.send(look("events?job=3").text(server->port()));
  other.send(look("events?job=4").text(server->port()));
  tell_events(900, 1);
  EXPECT_THAT(mine.receive_until("\"text\":\"900 "), HasSubstr("event: decision"));
  EXPECT_THAT(other.receive_until("\"text\":\"900 "), AllOf(HasSubstr("event: news"), Not(HasSubstr("event: step"))));
}

} // namespace
} // namespace parcae

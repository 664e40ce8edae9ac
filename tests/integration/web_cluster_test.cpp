// `parcae web` before a real manager and nodes: what it tells is what the commands tell, and what becomes of it is
// nobody's concern.

#include "tests/support/web_double.hpp"
#include "tests/support/web_process.hpp"

#include <sys/resource.h>

#include <csignal>
#include <sstream>

namespace parcae {
namespace {

using boost::json::object;
using boost::json::value;

/// Events as they come.
class event_reader {
public:
  struct event {
    std::string id, kind;
    value data;
  };

  event_reader(std::uint16_t port, const std::string& token, const std::string& after = {}) : client_(port) {
    web_question x{.target = "/api/v1/events", .headers = {{"Authorization", "Bearer " + token}}};
    if (!after.empty())
      x.headers.emplace("Last-Event-ID", after);
    client_.send(x.text(port));
    rest_ = client_.receive_until("\r\n\r\n");
    rest_.erase(0, rest_.find("\r\n\r\n") + 4);
  }

  event next() {
    for (;;) {
      std::size_t end;
      while ((end = rest_.find("\n\n")) == rest_.npos) {
        auto some = client_.receive_some();
        if (some.empty())
          throw std::runtime_error("the events ended");
        rest_ += some;
      }
      event result;
      std::istringstream lines(rest_.substr(0, end));
      rest_.erase(0, end + 2);
      for (std::string line; std::getline(lines, line);)
        if (line.starts_with("id: "))
          result.id = line.substr(4);
        else if (line.starts_with("event: "))
          result.kind = line.substr(7);
        else if (line.starts_with("data: "))
          result.data = boost::json::parse(line.substr(6));
      if (!result.kind.empty())
        return result;
    }
  }

  /// The next of that kind that is so.
  template <class Condition>
  event next(const std::string& kind, Condition condition) {
    const auto end = std::chrono::steady_clock::now() + 60s;
    for (;;) {
      auto x = next();
      if (x.kind == kind && condition(x.data.as_object()))
        return x;
      if (std::chrono::steady_clock::now() > end)
        throw std::runtime_error("no such event: " + kind);
    }
  }

private:
  web_client client_;
  std::string rest_;
};

std::uint64_t number(const value& x, const char* name) {
  return x.at(name).to_number<std::uint64_t>();
}

/// What moves by itself is the same.
value at_rest(value x) {
  auto& whole = x.as_object();
  whole.erase("now_us");
  whole.erase("wall_us");
  for (auto& i : whole.at("instances").as_array())
    i.as_object().erase("age_ms");
  return x;
}

struct web_beside_cluster : web_cluster {
  static constexpr const char* job_text = R"([job]
steps = 1000000
seed = 5
evaluate_every = 20
[model]
layers = 2
width = 16
heads = 2
sequence = 16
[data]
kind = "text"
path = "/usr/share/common-licenses/GPL-3"
validation = 8
[batch]
global = 8
micro = 1
)";

  std::uint64_t submit() {
    const auto x = change("jobs", job_text);
    EXPECT_EQ(x.status, 200u) << x.body;
    return x.status == 200 ? number(boost::json::parse(x.body), "job") : 0;
  }

  value from_command(std::vector<std::string> more = {}) {
    more.insert(more.begin(), "status");
    more.emplace_back("--json");
    return boost::json::parse(run(std::move(more)).output);
  }

  void wait_for_steps(std::uint64_t id, std::uint64_t more) {
    const auto from = job_of(cluster->client().status(), id).steps_done;
    wait_for_job(id, "steps", [&](const job_status& j) { return j.steps_done > from + more; });
  }

  void expect_ready() {
    EXPECT_TRUE(eventually([&] { return ask({.target = "/readyz"}).status == 200; }, limit));
  }

  /// While this is done to the server steps go on, in the same generation, and none is computed again.
  template <class Harm>
  void expect_no_concern_of(std::uint64_t id, const char* what, Harm harm) {
    SCOPED_TRACE(what);
    const auto before = wait_for_training(id, 2);
    harm();
    wait_for_steps(id, 20);
    const auto after = job_of(cluster->client().status(), id);
    EXPECT_EQ(after.generation, before.generation);
    EXPECT_EQ(after.change_count, before.change_count);
    EXPECT_EQ(after.replayed_steps, 0u);
  }
};

// given: a job that is submitted over HTTP, of two workers one is killed, another joins; the job is cancelled over HTTP
// / expected: its events tell of steps, the change with its stall, and the loss; who comes back gets what it missed;
// what the API has is then what `status --json` has, of all and of the job
TEST_F(web_beside_cluster, tells_what_status_tells) {
  start_nodes({"a", "b"});
  start_web();
  const auto check = change("jobs?check", job_text);
  EXPECT_EQ(boost::json::parse(check.body).at("obstacle"), "") << check.body;
  const auto id = submit();
  event_reader events(port, token);
  const auto steps = [&](std::uint64_t more_than) {
    return [=](const object& x) { return number(x, "job") == id && number(x, "steps") > more_than; };
  };
  const auto first = events.next("step", steps(0));
  EXPECT_GT(first.data.at("loss").to_number<double>(), 0);
  wait_for_training(id, 2);
  cluster->node("b").signal(SIGKILL);
  events.next("news", [](const object& x) { return x.at("text").as_string().find("instance b is lost") == 0; });
  cluster->start_node("c");
  const auto there = wait_for_training(id, 2);
  const auto stalled = events.next("change", [&](const object& x) {
    return number(x, "job") == id && number(x, "to") == there.generation && x.at("stall_ms").to_number<double>() > 0;
  });
  const auto part = "jobs/" + std::to_string(id) + "/losses?points=3";
  const auto asked = std::chrono::steady_clock::now();
  const auto curve_then = look(part);
  const auto on = events.next("step", steps(number(first.data, "steps") + 1));
  const auto curve_now = look(part);
  EXPECT_TRUE(curve_now == curve_then || std::chrono::steady_clock::now() - asked > std::chrono::seconds(5))
      << "the manager is asked again for each";
  EXPECT_TRUE(eventually([&] { return look(part) != curve_then; }, limit)) << "it is asked never again";
  event_reader again(port, token, stalled.id);
  EXPECT_EQ(std::stoull(again.next().id.substr(stalled.id.find('-') + 1)),
            std::stoull(stalled.id.substr(stalled.id.find('-') + 1)) + 1);

  EXPECT_EQ(change("jobs/" + std::to_string(id) + "/cancel").status, 200u);
  events.next("step", [&](const object& x) { return number(x, "job") == id && x.at("state") == "cancelled"; });
  value wanted, told;
  EXPECT_TRUE(
      eventually([&] { return (told = at_rest(look("status"))) == (wanted = at_rest(from_command())); }, limit));
  EXPECT_EQ(told, wanted);
  const auto name = std::to_string(id);
  EXPECT_EQ(at_rest(look("jobs/" + name)), at_rest(from_command({name})));
  EXPECT_TRUE(eventually([&] { return look("jobs/" + name).at("now_us") == look("jobs/" + name).at("now_us"); }))
      << "the manager is asked again for each";
  const auto curve = from_command({name}).at("jobs").at(0).at("losses");
  const auto every = look("jobs/" + name + "/losses?from=0");
  const auto& records = every.at("records").as_array();
  ASSERT_EQ(records.size(), static_cast<std::size_t>(number(every, "next")));
  for (std::size_t i = 0; i < records.size(); ++i)
    EXPECT_EQ(number(records[i], "steps"), i + 1);
  for (const auto& x : curve.as_array()) // the last half second before it was cancelled nobody was asked for
    EXPECT_TRUE(number(x, "steps") > records.size() || records.at(number(x, "steps") - 1).at("loss") == x.at("loss"));
  EXPECT_TRUE(look("jobs/" + name + "/losses?from=" + std::to_string(records.size())).at("records").as_array().empty());
  const auto thinned = look("jobs/" + name + "/losses?points=1");
  EXPECT_EQ(thinned.at("records").as_array(), boost::json::array{records.back()});
  boost::json::array evaluated;
  for (const auto& x : records)
    if (!x.at("validation_loss").is_null())
      evaluated.push_back({{"steps", x.at("steps")}, {"loss", x.at("validation_loss")}});
  ASSERT_GT(evaluated.size(), 1u);
  EXPECT_EQ(thinned.at("validation_losses").as_array(), boost::json::array{evaluated.back()});
  EXPECT_EQ(look("jobs/" + name + "/losses").at("validation_losses").as_array(), evaluated);
  EXPECT_EQ(look("job-keys"), boost::json::parse(run({"job-keys", "--json"}, false).output));
  EXPECT_EQ(look("checkpoints").at("checkpoints"),
            boost::json::parse(run({"checkpoints", "--json"}).output).at("checkpoints"));
  EXPECT_EQ(look("schema").at("type"), "object");
  EXPECT_EQ(look("picture").at("up"), true);
  EXPECT_GT(look("history").at("wall_us").as_array().size(), 1u);
}

// given: a job that trains with a keeper / expected: its parameters, the same bytes as `parcae export` writes of a job
// that has ended; a job that has none yet: 409
TEST_F(web_beside_cluster, sends_parameters) {
  start_web();
  const auto early = submit();
  const auto none = ask({.target = "/api/v1/jobs/" + std::to_string(early) + "/parameters"});
  EXPECT_EQ(none.status, 409u);
  EXPECT_THAT(none.body, HasSubstr("no keeper holds a version"));
  EXPECT_EQ(change("jobs/" + std::to_string(early) + "/cancel").status, 200u);
  EXPECT_EQ(ask({.target = "/api/v1/jobs/77/parameters"}).status, 404u);

  const auto id = start_job(small_job(30), {"a"});
  EXPECT_EQ(wait_for_end(id).state, "done");
  const auto file = folder.path() / "exported";
  run_well({"export", std::to_string(id), "--output", file});
  const auto told = ask({.target = "/api/v1/jobs/" + std::to_string(id) + "/parameters"});
  EXPECT_EQ(told.status, 200u);
  EXPECT_TRUE(told.body == content(file)) << told.body.size() << " bytes";
  const auto listed = look("checkpoints"); // of other clusters on this machine as well
  EXPECT_TRUE(std::ranges::any_of(listed.at("checkpoints").as_array(), [&](const value& x) {
    return x.at("place").as_string().starts_with(cluster->state_folder().string()) && number(x, "steps") == 30;
  })) << listed;
}

// given: jobs that are none, a job that is over, an instance that is not there / expected: the answer that the README
// has for it, with the manager's line
TEST_F(web_beside_cluster, hands_on_what_the_manager_refuses) {
  cluster->start_keeper();
  start_web();
  const auto expect = [&](const web_reply& x, unsigned status, const std::string& part) {
    EXPECT_EQ(x.status, status) << x.body;
    EXPECT_THAT(std::string(boost::json::parse(x.body).at("error").as_string()), HasSubstr(part));
  };
  expect(ask({.target = "/api/v1/jobs/77"}), 404, "77");
  expect(ask({.target = "/api/v1/jobs/0"}), 404, "0"); // which is all of them to the manager
  expect(change("jobs/77/cancel"), 404, "77");
  expect(change("jobs/77/checkpoint"), 404, "77");
  expect(change("preempt", R"({"names": ["nobody"]})"), 409, "nobody");
  expect(change("jobs", "[job]\nstops = 1\n"), 400, "stops");
  expect(change("jobs", R"({"job": {"steps": "many"}})", "application/json"), 400, "steps");
  const auto id = submit(); // it waits for workers
  EXPECT_EQ(change("jobs/" + std::to_string(id) + "/cancel").status, 200u);
  expect(change("jobs/" + std::to_string(id) + "/cancel"), 409, "");
}

// given: the manager is killed, and started again / expected: the server says so within seconds, to readers of events
// too, still has what it knew, and is back by itself
TEST_F(web_beside_cluster, waits_for_a_manager_that_is_away) {
  cluster->start_keeper();
  start_web();
  event_reader events(port, token);
  const auto is_up = [](bool up) { return [=](const object& x) { return x.at("up") == up; }; };
  events.next("manager", is_up(true));
  EXPECT_EQ(ask({.target = "/readyz"}).status, 200u);
  EXPECT_TRUE(eventually([&] { return !look("status").at("instances").as_array().empty(); }, limit));
  kill_manager();
  const auto away = events.next("manager", is_up(false));
  EXPECT_THAT(std::string(away.data.at("why").as_string()), HasSubstr(to_string(cluster->where())));
  EXPECT_GT(away.data.at("since_wall_us").to_number<std::int64_t>(), 0);
  EXPECT_EQ(look("picture").at("up"), false);
  EXPECT_TRUE(eventually([&] { return ask({.target = "/readyz"}).status == 503; }, limit));
  EXPECT_EQ(ask({.target = "/healthz"}).status, 200u);
  EXPECT_EQ(look("status").at("instances").at(0).at("name"), "keeper") << "what is old is still told";
  EXPECT_EQ(change("jobs/1/cancel").status, 503u);
  EXPECT_EQ(ask({.target = "/api/v1/jobs/1/parameters"}).status, 503u);
  cluster->restart_manager();
  events.next("manager", is_up(true));
  expect_ready();
}

// given: no manager at all at first / expected: it serves, and says why there is nothing, until there is one
TEST_F(web_beside_cluster, may_be_there_before_the_manager) {
  kill_manager();
  start_web();
  EXPECT_EQ(ask({.target = "/api/v1/status"}).status, 503u);
  cluster->restart_manager();
  EXPECT_TRUE(eventually([&] { return ask({.target = "/api/v1/status"}).status == 200; }, limit));
}

// given: right and wrong tokens, changes, broken requests, a manager that goes / expected: a token is in no log, nor
// where commands' lines are seen, nor in what is told
TEST_F(web_beside_cluster, keeps_its_token_to_itself) {
  cluster->start_keeper();
  start_web({"--read-token-file", folder.path() / "read_token"});
  auto reading = content(folder.path() / "read_token");
  reading.pop_back();
  const std::string wrong(64, 'e');
  submit();
  for (const auto& x : {token, reading, wrong}) {
    web_client(port).ask({.headers = {{"Authorization", "Bearer " + x}}});
    web_client(port).ask(
        {.method = "POST", .target = "/api/v1/preempt", .headers = {{"Authorization", "Bearer " + x}}});
    web_client(port).ask({.target = "/api/v1/status?token=" + x});
    web_client client(port);
    client.send("GET /" + x + " HTTP/9.9\r\nAuthorization: Bearer " + x + "\r\n\r\n");
    client.receive();
  }
  const auto told = ask({.target = "/api/v1/picture"}).body + ask({.target = "/api/v1/status"}).body +
                    content("/proc/" + std::to_string(web->pid()) + "/cmdline") +
                    content("/proc/" + std::to_string(web->pid()) + "/environ");
  kill_manager();
  EXPECT_TRUE(eventually([&] { return look("picture").at("up") == false; }, limit));
  web->signal(SIGTERM);
  EXPECT_EQ(web->wait(limit), 0);
  std::string logs;
  for (const auto& x : std::filesystem::recursive_directory_iterator(folder.path()))
    if (x.is_regular_file() && x.path() != token_file() && x.path().filename() != "read_token")
      logs += content(x.path());
  EXPECT_FALSE(logs.empty());
  for (const auto& x : {token, reading, wrong}) {
    EXPECT_EQ(told.find(x), told.npos);
    EXPECT_EQ(logs.find(x), logs.npos);
  }
}

// given: a job that trains; the server is frozen, flooded with 1,000 connections, killed / expected: steps go on, in
// the same generation, and the manager answers as ever; who was there before the flood is still served
TEST_F(web_beside_cluster, is_nobodys_concern) {
  start_nodes({"a", "b"});
  start_web();
  const auto id = submit();
  expect_no_concern_of(id, "frozen", [&] { web->signal(SIGSTOP); });
  web->signal(SIGCONT);
  expect_ready();

  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 4096);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  event_reader reader(port, token);
  {
    std::vector<web_client> flood;
    expect_no_concern_of(id, "flooded", [&] {
      for (int i = 0; i < 1000; ++i)
        flood.emplace_back(port, ("127.0.0." + std::to_string(2 + i % 200)).c_str());
    });
    const auto seen = job_of(cluster->client().status(), id).steps_done;
    reader.next("step", [&](const object& x) { return number(x, "steps") >= seen; });
  }
  expect_ready();

  expect_no_concern_of(id, "killed", [&] {
    web->signal(SIGKILL);
    ASSERT_TRUE(web->wait(limit));
  });
}

// given: all addresses, with a certificate that ends soon, under a name / expected: TLS for who has the token, events
// too, and metrics that tell of the end; nothing without TLS
TEST_F(web_beside_cluster, speaks_tls_beyond_loopback) {
  const auto certificate = make_certificate(folder.path() / "web", "DNS:localhost,IP:127.0.0.1");
  listen = "0.0.0.0:0";
  start_web({"--certificate", certificate, "--key", certificate, "--host", "Training.example"});
  const std::string script = R"(import ssl, sys, urllib.request as u
c = ssl.create_default_context(cafile=sys.argv[1])
token = open(sys.argv[2]).read().strip()
def ask(what, host):
    shown = {"Authorization": "Bearer " + token, "Host": host}
    return u.urlopen(u.Request(f"https://127.0.0.1:{sys.argv[3]}/{what}", headers=shown), context=c, timeout=30)
for what, host in ("status", "127.0.0.1"), ("events", "training.EXAMPLE:1"):
    print(ask("api/v1/" + what, host).readline().decode()[:10])
print(ask("metrics", "127.0.0.1").read().decode())
)";
  outcome x;
  EXPECT_TRUE(eventually( // there is a status
      [&] {
        x = run_program({"/usr/bin/python3", "-c", script, certificate, token_file(), std::to_string(port)});
        return x.status == 0;
      },
      limit))
      << x.error;
  EXPECT_THAT(x.output, testing::StartsWith("{\"now_us\":"));
  EXPECT_THAT(x.output, HasSubstr("\nid: "));
  EXPECT_THAT(x.output, HasSubstr("parcae_certificate_ending{of=\"web\"} 1")); // it is for a day
  EXPECT_EQ(ask({.target = "/healthz"}).status, 0u);
}

// given: beyond loopback without certificate, without token; a token that others can read; a port that is taken; no
// numeric address / expected: one line, and not a server
TEST_F(web_beside_cluster, is_refused_where_it_would_be_open) {
  const auto expect = [&](std::vector<std::string> arguments, int status, const std::string& part) {
    arguments.insert(arguments.begin(), "web");
    const auto x = run(std::move(arguments));
    EXPECT_EQ(x.status, status) << x.error;
    EXPECT_THAT(x.error, HasSubstr(part));
  };
  expect({"--listen", "0.0.0.0:0"}, 2, "--certificate");
  expect({"--listen", "0.0.0.0:0", "--token-file", token_file()}, 2, "--certificate");
  expect({"--listen", "somewhere:0"}, 2, "numeric address: somewhere");
  expect({"--listen", "127.0.0.1:" + std::to_string(cluster->where().port)}, 1, "cannot serve on");
  expect({"--cluster", "a/b=127.0.0.1:1"}, 2, "a name of letters, digits");
  expect({"--cluster", "a=127.0.0.1"}, 2, "is not HOST:PORT");
  expect({"--cluster", "a=127.0.0.1:1@/no/bundle"}, 2, "no bundle /no/bundle");
  expect({"--cluster", "a=127.0.0.1:1", "--cluster", "a=127.0.0.1:2"}, 2, "two clusters are named a");
  using std::filesystem::perms;
  write_file(token_file(), std::string(64, 'a'));
  std::filesystem::permissions(token_file(), perms::owner_read | perms::owner_write);
  expect({"--token-file", token_file(), "--read-token-file", token_file(), "--listen", "127.0.0.1:0"}, 2,
         "are the same: who may only look could change all");
  std::filesystem::permissions(token_file(), perms::others_read, std::filesystem::perm_options::add);
  expect({"--token-file", token_file(), "--listen", "127.0.0.1:0"}, 1, "can be read by others");
}

} // namespace
} // namespace parcae

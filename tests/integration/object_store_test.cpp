// Checkpoints in a real S3 server, of real jobs: machines that have nothing go on from them; a bad store disturbs
// nobody.

#include "gpu/checkpoint/safetensors.hpp"
#include "tests/support/cluster.hpp"
#include "tests/support/object_server.hpp"
#include "tests/support/own_object_server.hpp"
#include "tests/support/request_proxy.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>

namespace parcae {
namespace {

/// Of workers whose steps nobody waits for: else they take the processors that stores need.
const std::vector<std::string> unhurried{"--naps", "2ms"};

struct object_store_test : cluster_test {
  void SetUp() override {
    server.SetUp();
    if (IsSkipped())
      return;
    cluster_test::SetUp();
  }

  static void put(const std::string& place, const std::string& name, const std::string& bytes) {
    const auto writer = open_store(place)->create(name, bytes.size());
    writer->write(std::as_bytes(std::span(bytes)));
    writer->publish();
  }

  /// The tensors of a file as two files and their index, as Hugging Face saves what is large.
  static void put_shards(const std::filesystem::path& file, const std::string& place) {
    safetensors_file from(file);
    const auto names = from.names();
    std::string index;
    for (const bool second : {false, true}) {
      std::vector<safetensors_entry> tensors;
      std::string bytes;
      for (std::size_t i = second ? names.size() / 2 : 0; i < (second ? names.size() : names.size() / 2); ++i) {
        tensors.push_back(from.entry(names[i]));
        const auto begin = bytes.size();
        bytes.resize(begin + from.size_of(names[i]));
        from.read(tensors.back(), reinterpret_cast<std::byte*>(bytes.data() + begin));
        index += (index.empty() ? "" : ", ") + ("\"" + names[i] + "\": \"" + (second ? "b" : "a") + ".safetensors\"");
      }
      put(place, second ? "b.safetensors" : "a.safetensors", safetensors_header(tensors, {{"format", "pt"}}) + bytes);
    }
    put(place, "model.safetensors.index.json", "{\"weight_map\": {" + index + "}}");
  }

  struct address : object_server_test {
    using object_server_test::SetUp;
    void TestBody() override {}
    using object_server_test::bucket;
    using object_server_test::endpoint;
    using object_server_test::place;
    using object_server_test::port;
    using object_server_test::secret;
    using object_server_test::use;
  };

  /// Steps of the newest checkpoint of a run, be it whole or not.
  static std::uint64_t newest_in(const std::string& run_place) {
    std::uint64_t result = 0;
    for (const auto& x : open_store(run_place)->list().folders) // such as "40@1"
      if (x.find('@') != std::string::npos)
        result = std::max<std::uint64_t>(result, std::stoull(x));
    return result;
  }

  /// A job's endpoint on this machine is one that the keeper's user names, too.
  static std::vector<std::string> may_ask(const request_proxy& x) {
    return {"--data", "s3://", "--data", x.endpoint()};
  }

  /// A keeper that asks for it there, and a worker, train a job with a checkpoint each ten steps. Its number.
  std::uint64_t train(const request_proxy& proxy) {
    auto job = small_job(1'000'000);
    job.checkpoint_every = 10;
    job.checkpoint = {server.place, proxy.endpoint(), {}};
    cluster->start_keeper("keeper", may_ask(proxy));
    cluster->start_node("a", unhurried);
    return cluster->client().submit(job);
  }

  /// All processes die: new machines go on by URL from what was whole.
  void expect_others_go_on(const job_status& last, const request_proxy& proxy) {
    EXPECT_EQ(last.chain.size(), 1u) << "nothing was disturbed";
    kill_all({"keeper", "a"});
    start("second");
    cluster->start_keeper("other", may_ask(proxy));
    cluster->start_node("b", unhurried);
    run_well({"submit", "--resume", std::filesystem::path(last.checkpoint_folders.at(0).folder).parent_path()});
    const auto going = wait_for_training(1, 1); // the store may have got more after `last` was said
    EXPECT_GE(going.chain.at(0).last, last.checkpoint_steps);
  }

  /// A job that others disturb comes to an end: it is cancelled, and goes on for some steps where it was.
  job_status ended(tested_cluster& of, std::uint64_t id) {
    of.client().cancel(id);
    const auto end_of = [&](std::uint64_t which) {
      return job_of(of.wait_for("the end", limit,
                                [&](const status_reply& s) {
                                  const auto& state = job_of(s, which).state;
                                  return state != "running" && state != "queued";
                                }),
                    which);
    };
    const auto last = end_of(id);
    const auto on =
        run_well({"submit", "--resume", last.checkpoint_folders.at(0).folder, "--set",
                  "job.steps=" + std::to_string(last.checkpoint_steps + 20), "--manager", to_string(of.where())},
                 false);
    return end_of(on.status == 0 ? std::stoull(on.output) : 0);
  }

  address server;
};

// given: a job whose checkpoints go to S3, on machines of which nothing is left / expected: `checkpoints` lists them by
// URL; new machines go on by URL, without a job file; the bits of an undisturbed run
TEST_F(object_store_test, machines_that_have_nothing_go_on) {
  auto job = small_job(1'000'000); // or a quick one may be over before they are killed
  job.checkpoint_every = 20;
  job.min_depth = 2;
  job.checkpoint.to = server.place;
  const auto id = start_job(job, {"a", "b"});
  const auto before = wait_for_job(id, "two checkpoints", [](const job_status& j) { return j.checkpoint_steps >= 40; });
  ASSERT_EQ(before.checkpoint_folders.size(), 1u);
  EXPECT_THAT(before.checkpoint_folders[0].folder, testing::StartsWith(server.place + "/small-"));
  EXPECT_EQ(before.checkpoint_problem, "");
  kill_all({"keeper", "a", "b"});
  EXPECT_FALSE(std::filesystem::exists(cluster->state_folder() / "small")) << "nothing is on this machine";

  start("second"); // other folders for all
  cluster->start_keeper("other");
  cluster->start_node("c");
  cluster->start_node("d");
  const auto listed = run_well({"checkpoints", server.place});
  EXPECT_THAT(listed.output, HasSubstr("all layers"));
  const auto run_place = std::filesystem::path(before.checkpoint_folders[0].folder).parent_path().string();
  job.steps = newest_in(run_place) + 20;
  run_well({"submit", "--resume", run_place, "--set", "job.steps=" + std::to_string(job.steps), "--wait"});
  const auto end = job_of(cluster->client().status(), 1);
  EXPECT_EQ(end.steps_done, job.steps);
  EXPECT_EQ(end.checkpoint_steps, job.steps);
  ASSERT_GE(end.chain.size(), 2u);
  EXPECT_GE(end.chain[0].last, 40u);
  EXPECT_EQ(end.chain[0].by, generation{});
  const auto exported = folder.path() / "final.safetensors";
  run_well({"export", end.checkpoint_folders.at(0).folder, "--output", exported}, false);
  EXPECT_GT(std::filesystem::file_size(exported), 1000u);
  job.min_depth = 1;
  job.checkpoint = {};
  EXPECT_EQ(end.parameters_sha256, undisturbed(job).parameters_sha256);
}

// given: a store that is away when the first checkpoint is due, is there for a while, and is killed in the midst of an
// upload / expected: training goes on, `status` says what is wrong, then no more; what is in the store at any time is
// whole
TEST_F(object_store_test, a_bad_store_disturbs_nobody) {
  std::atomic<fate> how = fate::hang_up;
  request_proxy proxy(server.port(), [&](const seen_request&) { return how.load(); });
  const auto id = train(proxy);
  const auto failing = wait_for_job(id, "a problem", [](const job_status& j) { return !j.checkpoint_problem.empty(); });
  EXPECT_THAT(failing.checkpoint_problem,
              testing::AllOf(HasSubstr("no checkpoint of step"), HasSubstr(proxy.endpoint())));
  EXPECT_THAT(run({"status", std::to_string(id)}).output, HasSubstr("no checkpoint of step"));
  EXPECT_EQ(failing.phase, "running");
  wait_for_job(id, "more steps", [&](const job_status& j) { return j.steps_done > failing.steps_done + 5; });
  how = fate::pass;
  const auto well = wait_for_job(
      id, "a checkpoint", [](const job_status& j) { return j.checkpoint_steps > 0 && j.checkpoint_problem.empty(); });
  how = fate::cut_request;
  const auto cut =
      wait_for_job(id, "a problem again", [](const job_status& j) { return !j.checkpoint_problem.empty(); });
  EXPECT_GE(cut.checkpoint_steps, well.checkpoint_steps);
  const auto newest = run({"checkpoints", server.place});
  EXPECT_THAT(newest.output, HasSubstr("all layers")) << newest.error;
  how = fate::pass;
  const auto end = wait_for_job(id, "a newer checkpoint",
                                [&](const job_status& j) { return j.checkpoint_steps > cut.checkpoint_steps; });
  EXPECT_EQ(end.phase, "running");
  EXPECT_EQ(end.chain.size(), 1u) << "nothing was disturbed";
  run({"cancel", std::to_string(id)});
}

/// What is wrong with a store, and how `status` says so.
struct store_fault {
  fate how;
  const char* told;
};

// given: a running job whose store answers 503, ends in the midst of what it is sent, takes the clock for wrong, and
// the token for expired / expected: each time training goes on, `status` says it, and what was whole is the newest;
// once it passes, the next one comes. Then all processes die, and answers end in the midst for a while: new machines go
// on from a whole one
TEST_F(object_store_test, faults_are_told_and_cost_no_checkpoint) {
  std::atomic<fate> how = fate::pass;
  std::atomic<int> cuts = 0; // of answers with tensors
  request_proxy proxy(server.port(), [&](const seen_request& x) {
    const bool tensors = x.method == "GET" && x.target.find(".safetensors") != std::string::npos;
    return tensors && cuts.load() > 0 && cuts-- > 0 ? fate::cut_answer : how.load();
  });
  const auto id = train(proxy);
  auto well = wait_for_job(id, "a checkpoint", [](const job_status& j) { return j.checkpoint_steps > 0; });
  for (const auto& [fault, told] : {store_fault{fate::unavailable, "SlowDown"},
                                    {fate::cut_request, "ends too early"},
                                    {fate::skewed, "RequestTimeTooSkewed"},
                                    {fate::expired, "ExpiredToken"}}) {
    SCOPED_TRACE(told);
    how = fault;
    const auto failing = wait_for_job(
        id, "a problem", [&](const job_status& j) { return j.checkpoint_problem.find(told) != std::string::npos; });
    EXPECT_THAT(failing.checkpoint_problem,
                testing::AllOf(HasSubstr("no checkpoint of step"), HasSubstr("s3://" + server.bucket)));
    EXPECT_THAT(run({"status", std::to_string(id)}).output, HasSubstr(told));
    EXPECT_EQ(failing.phase, "running");
    EXPECT_GE(failing.checkpoint_steps, well.checkpoint_steps);
    const auto on =
        wait_for_job(id, "more steps", [&](const job_status& j) { return j.steps_done > failing.steps_done; });
    EXPECT_EQ(on.checkpoint_steps, failing.checkpoint_steps) << "that is the newest";
    EXPECT_THAT(run({"checkpoints", server.place}).output, HasSubstr("all layers"));
    how = fate::pass;
    well = wait_for_job(id, "the next checkpoint", [&](const job_status& j) {
      return j.checkpoint_steps > on.checkpoint_steps && j.checkpoint_problem.empty();
    });
  }
  cuts = 3;
  expect_others_go_on(well, proxy);
  EXPECT_LE(cuts, 0) << "answers were cut";
}

// given: two clusters with two keepers each, of the same names, that train jobs of one name and write to one place at
// once / expected: both go to their ends; each job's newest checkpoint has that job's parameters and losses, and no
// other's
TEST_F(object_store_test, two_jobs_at_one_place_do_not_mix) {
  const auto logs = folder.path() / "other";
  std::filesystem::create_directory(logs);
  tested_cluster other(sibling_program(""), logs);
  std::vector<std::uint64_t> ids;
  const std::vector<tested_cluster*> both{&*cluster, &other};
  for (auto* x : both) {
    for (const auto* name : {"keeper", "keeper-2"})
      x->start_keeper(name);
    x->wait_for("two keepers", limit, [](const status_reply& s) { return living(s, "keeper") == 2; });
    auto job = small_job(1'000'000);
    job.seed = 5 + ids.size();
    job.checkpoint_every = 5;
    job.checkpoint.to = server.place;
    x->start_node("a", unhurried);
    ids.push_back(x->client().submit(job));
  }
  std::vector<std::string> places, exports;
  for (std::size_t i = 0; i < both.size(); ++i)
    both[i]->wait_for("checkpoints", limit,
                      [&](const status_reply& s) { return job_of(s, ids[i]).checkpoint_steps > 0; });
  EXPECT_EQ(job_of(cluster->client().status(), ids[0]).state, "running") << "both write";
  for (std::size_t i = 0; i < both.size(); ++i) {
    const auto end = ended(*both[i], ids[i]);
    EXPECT_EQ(end.state, "done") << end.problem;
    EXPECT_EQ(end.checkpoint_problem, "");
    EXPECT_EQ(end.checkpoint_steps, end.steps);
    ASSERT_FALSE(end.checkpoint_folders.empty());
    places.push_back(std::filesystem::path(end.checkpoint_folders[0].folder).parent_path().string());
    const auto live = folder.path() / ("live" + std::to_string(i)),
               stored = folder.path() / ("stored" + std::to_string(i));
    const auto live_curve = live.string() + ".csv", stored_curve = stored.string() + ".csv";
    run_well({"export", std::to_string(end.id), "--output", live, "--curve", live_curve, "--manager",
              to_string(both[i]->where())},
             false);
    run_well({"export", end.checkpoint_folders[0].folder, "--output", stored, "--curve", stored_curve}, false);
    const auto curve = content(live_curve);
    EXPECT_EQ(std::ranges::count(curve, '\n'), static_cast<std::ptrdiff_t>(end.steps + 1));
    EXPECT_EQ(curve, content(stored_curve));
    safetensors_file a(live), b(stored);
    ASSERT_FALSE(a.names().empty());
    ASSERT_EQ(a.names(), b.names());
    exports.emplace_back();
    for (const auto& name : a.names()) {
      std::string x(a.size_of(name), '\0'), y(b.size_of(name), '\0');
      a.read(a.entry(name), reinterpret_cast<std::byte*>(x.data()));
      b.read(b.entry(name), reinterpret_cast<std::byte*>(y.data()));
      EXPECT_EQ(x, y) << name;
      exports.back() += x;
    }
  }
  EXPECT_NE(places[0], places[1]);
  EXPECT_NE(exports[0], exports[1]);
  const auto listed = run({"checkpoints", server.place}).output;
  for (const auto& place : places)
    EXPECT_THAT(listed, HasSubstr(std::filesystem::path(place).filename().string()));
}

// given: the example, short, with the server's bucket / expected: it runs, and so do the commands that it names
TEST_F(object_store_test, the_example_runs) {
  auto text = content(PARCAE_EXAMPLES "/store/gpt.toml");
  const std::string there = "s3://my-bucket/runs";
  for (const auto& [from, to] : {std::pair("\nto = \"" + there, "\nto = \"" + server.place),
                                 {"steps = 300", "steps = 12"},
                                 {"checkpoint_every = 100", "checkpoint_every = 4"}}) {
    ASSERT_NE(text.find(from), text.npos) << from;
    text.replace(text.find(from), from.size(), to);
  }
  const auto file = folder.path() / "gpt.toml";
  std::ofstream(file) << text;
  start_nodes({"a"});
  const auto good = run_well({"submit", file.string(), "--check"});
  EXPECT_THAT(good.error, HasSubstr("whether " + server.place + " may be written to is found out"));
  const auto bad = run({"submit", file.string(), "--check", "--set", "checkpoint.to=s3://no-such-bucket/x"});
  EXPECT_EQ(bad.status, 1);
  EXPECT_THAT(bad.error, testing::AllOf(HasSubstr("keeper keeper: "), HasSubstr("no-such-bucket")));
  run_well({"submit", file.string(), "--wait"});
  const auto end = job_of(cluster->client().status(), 1);
  EXPECT_EQ(end.steps_done, 12u);
  ASSERT_FALSE(end.checkpoint_folders.empty());
  EXPECT_THAT(run({"checkpoints", server.place}).output, HasSubstr("all layers"));
  const auto run_place = std::filesystem::path(end.checkpoint_folders[0].folder).parent_path().string();
  EXPECT_THAT(run_place, testing::StartsWith(server.place + "/gpt-"));
  run_well({"submit", "--resume", run_place, "--set", "job.steps=16", "--wait"});
  EXPECT_EQ(job_of(cluster->client().status(), 2).steps_done, 16u);
}

// given: a server that is killed when it has half of a checkpoint's tensors, and that is back later with its disk; then
// all processes die / expected: training goes on, `status` says what is wrong, the newest checkpoint is the one before;
// with the server the next one comes; new machines go on from a whole one
TEST_F(object_store_test, a_server_is_killed_while_it_stores) {
  own_object_server own(folder.path() / "server");
  server.use(own.folder());
  std::atomic<bool> armed = false;
  request_proxy proxy(
      server.port(),
      [&](const seen_request& x) {
        const bool tensors = x.method == "PUT" && x.target.find(".safetensors") != std::string::npos;
        return tensors && armed.exchange(false) ? fate::half : fate::pass;
      },
      [&](const seen_request&) { own.kill(); });
  const auto id = train(proxy);
  const auto well = wait_for_job(id, "a checkpoint", [](const job_status& j) { return j.checkpoint_steps > 0; });
  EXPECT_EQ(well.checkpoint_problem, "");
  armed = true;
  const auto failing = wait_for_job(id, "a problem", [](const job_status& j) { return !j.checkpoint_problem.empty(); });
  EXPECT_FALSE(armed);
  EXPECT_THAT(failing.checkpoint_problem, HasSubstr("no checkpoint of step"));
  EXPECT_THAT(run({"status", std::to_string(id)}).output, HasSubstr("no checkpoint of step"));
  const auto on =
      wait_for_job(id, "more steps", [&](const job_status& j) { return j.steps_done > failing.steps_done; });
  EXPECT_EQ(on.phase, "running");
  own.restart();
  EXPECT_THAT(run({"checkpoints", server.place}).output, HasSubstr("all layers"));
  const auto again = wait_for_job(id, "the next checkpoint", [&](const job_status& j) {
    return j.checkpoint_steps > on.checkpoint_steps && j.checkpoint_problem.empty();
  });
  expect_others_go_on(again, proxy);
}

// given: data and weights in S3, three preemptions; what is not there / expected: the
// bits of a job with the same files of this machine; the last fails before a step, with one line that says where
TEST_F(object_store_test, data_and_weights_have_urls) {
  setenv("PARCAE_CACHE", (folder.path() / "cache").c_str(), 1);
  const std::string text = "/usr/share/common-licenses/GPL-3";
  const auto weights = folder.path() / "model.safetensors";
  const auto job = [&](const std::string& data, const std::string& start, std::uint64_t steps) {
    const auto file = folder.path() / "job.toml";
    std::ofstream(file) << "[job]\ncheckpoint_every = 20\nsteps = " << steps
                        << "\n[model]\nlayers = 2\nwidth = 16\nheads = 2\nsequence = 16\n"
                        << (start.empty() ? "" : "weights = \"" + start + "\"\n") << "[data]\npath = \"" << data
                        << "\"\n[batch]\nglobal = 8\nmicro = 2\n[keepers]\nevery = 5\n";
    const auto x = run_well({"submit", file.string()});
    return x.status == 0 ? std::stoull(x.output) : 0;
  };
  start_nodes({"w0", "w1", "w2"});
  const auto first = wait_for_end(job(text, "", 10));
  ASSERT_EQ(first.state, "done") << first.problem;
  ASSERT_EQ(run({"export", std::to_string(first.id), "--output", weights}).status, 0);
  put(server.place, "data/GPL-3", content(text));
  put(server.place, "model.safetensors", content(weights));
  const auto id = job(server.place + "/data/GPL-3", server.place + "/model.safetensors", 1'000'000);
  preempt(id, 3);
  const auto end = end_behind_checkpoint(id);
  const auto local = wait_for_end(job(text, weights, end.steps_done));
  EXPECT_EQ(end.parameters_sha256, local.parameters_sha256);
  EXPECT_NE(end.parameters_sha256, wait_for_end(job(text, "", end.steps_done)).parameters_sha256) << "weights matter";
  put_shards(weights, server.place + "/shards");
  const auto short_one = wait_for_end(job(text, weights, 5)).parameters_sha256;
  for (const auto* spelling : {"/shards", "/shards/model.safetensors.index.json"}) {
    const auto sharded = wait_for_done(job(text, server.place + spelling, 5));
    EXPECT_EQ(sharded.parameters_sha256, short_one) << spelling;
  }
  const auto absent = wait_for_end(job(server.place + "/nothing", "", 10));
  EXPECT_EQ(absent.state, "failed");
  EXPECT_EQ(absent.steps_done, 0u);
  EXPECT_THAT(absent.problem, HasSubstr("data " + server.place + "/nothing is not there"));
  unsetenv("PARCAE_CACHE");
}

// given: a job that has ended, with 1,050 other objects that are listed before those of its newest checkpoint: servers
// list 1,000 at a time / expected: that is found, goes on, and is read; removed, nothing of it is left
TEST_F(object_store_test, a_checkpoint_among_many_objects) {
  auto job = small_job(10);
  job.checkpoint_every = 10;
  job.checkpoint.to = server.place;
  start_nodes({"a"});
  const auto end = wait_for_end(cluster->client().submit(job));
  ASSERT_EQ(end.state, "done") << end.problem;
  const auto newest = end.checkpoint_folders.at(0).folder;
  for (int i = 0; i < 1'050; ++i)
    put(newest, "a" + std::to_string(10'000 + i), "x");
  EXPECT_THAT(run({"checkpoints", server.place}).output, HasSubstr("all layers"));
  EXPECT_EQ(run({"export", newest, "--output", folder.path() / "exported"}, false).status, 0);
  run_well({"submit", "--resume", newest, "--set", "job.steps=20", "--wait"});
  const auto kept = run({"checkpoints", server.place, "--keep", "1"});
  EXPECT_THAT(kept.output, HasSubstr("0 checkpoints removed")) << kept.error; // each job's only one
  const auto removed =
      run({"checkpoints", server.place, "--remove", std::filesystem::path(newest).parent_path().filename()});
  EXPECT_THAT(removed.output, HasSubstr("1 checkpoint removed")) << removed.error;
  EXPECT_TRUE(open_store(newest)->list().objects.empty());
}

// given: a keeper with a wrong key / expected: the job trains, `status` says 403 and what to do, never the key; with
// the right one in the file the next checkpoint is there
TEST_F(object_store_test, a_wrong_key_is_told) {
  const auto file = folder.path() / "credentials";
  const auto write = [&](const std::string& secret) {
    std::ofstream(file) << "[default]\naws_access_key_id=parcae-test\naws_secret_access_key=" << secret << "\n";
  };
  write("a-wrong-secret");
  unsetenv("AWS_ACCESS_KEY_ID");
  unsetenv("AWS_SECRET_ACCESS_KEY");
  setenv("AWS_SHARED_CREDENTIALS_FILE", file.c_str(), 1);
  auto job = small_job(100'000);
  job.checkpoint_every = 10;
  job.checkpoint.to = server.place;
  const auto id = start_job(job, {"a"});
  const auto wrong = wait_for_job(id, "a problem", [](const job_status& j) { return !j.checkpoint_problem.empty(); });
  EXPECT_THAT(wrong.checkpoint_problem, testing::AllOf(HasSubstr("403"), HasSubstr("see whether the credentials"),
                                                       testing::Not(HasSubstr("a-wrong-secret"))));
  EXPECT_EQ(wrong.phase, "running");
  write(server.secret);
  wait_for_job(id, "a checkpoint", [](const job_status& j) { return j.checkpoint_steps > 0; });
  run({"cancel", std::to_string(id)});
}

} // namespace
} // namespace parcae

// Checkpoints in a real S3 server: what is gone on with is always whole, whoever dies when.

#include "gpu/keeper/checkpoint_store.hpp"
#include "runtime/child/process.hpp"
#include "tests/gpu/keeper/checkpoint_folder.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/names.hpp"
#include "tests/support/object_server.hpp"
#include "tests/support/own_object_server.hpp"
#include "tests/support/request_proxy.hpp"

#include <atomic>
#include <csignal>
#include <future>
#include <thread>

namespace parcae {
namespace {

constexpr std::chrono::seconds patience{120};

/// Layers 0 to 2 are all.
struct checkpoint_s3 : object_server_test {
  static job_specification at(const std::string& to, const std::string& endpoint = {}, job_specification x = job()) {
    x.checkpoint = {to, endpoint, {}};
    return x;
  }

  static checkpointed written(checkpoint_store& store, const job_specification& of, version made,
                              const std::vector<std::uint32_t>& layers, std::vector<std::uint64_t> kept = {},
                              const std::string& run = "text-1", const commit_result& result = {}) {
    std::vector<std::shared_ptr<const shard_bytes>> shards;
    for (const auto layer : layers)
      shards.push_back(shard_of(layer, made, of));
    std::promise<checkpointed> answer;
    store.write({{1}, made, run + "/" + to_string(made), of, "digest", std::move(kept)}, std::move(shards), result,
                [&](checkpointed x) { answer.set_value(std::move(x)); });
    return answer.get_future().get();
  }

  static restored read(checkpoint_store& store, const std::string& from, std::uint64_t steps,
                       const job_specification& of, std::vector<std::uint32_t>& layers) {
    std::promise<restored> answer;
    store.read(
        {{1}, {steps, {0}}, from, of}, [&](const commit_result&, const shard_bytes& x) { layers.push_back(x.layer); },
        [&](restored x) { answer.set_value(std::move(x)); });
    return answer.get_future().get();
  }

  store_ptr run() const { return open_store(place + "/text-1", {.pace = quick_pace()}); }

  /// Names of checkpoints of which anything is there: this server keeps empty folders for a while.
  std::vector<std::string> versions() const {
    auto result = run()->list().folders;
    std::erase_if(result, [&](const std::string& x) { return run()->below(x)->list().objects.empty(); });
    return result;
  }

  /// Reads the newest and compares every bit; returns its steps.
  std::uint64_t newest_is_good() const {
    checkpoint_reader reader({find_checkpoint(run())});
    EXPECT_TRUE(reader.is_complete());
    for (const auto layer : reader.layers())
      EXPECT_TRUE(reader.read(layer).parts ==
                  shard_of(layer, reader.manifest().at, reader.manifest().specification)->parts);
    return reader.manifest().at.steps;
  }

  std::size_t unfinished() const {
    std::size_t result = 0;
    run()->give_up_unfinished([&](std::string_view) {
      ++result;
      return false;
    });
    return result;
  }

  child_process writer(const std::string& at, const std::vector<std::string>& steps) {
    setenv("AWS_ENDPOINT_URL", at.c_str(), 1);
    std::vector<std::string> arguments{sibling_program("checkpoint_writer"), place, "k"};
    arguments.insert(arguments.end(), steps.begin(), steps.end());
    child_process result({arguments, scratch.path() / "out", scratch.path() / "err"});
    setenv("AWS_ENDPOINT_URL", endpoint.c_str(), 1);
    return result;
  }

  scratch_folder scratch{"parcae-test"};
};

// given: checkpoints with losses, by two keepers, then by one that knows only the newest / expected: in the bucket,
// beside the checkpoints; read with the checkpoint by a keeper that has nothing of its own, up to its step
TEST_F(checkpoint_s3, has_losses) {
  loss_record known;
  for (std::uint64_t step = 0; step < 9000; ++step)
    known.put(step, {1 / static_cast<double>(step + 1), 2, 3, {}, 1'000 + static_cast<std::int64_t>(step)});
  loss_record newest;
  newest.put(known.part(8500));
  auto before = known;
  before.go_back(5000);
  const auto of = at(place);
  const auto put = [&](checkpoint_store& store, std::uint64_t steps, const std::vector<std::uint32_t>& layers,
                       const loss_record& losses) {
    std::promise<checkpointed> answer;
    std::vector<std::shared_ptr<const shard_bytes>> shards;
    for (const auto layer : layers)
      shards.push_back(shard_of(layer, {steps, {3}}, of));
    store.write(
        {{1}, {steps, {3}}, "text-1/" + std::to_string(steps) + "@3", of, "digest", {}}, std::move(shards), {},
        [&](checkpointed x) { answer.set_value(std::move(x)); }, losses);
    EXPECT_EQ(answer.get_future().get().problem, "");
  };
  checkpoint_store one(scratch.path() / "one", "k1", {}, quick_pace()),
      two(scratch.path() / "two", "k2", {}, quick_pace());
  put(one, 5000, {0, 1}, before);
  put(two, 5000, {2}, before);
  put(one, 9000, {0, 1}, known);
  put(two, 9000, {2}, newest);
  checkpoint_store fresh(scratch.path() / "fresh", "other", {}, quick_pace());
  loss_record found;
  std::promise<restored> answer;
  fresh.read(
      {{1}, {9000, {0}}, place + "/text-1/9000@3", job()},
      [&](const commit_result&, const shard_bytes& x) {
        if (x.layer == losses_layer)
          found.put(losses_in(x));
      },
      [&](restored x) { answer.set_value(std::move(x)); });
  EXPECT_EQ(answer.get_future().get().problem, "");
  ASSERT_EQ(found.steps(), known.steps());
  for (std::uint64_t step = 0; step < known.steps(); ++step)
    ASSERT_TRUE(found.find(step) && found.find(step)->same(*known.find(step))) << step;
}

// given: two keepers' shares / expected: read back by a keeper that has nothing of its own, by URL, by the job's place;
// another step, a place that is not there and one that cannot be reached are told apart
TEST_F(checkpoint_s3, is_read_as_it_was_written) {
  checkpoint_store one(scratch.path() / "one", "k1", {}, quick_pace()),
      two(scratch.path() / "two", "k2", {}, quick_pace());
  const auto of = at(place);
  EXPECT_EQ(written(one, of, {20, {3}}, {0, 1}).problem, "");
  const auto second = written(two, of, {20, {3}}, {2});
  EXPECT_EQ(second.problem, "");
  EXPECT_EQ(second.folder, place + "/text-1/20@3");
  EXPECT_EQ(newest_is_good(), 20u);
  checkpoint_store fresh(scratch.path() / "fresh", "other", {}, quick_pace());
  for (const auto& [from, spec] : {std::pair(place + "/text-1/20@3", job()), {std::string("text-1/20@3"), of}}) {
    std::vector<std::uint32_t> layers;
    const auto x = read(fresh, from, 20, spec, layers);
    EXPECT_EQ(x.problem, "");
    EXPECT_THAT(layers, testing::UnorderedElementsAre(0u, 1u, 2u));
  }
  std::vector<std::uint32_t> none;
  EXPECT_TRUE(read(fresh, place + "/text-1/20@3", 21, job(), none).damaged);
  const auto absent = read(fresh, place + "/text-1/30@3", 30, job(), none);
  EXPECT_THAT(absent.problem, HasSubstr("has no checkpoint"));
  EXPECT_FALSE(absent.damaged || absent.passing);
  const auto unreachable = read(fresh, "text-1/20@3", 20, at(place, "http://127.0.0.1:1"), none);
  EXPECT_TRUE(unreachable.passing);
  EXPECT_FALSE(unreachable.damaged);
  EXPECT_THAT(none, IsEmpty());
}

// given: a checkpoint each so many steps, an incomplete one among them, of another life of the job / expected: the kept
// ones stay, those of keepers that are gone are deleted too; the newest complete one stays even if it is not to be kept
TEST_F(checkpoint_s3, old_ones_go_but_not_the_last_good_one) {
  checkpoint_store k(scratch.path(), "k", {}, quick_pace()), l(scratch.path(), "l", {}, quick_pace());
  const auto of = at(place);
  written(l, of, {10, {1}}, {0, 1, 2});
  written(l, of, {20, {1}}, {0, 1});
  EXPECT_EQ(written(k, of, {30, {1}}, {0, 1}).problem, "");
  EXPECT_THAT(versions(), ElementsAre("10@1", "20@1", "30@1")) << "10 is the only good one";
  EXPECT_EQ(newest_is_good(), 10u);
  EXPECT_EQ(written(l, of, {30, {1}}, {2}).problem, "");
  EXPECT_THAT(versions(), ElementsAre("30@1"));
  EXPECT_EQ(written(k, of, {40, {1}}, {0, 1, 2}, {30}).problem, "");
  EXPECT_EQ(written(k, of, {50, {1}}, {0, 1, 2}, {40}).problem, "");
  EXPECT_THAT(versions(), ElementsAre("40@1", "50@1"));
  // A keeper that was cut off, and does what it was told long ago.
  EXPECT_EQ(written(l, of, {35, {1}}, {0, 1}, {30}).problem, "");
  EXPECT_EQ(newest_is_good(), 50u);
}

// given: the same version again, once it is there; with other layers, fewer or more / expected: nothing is
// sent but questions; the new layers are put beside it
TEST_F(checkpoint_s3, what_is_there_is_not_written_again) {
  request_proxy proxy(port(), [](const seen_request&) { return fate::pass; });
  const auto of = at(place, proxy.endpoint());
  checkpoint_store first(scratch.path(), "k", {}, quick_pace());
  EXPECT_EQ(written(first, of, {20, {1}}, {0, 1}).problem, "");
  const auto before = proxy.requests().size();
  checkpoint_store again(scratch.path(), "k", {}, quick_pace());
  EXPECT_EQ(written(again, of, {20, {1}}, {0, 1}).problem, "");
  for (std::size_t i = before; i < proxy.requests().size(); ++i)
    EXPECT_THAT(proxy.requests()[i], testing::AnyOf(testing::StartsWith("GET "), testing::StartsWith("HEAD ")));
  EXPECT_EQ(written(again, of, {20, {1}}, {1}).problem, "");
  EXPECT_THAT(run()->below("20@1")->list().objects, SizeIs(2)) << "manifest and tensors";
  EXPECT_EQ(written(again, of, {20, {1}}, {1, 2}).problem, "");
  EXPECT_EQ(newest_is_good(), 20u);
}

// given: two keepers of one name that write one version at once, of other layers, or of other training; and two jobs at
// one place / expected: all layers are there; those of one of them only, and the other is told; jobs do not mix
TEST_F(checkpoint_s3, writers_do_not_mix) {
  for (int round = 0; round < 6; ++round) {
    const bool same = round % 2 == 0; // training
    const version made{100 + static_cast<std::uint64_t>(round), {1}};
    std::vector<std::jthread> threads;
    std::atomic<int> good = 0;
    for (const std::uint32_t writer : {0u, 1u})
      for (const auto* run : {"text-1", "text-2"})
        threads.emplace_back([&, run, writer] {
          checkpoint_store store(scratch.path(), "k", {}, quick_pace());
          commit_result result{.step = made.steps - 1, .loss = same ? 1.0 : 1.0 + writer};
          good += written(store, at(place), made, {writer, 2}, {}, run, result).problem.empty();
        });
    threads.clear();
    EXPECT_EQ(good, same ? 4 : 2);
    for (const auto* name : {"text-1", "text-2"}) {
      checkpoint_reader reader({open_store(place + "/" + name + "/" + to_string(made))});
      EXPECT_EQ(reader.layers().size(), same ? 3u : 2u);
      for (const auto layer : reader.layers())
        EXPECT_TRUE(reader.read(layer).parts == shard_of(layer, made)->parts);
    }
  }
}

// given: a keeper killed at each request of its second checkpoint, in the midst of it, and when it was done / expected:
// the newest checkpoint is one of the two, every bit of it; the next start leaves nothing unfinished, and writes a
// third
TEST_F(checkpoint_s3, a_keeper_may_be_killed_at_any_request) {
  std::atomic<pid_t> victim = 0;
  std::atomic<unsigned> which = 0; // the request; 0: none
  std::atomic<fate> how = fate::pass;
  const auto strike = [&] {
    if (eventually([&] { return victim != 0; })) // it asks before its number is known here
      kill(victim, SIGKILL);
  };
  request_proxy proxy(
      port(),
      [&](const seen_request& x) {
        if (x.number != which)
          return fate::pass;
        if (how != fate::lose_answer)
          strike();
        return how.load();
      },
      [&](const seen_request&) { strike(); });
  const auto requests_of = [&](const std::vector<std::string>& steps) {
    const auto before = proxy.requests().size();
    EXPECT_EQ(writer(proxy.endpoint(), steps).wait(patience), 0);
    return static_cast<unsigned>(proxy.requests().size() - before);
  };
  requests_of({"10"});
  const auto count = requests_of({"20"});
  ASSERT_GE(count, 8u);
  std::uint64_t steps = 20;
  int kills = 0;
  for (const auto kind : {fate::cut_request, fate::lose_answer})
    for (unsigned n = 1; n <= count; ++n) {
      const auto before = steps;
      steps += 10;
      how = kind;
      which = static_cast<unsigned>(proxy.requests().size()) + n;
      victim = 0;
      auto process = writer(proxy.endpoint(), {std::to_string(steps)});
      victim = process.pid();
      kills += process.wait(patience) == 128 + SIGKILL;
      which = 0;
      ASSERT_THAT(newest_is_good(), testing::AnyOf(before, steps)) << "killed at request " << n;
      steps += 10;
      ASSERT_EQ(writer(proxy.endpoint(), {std::to_string(steps)}).wait(patience), 0);
      ASSERT_EQ(newest_is_good(), steps);
      ASSERT_EQ(unfinished(), 0u) << "killed at request " << n;
    }
  EXPECT_EQ(kills, static_cast<int>(2 * count));
}

// given: a server that refuses, is silent, or ends in the midst of parts / expected: the problem in the answer; what
// was there is still there; the next checkpoint, once it is well again, too
TEST_F(checkpoint_s3, a_bad_server_leaves_what_was) {
  checkpoint_store store(scratch.path(), "k", {}, impatient_pace());
  std::atomic<fate> how = fate::pass;
  std::atomic<bool> in_parts = false; // only then
  request_proxy proxy(port(), [&](const seen_request& x) {
    return !in_parts || x.target.find("partNumber=2") != std::string::npos ? how.load() : fate::pass;
  });
  const auto of = at(place, proxy.endpoint(), large_job());
  ASSERT_EQ(written(store, of, {10, {1}}, {0, 1, 2}).problem, "");
  std::uint64_t steps = 10;
  for (const bool parts : {false, true})
    for (const auto& [what, told] : {std::pair(fate::unavailable, "SlowDown"),
                                     {fate::expired, "ExpiredToken"},
                                     {fate::silence, "waited 2s"},
                                     {fate::hang_up, "ends too early"},
                                     {fate::cut_request, "ends too early"}}) {
      in_parts = parts;
      how = what;
      const auto x = written(store, of, {steps + 5, {1}}, {0, 1, 2}, {steps});
      EXPECT_THAT(x.problem, HasSubstr(told));
      EXPECT_THAT(x.layers, IsEmpty());
      EXPECT_EQ(newest_is_good(), steps);
      how = fate::pass;
      steps += 10;
      ASSERT_EQ(written(store, of, {steps, {1}}, {0, 1, 2}, {steps - 10}).problem, "");
      EXPECT_EQ(newest_is_good(), steps);
      EXPECT_EQ(unfinished(), 0u);
    }
}

// given: a server of its own that is killed when it has half of a part, and comes back with its disk; once while the
// keeper still asks again / expected: the problem in the answer, what was there is still there, and nothing is left of
// the other; the next checkpoint is whole. The other one is whole
TEST_F(checkpoint_s3, a_server_may_be_killed_within_a_part) {
  own_object_server server(scratch.path() / "server");
  use(server.folder());
  std::atomic<bool> armed = false, comes_back = false;
  request_proxy proxy(
      port(),
      [&](const seen_request& x) {
        return x.target.find("partNumber=2") != std::string::npos && armed.exchange(false) ? fate::half : fate::pass;
      },
      [&](const seen_request&) { comes_back ? server.restart() : server.kill(); });
  const auto of = at(place, proxy.endpoint(), large_job());
  checkpoint_store store(scratch.path(), "k", {}, quick_pace());
  ASSERT_EQ(written(store, of, {10, {1}}, {0, 1, 2}).problem, "");
  armed = true;
  const auto killed = written(store, of, {20, {1}}, {0, 1, 2}, {10});
  EXPECT_FALSE(armed);
  EXPECT_NE(killed.problem, "");
  EXPECT_THAT(killed.layers, IsEmpty());
  server.restart();
  EXPECT_EQ(newest_is_good(), 10u);
  ASSERT_EQ(written(store, of, {30, {1}}, {0, 1, 2}, {10}).problem, "");
  EXPECT_EQ(newest_is_good(), 30u);
  EXPECT_EQ(unfinished(), 0u);
  armed = comes_back = true;
  auto patient = quick_pace(); // a server takes a second to begin, and on a busy machine some
  patient.attempts = 8;
  patient.first_pause = 250ms;
  patient.longest_pause = 8s;
  checkpoint_store asks_again(scratch.path(), "k", {}, patient);
  EXPECT_EQ(written(asks_again, of, {40, {1}}, {0, 1, 2}, {30}).problem, "");
  EXPECT_FALSE(armed);
  EXPECT_EQ(newest_is_good(), 40u);
  EXPECT_EQ(unfinished(), 0u);
}

// given: a keeper that ends while a server says nothing / expected: it ends soon, and nothing is called back
TEST_F(checkpoint_s3, a_keeper_ends_while_it_writes) {
  request_proxy proxy(port(), [](const seen_request&) { return fate::silence; });
  std::atomic<bool> answered = false;
  auto store = std::make_unique<checkpoint_store>(scratch.path(), "k");
  const version made{10, {1}};
  store->write({{1}, made, "text-1/10@1", at(place, proxy.endpoint()), "digest", {}}, {shard_of(0, made)}, {},
               [&](const checkpointed&) { answered = true; });
  ASSERT_TRUE(eventually([&] { return !proxy.requests().empty(); }));
  const auto begin = std::chrono::steady_clock::now();
  store.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  EXPECT_FALSE(answered);
}

} // namespace
} // namespace parcae

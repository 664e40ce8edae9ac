#include "gpu/executor/memory_settings.hpp"
#include "gpu/keeper/keeper.hpp"
#include "gpu/keeper/shard_store.hpp"
#include "gpu/keeper/snapshot_admission.hpp"
#include "protocols/model/model_description.hpp"
#include "tests/gpu/training/executor_reports.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/resident_memory.hpp"

#include <gtest/gtest.h>

#include <mutex>

using namespace parcae;
using namespace parcae::rig;

namespace {

version at(std::uint64_t steps, std::uint64_t by) {
  return {steps, {by}};
}

shard_bytes shard_of(std::uint32_t layer, version v, std::size_t bytes = 100) {
  return {layer, v, {random_bytes(bytes, layer), random_bytes(bytes, layer + 1), random_bytes(bytes, v.steps)}};
}

commit_result result_of(version v) {
  return {v.steps - 1, 1.0, 2.0, 1.0, 0.1, false};
}

bool add(shard_store& store, std::uint32_t layer, version v) {
  return store.add(std::make_shared<const shard_bytes>(shard_of(layer, v)), result_of(v));
}

constexpr std::uint64_t runs = UINT64_MAX;

/// Participants 0 (a worker, played by the test) and 1 (the keeper).
struct keeper_fixture : ::testing::Test {
  keeper_fixture() : c(2) {
    c.plan.target.width = c.plan.target.depth = 1;
    c.plan.moves = {{0, 1, 0}, {2, 1, 0}};
    executor_options options;
    options.self = c.slot(1);
    options.report_to = [this](report x) { said(std::move(x)); };
    options.on_fault_point = [this](const fault_point& x) {
      if (on_fault_point)
        on_fault_point(x);
    };
    keeper = make_keeper(std::move(options), *c.ports[1]);
  }

  /// Sends a snapshot of layers 0, 1, 2 and waits until the keeper says that it has it.
  inventory deliver(version v) {
    if (!stream) {
      keeper->submit(guard{c.plan.job, {{5}}, {1}, job});
      stream = c.ports[0]->open_snapshot_stream(c.plan.job, c.plan.target.participants[1], permit_of({{5}}, c.slot(0)));
    }
    auto x = snapshot_at(v);
    sent.assign(x->shards.begin(), x->shards.end());
    stream->send(std::move(x));
    for (;;) {
      auto held = said.next<kept>().held;
      if (std::count_if(held.begin(), held.end(), [&](const layer_version& l) { return l.at == v; }) == 3)
        return held;
    }
  }

  /// Until it is connected to the generation, and has a snapshot to send to it.
  std::unique_ptr<communicator> prepare_with_a_snapshot() {
    deliver(at(10, 1));
    keeper->submit(c.plan);
    auto comm = c.connect_state(0);
    said.next<prepared>();
    return comm;
  }

  /// It arrives, or not.
  void receive(communicator& comm, std::uint32_t layer, std::uint32_t part) const {
    std::vector<std::byte> to(bytes(layer));
    comm.wait(comm.receive(1, {channel::shard, 10, layer * 8 + part}, to), patience);
  }

  std::shared_ptr<snapshot> snapshot_at(version v) const {
    auto x = std::make_shared<snapshot>();
    x->job = c.plan.job;
    x->result = result_of(v);
    for (std::uint32_t layer = 0; layer < 3; ++layer)
      x->shards.push_back(to_send(std::make_shared<const shard_bytes>(shard_of(layer, v, bytes(layer)))));
    return x;
  }

  /// Of one part of a layer.
  std::size_t bytes(std::uint32_t layer) const {
    return describe(job.model).layers.at(layer).parameters() * sizeof(float);
  }

  job_specification job = [] {
    job_specification x;
    x.model = {.kind = "mlp", .layers = 1, .width = 5, .vocabulary = 5};
    x.steps = 1000;
    return x;
  }();
  cluster c;
  executor_reports said;
  std::function<void(const fault_point&)> on_fault_point;
  std::unique_ptr<executor> keeper;
  std::unique_ptr<snapshot_stream> stream;
  std::vector<std::weak_ptr<const snapshot_shard>> sent; ///< of the newest snapshot
};

} // namespace

// given: version, chain / expected: whether it is void
TEST(shard_store, what_is_void) {
  const std::vector<chain_link> chain{{{2}, 0, 10}, {{4}, 10, 15}, {{5}, 15, runs}};
  const std::pair<version, bool> table[] = {
      {at(0, 0), false},                                         // where all starts
      {at(1, 2), false},  {at(10, 2), false}, {at(11, 2), true}, // beyond what was committed
      {at(5, 3), true},                                          // a generation that committed nothing
      {at(10, 4), true},                                         // its base belongs to another generation
      {at(11, 4), false}, {at(15, 4), false}, {at(16, 4), true}, {at(999, 5), false}, // still running
      {at(20, 6), false},                                                             // newer than what the chain knows
  };
  for (auto& [v, expected] : table)
    EXPECT_EQ(is_void(v, chain), expected) << to_string(v);
  EXPECT_FALSE(is_void(at(3, 1), {}));
}

TEST(shard_store, keeps_three_versions_and_always_what_was_confirmed) {
  shard_store store;
  for (std::uint64_t steps : {10, 20, 30, 40})
    EXPECT_TRUE(add(store, 0, at(steps, 1)));
  EXPECT_EQ(store.held(), (inventory{{0, at(20, 1)}, {0, at(30, 1)}, {0, at(40, 1)}}));
  EXPECT_FALSE(add(store, 0, at(40, 1))) << "again";

  store.confirm(at(30, 1), at(30, 1), {{{1}, 0, runs}});
  EXPECT_EQ(store.held(), (inventory{{0, at(30, 1)}, {0, at(40, 1)}}));
  EXPECT_FALSE(add(store, 0, at(29, 1))) << "older than the confirmed";
  add(store, 0, at(50, 1));
  add(store, 0, at(60, 1));
  EXPECT_EQ(store.held(), (inventory{{0, at(30, 1)}, {0, at(50, 1)}, {0, at(60, 1)}}));
  ASSERT_EQ(store.results().size(), 3u);
  EXPECT_EQ(store.results()[0], result_of(at(30, 1)));

  store.confirm(at(40, 1), at(30, 1), {{{1}, 0, runs}}); // whole in other keepers, one of which sends it
  add(store, 0, at(40, 1));
  EXPECT_EQ(store.held(), (inventory{{0, at(30, 1)}, {0, at(40, 1)}, {0, at(60, 1)}}));
  store.confirm(at(40, 1), at(40, 1), {{{1}, 0, runs}});
  EXPECT_EQ(store.held(), (inventory{{0, at(40, 1)}, {0, at(60, 1)}}));
}

// given: as many newer versions as there is room for; the job goes back to a checkpoint / expected: what is read of
// that stays
TEST(shard_store, what_is_read_of_a_checkpoint_stays) {
  shard_store store;
  for (std::uint64_t steps : {20, 30, 40})
    add(store, 0, at(steps, 1));
  store.go_back(at(10, 1));
  EXPECT_TRUE(add(store, 0, at(10, 1)));
  EXPECT_EQ(store.held(), (inventory{{0, at(10, 1)}, {0, at(30, 1)}, {0, at(40, 1)}}));
}

// given: an aborted generation whose last snapshot is outside the chain / expected: dropped, and not taken when it is
// late
TEST(shard_store, void_versions_go) {
  shard_store store;
  add(store, 0, at(10, 1));
  add(store, 1, at(10, 1));
  add(store, 0, at(20, 1));
  store.confirm(at(10, 1), at(10, 1), {{{1}, 0, 19}, {{2}, 19, runs}});
  EXPECT_EQ(store.held(), (inventory{{0, at(10, 1)}, {1, at(10, 1)}}));
  EXPECT_FALSE(add(store, 1, at(20, 1)));
  EXPECT_TRUE(add(store, 0, at(20, 2)));
  EXPECT_EQ(store.layers_at(at(10, 1)), 2u);
  EXPECT_EQ(store.layers_at(at(20, 2)), 1u);
  add(store, 1, at(20, 2));
  store.confirm(at(20, 2), at(20, 2), {{{1}, 0, 19}, {{2}, 19, runs}});
  EXPECT_EQ(store.held(), (inventory{{0, at(20, 2)}, {1, at(20, 2)}}));
  EXPECT_EQ(store.results().size(), 1u);
}

TEST(shard_store, digests_are_of_the_parameters) {
  shard_store store;
  std::string text = "abc";
  shard_bytes x{4, at(1, 1), {{}, random_bytes(9, 1)}};
  for (auto c : text)
    x.parts[0].push_back(static_cast<std::byte>(c));
  store.add(std::make_shared<const shard_bytes>(x), result_of(x.at));
  add(store, 5, at(2, 1));
  auto digests = store.digests(at(1, 1));
  ASSERT_EQ(digests.size(), 1u);
  EXPECT_EQ(digests[0].layer, 4u);
  EXPECT_EQ(digests[0].sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"); // FIPS 180
}

TEST_F(keeper_fixture, keeps_what_streams_in_and_says_so) {
  EXPECT_EQ(deliver(at(10, 1)).size(), 3u);
  EXPECT_EQ(deliver(at(20, 1)).size(), 6u);
  keeper->submit(confirm{c.plan.job, at(20, 1), at(20, 1), {{{1}, 0, runs}}, true});
  auto answer = said.next<kept>();
  EXPECT_EQ(answer.held, (inventory{{0, at(20, 1)}, {1, at(20, 1)}, {2, at(20, 1)}}));
  ASSERT_EQ(answer.results.size(), 1u);
  EXPECT_EQ(answer.results[0], result_of(at(20, 1)));
  ASSERT_EQ(answer.digests.size(), 3u);
  EXPECT_EQ(answer.digests[2].layer, 2u);
  EXPECT_EQ(answer.digests[0].sha256.size(), 64u);

  keeper->submit(forget{c.plan.job});
  keeper->submit(confirm{c.plan.job, at(20, 1), at(20, 1), {}});
  EXPECT_TRUE(said.next<kept>().held.empty());
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) // whose allocators keep what is freed
// given: a job of 60 MiB or more, in shards that a node's process keeps memory for / expected: it goes back to the
// system once the job is over
TEST_F(keeper_fixture, memory_of_a_forgotten_job_goes_back) {
  keep_memory_for_tensors();
  job.model.width = 2400;
  const auto before = resident_kib();
  deliver(at(10, 1));
  stream.reset();
  // What the sender has of them is of this process, too, and freed on its data port's thread.
  ASSERT_TRUE(eventually([&] { return std::ranges::all_of(sent, [](const auto& x) { return x.expired(); }); }));
  const auto taken = resident_kib() - before;
  ASSERT_GE(taken, 60 << 10);
  keeper->submit(forget{c.plan.job});
  EXPECT_TRUE(eventually([&] { return resident_kib() - before < taken / 4; })) << resident_kib() - before;
}
#endif

TEST_F(keeper_fixture, sends_shards_to_a_generation) {
  deliver(at(10, 1));
  std::vector<fault_point> points;
  std::mutex mutex;
  on_fault_point = [&](const fault_point& x) {
    std::lock_guard lock(mutex);
    points.push_back(x);
  };
  keeper->submit(c.plan);
  auto comm = c.connect_state(0);
  EXPECT_EQ(said.next<prepared>().checksum, checksum_of(c.plan));
  keeper->submit(c.plan); // repeated
  EXPECT_EQ(said.next<prepared>().next, c.plan.next);
  keeper->submit(activate{c.plan.next, at(10, 1)});
  for (const auto& [layer, i] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
           {0, 0}, {2, 0}, {0, 1}, {0, 2}, {2, 1}, {2, 2}}) { // moments behind all parameters
    std::vector<std::byte> part(bytes(layer));
    comm->wait(comm->receive(1, {channel::shard, 10, layer * 8 + i}, part), patience);
    EXPECT_TRUE(part == shard_of(layer, at(10, 1), bytes(layer)).parts[i]);
  }
  keeper->submit(abort_generation{c.plan.next});
  auto end = said.next<aborted>();
  EXPECT_EQ(end.current, c.plan.next);
  EXPECT_EQ(end.held.size(), 3u);
  std::lock_guard lock(mutex);
  ASSERT_EQ(points.size(), 6u);
  for (std::uint32_t i = 0; i < 6; ++i) {
    EXPECT_STREQ(points[i].phase, i < 3 ? "transfer_send" : "late_send");
    EXPECT_EQ(points[i].index, i % 3);
  }
}

TEST_F(keeper_fixture, refuses_what_it_does_not_hold) {
  auto comm = prepare_with_a_snapshot();
  keeper->submit(activate{c.plan.next, at(11, 1)});
  auto answer = said.next<failed>();
  EXPECT_EQ(answer.kind, failure::refused);
  EXPECT_EQ(answer.what, "layer 0 is not held at 11@1");
}

// given: versions that the conductor never said to be there, and layers of other sizes / expected: not taken until it
// does
TEST_F(keeper_fixture, takes_what_the_conductor_has_named) {
  snapshot_admission admission(job, {3});
  const std::vector<std::uint64_t> right(3, bytes(0));
  EXPECT_EQ(admission.problem_of(0, at(10, 3), right), "");
  EXPECT_EQ(admission.problem_of(0, at(1000, 1), right), "");
  EXPECT_EQ(admission.problem_of(0, at(10, 4), right), "version 10@4 is of a generation not heard of yet");
  EXPECT_EQ(admission.problem_of(0, at(1001, 3), right), "the job has no version 1001@3");
  EXPECT_EQ(admission.problem_of(0, at(0, 0), right), "the job has no version 0@0");
  for (const auto& wrong : {std::vector<std::uint64_t>{},
                            {bytes(0)},
                            {bytes(0), bytes(0), bytes(0) + 4},
                            {bytes(0), bytes(0), bytes(0), 4}})
    EXPECT_EQ(admission.problem_of(0, at(10, 3), wrong), "layer 0 is not one of the model, or of another size");
  EXPECT_NE(admission.problem_of(3, at(10, 3), right), "");

  deliver(at(10, 1));
  stream->send(snapshot_at(at(11, 2)));
  EXPECT_FALSE(stream->wait_until_idle(100ms));
  keeper->submit(guard{c.plan.job, {{5}}, {2}, job});
  EXPECT_TRUE(stream->wait_until_idle(patience)) << "it stayed with its sender";
  EXPECT_EQ(deliver(at(12, 2)).size(), 9u);
  stream->send(snapshot_at(at(13, 3)));
  EXPECT_FALSE(stream->wait_until_idle(100ms));
  keeper->submit(confirm{c.plan.job, at(12, 2), at(12, 2), {{{1}, 0, 10}, {{2}, 10, 12}, {{3}, 12, runs}}});
  EXPECT_TRUE(stream->wait_until_idle(patience)) << "the chain names generations too";
}

// given: PREPARE of a generation whose other participant never comes / expected: ABORT and snapshots are served
// meanwhile; a newer PREPARE supersedes; an older one is ignored
TEST_F(keeper_fixture, is_not_blocked_by_connecting) {
  keeper->submit(c.plan);
  deliver(at(10, 1));
  keeper->submit(abort_generation{c.plan.next});
  EXPECT_EQ(said.next<aborted>().current, c.plan.next);
  auto older = c.plan;
  c.plan.next = {8};
  keeper->submit(c.plan);
  c.plan.next = {9};
  keeper->submit(c.plan);
  keeper->submit(older);
  auto comm = c.connect_state(0);
  EXPECT_EQ(said.next<prepared>().next, generation{9});
  keeper->submit(abort_generation{{12}}); // never heard of: answered all the same
  auto answer = said.next<aborted>();
  EXPECT_EQ(answer.current, generation{12});
  EXPECT_EQ(answer.held.size(), 3u);
}

// given: a destination that leaves in the middle of a shard / expected: communication failed; the keeper keeps all
TEST_F(keeper_fixture, reports_a_lost_destination) {
  job.model.vocabulary = 1'000'000;
  auto comm = prepare_with_a_snapshot();
  keeper->submit(activate{c.plan.next, at(10, 1)});
  receive(*comm, 0, 0);
  comm->abort();
  auto answer = said.next<failed>();
  EXPECT_EQ(answer.current, c.plan.next);
  EXPECT_EQ(answer.kind, failure::communication);
  EXPECT_EQ(answer.held.size(), 3u);
  keeper->submit(abort_generation{c.plan.next});
  EXPECT_EQ(said.next<aborted>().held.size(), 3u);
}

TEST_F(keeper_fixture, reports_what_was_thrown) {
  auto comm = prepare_with_a_snapshot();
  on_fault_point = [&](const fault_point& x) {
    if (x.index == 1)
      throw std::runtime_error("stumbled");
  };
  keeper->submit(activate{c.plan.next, at(10, 1)});
  auto answer = said.next<failed>();
  EXPECT_EQ(answer.kind, failure::computation);
  EXPECT_EQ(answer.what, "stumbled");
}

// given: a keeper killed while a shard arrives, or between two that it sends / expected: it says no more, and its
// connections close
TEST_F(keeper_fixture, is_killed_during_a_snapshot) {
  auto comm = prepare_with_a_snapshot();
  on_fault_point = [&](const fault_point& x) {
    if (std::string(x.phase) == "snapshot" && x.index == 1)
      throw killed{};
  };
  stream->send(snapshot_at(at(20, 1)));
  EXPECT_THROW(receive(*comm, 0, 0), communication_error);
}

TEST_F(keeper_fixture, is_killed_between_two_shards_that_it_sends) {
  auto comm = prepare_with_a_snapshot();
  on_fault_point = [&](const fault_point& x) {
    if (x.index == 1)
      throw killed{};
  };
  keeper->submit(activate{c.plan.next, at(10, 1)});
  receive(*comm, 0, 0);
  EXPECT_THROW(receive(*comm, 2, 0), communication_error);
}

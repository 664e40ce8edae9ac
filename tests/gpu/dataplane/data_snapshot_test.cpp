#include "gpu/dataplane/frames.hpp"
#include "tests/gpu/dataplane/data_plane_fixture.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

using namespace parcae;
using namespace parcae::rig;

namespace {

std::shared_ptr<const snapshot> snapshot_of(std::uint64_t steps, std::uint32_t layers, std::size_t bytes) {
  auto result = std::make_shared<snapshot>();
  result->job = {7};
  result->result = {steps - 1, 1.5, 2.5, 0.5, 1e-3, steps % 2 == 0};
  for (std::uint32_t layer = 0; layer < layers; ++layer)
    result->shards.push_back(to_send(std::make_shared<const shard_bytes>(
        shard_bytes{layer, {steps, {2}}, {random_bytes(bytes, layer), random_bytes(bytes, layer + 1), {}}})));
  return result;
}

/// What came through one gate.
struct collector {
  void open(data_port& port, std::uint64_t key, snapshot_check check = {}) {
    number = port.accept_snapshots({7}, secret_key{{key}}, std::move(check),
                                   [this](const commit_result& result, shard_bytes shard) {
                                     std::lock_guard lock(mutex);
                                     results.push_back(result);
                                     shards.push_back(std::move(shard));
                                   });
  }

  std::uint64_t number = 0; ///< of the gate

  std::size_t count() {
    std::lock_guard lock(mutex);
    return shards.size();
  }

  std::mutex mutex;
  std::vector<commit_result> results;
  std::vector<shard_bytes> shards;
};

/// Of who sends, for gates of key 5.
const snapshot_permit permit = permit_of({{5}}, {"sender", {3}, 1});

participant keeper_at(std::uint16_t port) {
  return {{"keeper", {1}, 0}, "127.0.0.1", port};
}

} // namespace

TEST(data_snapshot, arrives_whole_and_is_acknowledged) {
  collector got;
  auto sender = make_data_port("127.0.0.1"), keeper = make_data_port("127.0.0.1");
  got.open(*keeper, 5);
  auto stream = sender->open_snapshot_stream({7}, keeper_at(keeper->port()), permit);
  EXPECT_TRUE(stream->wait_until_idle(0ms));
  for (std::uint64_t steps : {10, 20, 30}) {
    auto x = snapshot_of(steps, 3, 3'000'000);
    stream->send(x);
    ASSERT_TRUE(stream->wait_until_idle(patience));
    ASSERT_EQ(got.count(), steps / 10 * 3);
    for (std::size_t i = 0; i < 3; ++i) {
      auto& shard = got.shards[got.shards.size() - 3 + i];
      EXPECT_EQ(shard.layer, x->shards[i]->layer);
      EXPECT_EQ(shard.at, x->shards[i]->at);
      EXPECT_TRUE(std::ranges::equal(shard.parts, x->shards[i]->parts,
                                     [](const auto& a, const auto& b) { return std::ranges::equal(a, b); }));
      EXPECT_EQ(got.results.back(), x->result);
    }
  }
  keeper->end_snapshots(got.number);
}

// given: a keeper that does not expect the job yet / expected: tried again until it does
TEST(data_snapshot, waits_until_it_is_expected) {
  collector got;
  auto sender = make_data_port("127.0.0.1"), keeper = make_data_port("127.0.0.1");
  auto stream = sender->open_snapshot_stream({7}, keeper_at(keeper->port()), permit);
  stream->send(snapshot_of(1, 2, 1000));
  got.open(*keeper, 6); // and with the right key
  EXPECT_FALSE(stream->wait_until_idle(0ms));
  got.open(*keeper, 5);
  EXPECT_TRUE(stream->wait_until_idle(patience));
  EXPECT_EQ(got.count(), 2u);
  keeper.reset();
}

// given: a keeper that goes in the middle of a snapshot and comes again / expected: the snapshot is sent again
TEST(data_snapshot, is_sent_again_after_a_break) {
  collector first, second;
  auto sender = make_data_port("127.0.0.1"), keeper = make_data_port("127.0.0.1");
  auto number = keeper->port();
  first.open(*keeper, 5);
  auto stream = sender->open_snapshot_stream({7}, keeper_at(number), permit);
  stream->send(snapshot_of(1, 50, 1'000'000));
  ASSERT_TRUE(eventually([&] { return first.count() > 2; }));
  keeper.reset();
  EXPECT_FALSE(stream->wait_until_idle(0ms));
  keeper = make_data_port("127.0.0.1", number);
  second.open(*keeper, 5);
  ASSERT_TRUE(stream->wait_until_idle(patience));
  EXPECT_EQ(second.count(), 50u);
  keeper.reset();
}

// given: key of the gate, life and index of the sender, whose permit is shown / expected: taken only if all agree
TEST(data_snapshot, a_token_is_of_one_sender) {
  auto sender = make_data_port("127.0.0.1"), keeper = make_data_port("127.0.0.1");
  collector got;
  got.open(*keeper, 5);
  auto mine = permit, of_another_life = permit, of_another_slot = permit, of_another_name = permit,
       of_another_key = permit_of({{6}}, {"sender", {3}, 1}), guessed = permit;
  of_another_life.of.life.value ^= 1;
  of_another_slot.of.index ^= 1;
  of_another_name.of.instance += "x";
  guessed.token.low ^= 1;
  for (const auto& wrong : {of_another_life, of_another_slot, of_another_name, of_another_key, guessed}) {
    auto stream = sender->open_snapshot_stream({7}, keeper_at(keeper->port()), wrong);
    stream->send(snapshot_of(1, 1, 100));
    EXPECT_FALSE(stream->wait_until_idle(100ms));
  }
  EXPECT_EQ(got.count(), 0u);
  auto stream = sender->open_snapshot_stream({7}, keeper_at(keeper->port()), mine);
  stream->send(snapshot_of(1, 1, 100));
  EXPECT_TRUE(stream->wait_until_idle(patience));
}

// given: shards that the check does not want at first / expected: not read, kept by the sender, and tried again less
// and less often until they are wanted
TEST(data_snapshot, what_is_not_taken_is_tried_again) {
  auto sender = make_data_port("127.0.0.1"), keeper = make_data_port("127.0.0.1");
  collector got;
  std::atomic<int> asked = 0;
  got.open(*keeper, 5, [&](std::uint32_t layer, const version& at, const std::vector<std::uint64_t>& sizes) {
    EXPECT_EQ(layer, 0u);
    EXPECT_EQ(at, (version{1, {2}}));
    EXPECT_EQ(sizes, (std::vector<std::uint64_t>{100, 100, 0}));
    return std::string(++asked < 5 ? "too early" : "");
  });
  auto stream = sender->open_snapshot_stream({7}, keeper_at(keeper->port()), permit);
  const auto begin = std::chrono::steady_clock::now();
  stream->send(snapshot_of(1, 1, 100));
  EXPECT_TRUE(stream->wait_until_idle(patience));
  EXPECT_EQ(got.count(), 1u);
  EXPECT_EQ(asked, 5);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 300ms); // 20, 40, 80, 160 ms
}

// given: no keeper / expected: the two newest are kept, and come when there is one
TEST(data_snapshot, keeps_the_two_newest) {
  auto sender = make_data_port("127.0.0.1"), keeper = make_data_port("127.0.0.1");
  auto number = keeper->port();
  keeper.reset();
  auto stream = sender->open_snapshot_stream({7}, keeper_at(number), permit);
  std::weak_ptr<const snapshot> oldest;
  for (std::uint64_t steps : {10, 20, 30}) {
    auto x = snapshot_of(steps, 1, 100);
    if (steps == 10)
      oldest = x;
    stream->send(std::move(x));
  }
  EXPECT_TRUE(oldest.expired());
  collector got;
  keeper = make_data_port("127.0.0.1", number);
  got.open(*keeper, 5);
  ASSERT_TRUE(stream->wait_until_idle(patience));
  ASSERT_EQ(got.count(), 2u);
  EXPECT_EQ(got.shards[0].at.steps, 20u);
  EXPECT_EQ(got.shards[1].at.steps, 30u);
  keeper.reset();
}

// given: an acceptance that was replaced, and ends then / expected: the newer one goes on
TEST(data_snapshot, the_end_of_an_older_acceptance_changes_nothing) {
  collector older, newer;
  auto sender = make_data_port("127.0.0.1"), keeper = make_data_port("127.0.0.1");
  older.open(*keeper, 5);
  newer.open(*keeper, 5);
  keeper->end_snapshots(older.number);
  auto stream = sender->open_snapshot_stream({7}, keeper_at(keeper->port()), permit);
  stream->send(snapshot_of(1, 2, 1000));
  ASSERT_TRUE(stream->wait_until_idle(patience));
  EXPECT_EQ(newer.count(), 2u);
  EXPECT_EQ(older.count(), 0u);
}

// given: acceptance that ended while shards stream in / expected: no call after end_snapshots returned
TEST(data_snapshot, nothing_comes_after_the_end) {
  auto sender = make_data_port("127.0.0.1"), keeper = make_data_port("127.0.0.1");
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> calls = 0;
    auto open = std::make_shared<std::atomic<bool>>(true);
    const auto number =
        keeper->accept_snapshots({7}, secret_key{{5}}, {}, [&calls, open](const commit_result&, const shard_bytes&) {
          EXPECT_TRUE(*open);
          ++calls;
        });
    auto stream = sender->open_snapshot_stream({7}, keeper_at(keeper->port()), permit);
    stream->send(snapshot_of(1, 200, 100'000));
    ASSERT_TRUE(eventually([&] { return calls > 3; }));
    keeper->end_snapshots(number);
    *open = false;
  }
}

// given: a header, one with a size out of bounds / expected: the same, refused
TEST(data_snapshot, frames_are_bounded) {
  snapshot_frame good{1, 2, 3, {4, {5}}, {6, 7}, {}, 8};
  auto bytes = encode(good);
  auto back = decode_snapshot_frame(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->sizes, good.sizes);
  EXPECT_EQ(back->at, good.at);
  good.sizes = {max_part_bytes + 1};
  EXPECT_FALSE(decode_snapshot_frame(encode(good)));
}

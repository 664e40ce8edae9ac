// Data connections between hosts, one of which vanishes without a word, or does not.

#include "tests/gpu/dataplane/data_plane_fixture.hpp"
#include "tests/support/host_network.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>

using namespace parcae;
using namespace parcae::rig;
using ::testing::HasSubstr;

namespace {

constexpr auto max_detection = 3s;

struct data_hosts : ::testing::Test {
  /// Participant i is on host i. False: it is skipped.
  bool begin(std::chrono::milliseconds delay) {
    network = std::make_unique<host_network>(2, delay);
    if (!network->problem().empty())
      return false;
    const auto bundle = authority.fleet("node");
    for (int i = 0; i < 2; ++i) {
      network->enter(i); // a port's thread is where its maker is
      auto& port = ports.emplace_back(make_data_port(host_network::address(i), 0, bundle));
      plan.target.participants.push_back(
          {{"node-" + std::to_string(i), {100}, 0}, host_network::address(i), port->port()});
    }
    network->enter(-1);
    plan.job = {7};
    plan.next = {3};
    plan.token = {1, 2};
    plan.target.width = 2;
    plan.target.depth = 1;
    auto other = std::async(std::launch::async, [&] { return connect(1); });
    ends.push_back(connect(0));
    ends.push_back(other.get());
    return true;
  }

  std::unique_ptr<communicator> connect(std::size_t i) {
    return ports[i]->connect(plan, plan.target.participants[i].slot, patience, never);
  }

  /// How long it took from the cut until this failed, and why.
  std::pair<std::chrono::milliseconds, std::string> failure_of(communicator& end, const ticket& x,
                                                               std::chrono::steady_clock::time_point since) {
    try {
      end.wait(x, patience);
    } catch (const communication_error& e) {
      const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - since);
      std::cout << "after " << took.count() << " ms: " << e.what() << "\n";
      return {took, e.what()};
    }
    return {patience, "it went through"};
  }

  test_authority authority;
  std::unique_ptr<host_network> network;
  std::vector<std::unique_ptr<data_port>> ports;
  std::vector<std::unique_ptr<communicator>> ends; ///< destroyed before their ports
  prepare plan;
  const std::atomic<bool> never = false;
};

struct apart : data_hosts, ::testing::WithParamInterface<int> {};

} // namespace

// given: a host that vanishes while the other waits for it; near, and 10 ms away / expected: told within three seconds
TEST_P(apart, who_waits_is_told) {
  if (!begin(std::chrono::milliseconds(GetParam())))
    GTEST_SKIP() << network->problem();
  std::vector<std::byte> in(10);
  auto waits = ends[0]->receive(1, {channel::activation, 1, 0}, in);
  network->cut(1);
  const auto [took, why] = failure_of(*ends[0], waits, std::chrono::steady_clock::now());
  EXPECT_LT(took, max_detection);
  EXPECT_THAT(why, HasSubstr("does not answer"));
}

// given: a host that vanishes while the other has more to say to it than fits into buffers, and no room there, as
// nobody reads / expected: told within three seconds
TEST_P(apart, who_sends_is_told) {
  if (!begin(std::chrono::milliseconds(GetParam())))
    GTEST_SKIP() << network->problem();
  std::vector<std::byte> out(64 << 20);
  auto sends = ends[1]->send(0, {channel::activation, 1, 0}, out);
  std::this_thread::sleep_for(300ms); // until it is stuck: nothing tells
  network->cut(0);
  const auto [took, why] = failure_of(*ends[1], sends, std::chrono::steady_clock::now());
  EXPECT_LT(took, max_detection);
  EXPECT_THAT(why, HasSubstr("does not answer"));
}

INSTANTIATE_TEST_SUITE_P(data_hosts, apart, ::testing::Values(0, 10),
                         [](const auto& x) { return std::to_string(x.param) + "_ms"; });

// given: a peer that reads nothing for five seconds, and then does / expected: it is taken for what it is, alive
TEST_F(data_hosts, a_host_that_computes_is_not_given_up) {
  if (!begin(0ms))
    GTEST_SKIP() << network->problem();
  const auto out = random_bytes(64 << 20, 3);
  std::vector<std::byte> in(out.size());
  tag what{channel::activation, 1, 0};
  auto sends = ends[1]->send(0, what, out);
  std::this_thread::sleep_for(5s);
  auto receives = ends[0]->receive(1, what, in);
  ends[0]->wait(receives, patience);
  ends[1]->wait(sends, patience);
  EXPECT_TRUE(in == out);
}

// given: a link full of what is on its way, which becomes sixteen times slower / expected: all of it arrives
TEST_F(data_hosts, a_link_becomes_slow) {
  if (!begin(0ms))
    GTEST_SKIP() << network->problem();
  const auto out = random_bytes(16 << 20, 3); // a third of a second at the usual rate
  std::vector<std::byte> in(out.size());
  tag what{channel::activation, 1, 0};
  auto receives = ends[0]->receive(1, what, in);
  auto sends = ends[1]->send(0, what, out);
  std::this_thread::sleep_for(100ms);
  network->set_rate(0, host_network::usual_rate / 16);
  ends[0]->wait(receives, patience);
  ends[1]->wait(sends, patience);
  EXPECT_TRUE(in == out);
}

// given: snapshots on their way to a keeper, whose link is cut for four seconds / expected: all the same acknowledged
TEST_F(data_hosts, a_stream_begins_anew) {
  if (!begin(0ms))
    GTEST_SKIP() << network->problem();
  ports[0]->accept_snapshots({7}, secret_key{{5}}, {}, [](const commit_result&, const shard_bytes&) {});
  auto stream = ports[1]->open_snapshot_stream({7}, plan.target.participants[0], permit_of({{5}}, {"node-1", {3}, 0}));
  auto x = std::make_shared<snapshot>();
  x->job = {7};
  x->shards.push_back(
      to_send(std::make_shared<const shard_bytes>(shard_bytes{0, {1, {1}}, {random_bytes(200 << 20, 1), {}, {}}})));
  stream->send(x);
  EXPECT_TRUE(eventually([&] { return stream->busy(); }));
  network->cut(1);
  EXPECT_TRUE(eventually([&] { return !stream->busy(); }, 4s));
  network->heal(1);
  EXPECT_TRUE(stream->wait_until_idle(30s));
}

namespace {

struct shared_link : data_hosts {
  bool begin_with_stream() {
    if (!begin(0ms))
      return false;
    ports[0]->accept_snapshots({7}, secret_key{{5}}, {}, [](const commit_result&, const shard_bytes&) {});
    stream = ports[1]->open_snapshot_stream({7}, plan.target.participants[0], permit_of({{5}}, {"node-1", {3}, 0}));
    return true;
  }

  void send(std::size_t bytes, double share) {
    auto x = std::make_shared<snapshot>();
    x->job = {7};
    x->share_of_link = share;
    x->shards.push_back(
        to_send(std::make_shared<const shard_bytes>(shard_bytes{0, {++steps, {1}}, {random_bytes(bytes, 1), {}, {}}})));
    began = std::chrono::steady_clock::now();
    stream->send(x);
  }

  /// Until the keeper has all.
  double seconds() {
    EXPECT_TRUE(stream->wait_until_idle(60s));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }

  /// Of a generation's message beside it.
  double seconds_of_training(std::size_t bytes) {
    const auto out = random_bytes(bytes, 3);
    std::vector<std::byte> in(out.size());
    const tag what{channel::activation, ++steps, 0};
    const auto since = std::chrono::steady_clock::now();
    auto receives = ends[0]->receive(1, what, in);
    auto sends = ends[1]->send(0, what, out);
    ends[0]->wait(receives, patience);
    ends[1]->wait(sends, patience);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
  }

  std::unique_ptr<snapshot_stream> stream; ///< destroyed before its port
  std::uint64_t steps = 0;
  std::chrono::steady_clock::time_point began;
};

} // namespace

// given: a link whose rate training has shown; then snapshots that may take shares of it, one of which is overtaken by
// what is waited for / expected: they take their share, and no less; what is waited for goes, and all before it, at
// once
TEST_F(shared_link, snapshots_take_their_share) {
  if (!begin_with_stream())
    GTEST_SKIP() << network->problem();
  constexpr std::size_t bytes = 40'000'000;
  const auto whole = seconds_of_training(bytes);
  for (const double share : {0.5, 0.25}) {
    send(bytes, share);
    const auto took = seconds();
    EXPECT_GT(took, 0.85 * whole / share);
    EXPECT_LT(took, 1.5 * whole / share);
  }
  send(bytes, 0);
  EXPECT_LT(seconds(), 1.5 * whole);
  send(bytes, 0.05);
  std::this_thread::sleep_for(200ms);
  send(bytes, 0);
  EXPECT_LT(seconds(), 5 * whole); // of 40
}

// given: a snapshot on its way that may take half of the link, and training that takes all it gets / expected: training
// gets nearly all, and the snapshot something
TEST_F(shared_link, training_goes_first) {
  if (!begin_with_stream())
    GTEST_SKIP() << network->problem();
  constexpr std::size_t bytes = 40'000'000;
  const auto alone = seconds_of_training(bytes);
  send(bytes, 0.5); // of what training has shown
  std::this_thread::sleep_for(200ms);
  const auto beside = seconds_of_training(bytes);
  EXPECT_TRUE(stream->busy());
  EXPECT_LT(beside, 1.25 * alone); // of 2, if both were as strong, and 1.5, if it got what snapshots may not take
  EXPECT_LT(seconds(), 5 * alone);
  send(bytes, 0.5);
  EXPECT_GT(seconds(), 1.7 * alone) << "it takes more than its share";
}

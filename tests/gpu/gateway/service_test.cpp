// A gateway and workers over real sockets: streams are those of each request alone, whatever becomes of workers,
// generations and connections; each token comes once; nothing is left over.

#include "gpu/serving/sampler.hpp"
#include "tests/gpu/gateway/service_rig.hpp"
#include "tests/support/served_pipeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <tuple>

namespace parcae::rig {
namespace {

struct asked {
  request_wish wish;
  std::shared_ptr<stream> came = std::make_shared<stream>();
  std::uint64_t id = 0;
};

/// Requests of drawn lengths, some of which take the likeliest token.
std::vector<asked> drawn_requests(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 draw(seed);
  std::vector<asked> result(count);
  for (auto& x : result) {
    x.wish.prompt.resize(1 + draw() % 40);
    for (auto& token : x.wish.prompt)
      token = static_cast<std::uint32_t>(draw() % 64);
    x.wish.max_tokens = static_cast<std::uint32_t>(1 + draw() % 40);
    x.wish.how = {draw(), draw() % 4 == 0 ? 0.0 : 1.0, draw() % 2 == 0 ? 1.0 : 0.9,
                  static_cast<std::uint32_t>(draw() % 9)};
  }
  return result;
}

void begin(gateway& at, std::vector<asked>& all) {
  for (auto& x : all) {
    x.id = at.begin(x.wish, x.came);
    EXPECT_NE(x.id, 0u);
  }
}

/// One request alone, without a gateway, a token at a time.
class alone {
public:
  alone() : proof_(prove_rows(job_.model)), pipeline_(job_.model, proof_, 1, 1 << 20, job_.seed) {}

  std::vector<std::uint32_t> tokens_of(const request_wish& x) {
    auto known = x.prompt;
    EXPECT_TRUE(pipeline_.reserve(1, static_cast<std::uint32_t>(known.size() + x.max_tokens)));
    std::vector<std::uint32_t> result;
    for (std::uint32_t at = 0; result.size() < x.max_tokens; ++at) {
      const std::vector<request_row> rows{{1, at, known[at]}};
      const std::vector<std::uint32_t> wanted(at + 1 == known.size() ? 1 : 0, 0);
      const auto logits = pipeline_.run(rows, proof_.reference, wanted);
      if (wanted.empty())
        continue;
      const auto token = token_of({logits.data_ptr<float>(), job_.model.vocabulary}, x.how, known.size());
      known.push_back(token);
      result.push_back(token);
    }
    pipeline_.release(1);
    return result;
  }

private:
  const job_specification job_ = served_job();
  const row_proof proof_;
  served_pipeline pipeline_;
};

void expect_right(std::vector<asked>& all) {
  static alone oracle;
  for (auto& x : all) {
    EXPECT_EQ(x.came->wait(), request_end::length);
    EXPECT_EQ(x.came->tokens(), oracle.tokens_of(x.wish));
  }
}

/// No cache has anything.
void expect_nothing_left(service_rig& x) {
  x.forget_reports();
  for (int tries = 0;; ++tries) {
    const auto all = x.all_served();
    const auto held = [](const served& said) { return said.free_blocks < said.cache_blocks; };
    if (std::ranges::none_of(all, held))
      break;
    ASSERT_LT(tries, 5) << std::ranges::count_if(all, held) << " of " << all.size() << " hold something";
  }
  EXPECT_EQ(x.front().requests(), 0u);
}

void wait_for_tokens(std::vector<asked>& all, std::size_t count) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::chrono::steady_clock::now() < end) {
    std::size_t n = 0;
    for (auto& x : all)
      n += x.came->tokens().size();
    if (n >= count)
      return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ADD_FAILURE() << "no " << count << " tokens came";
}

class shapes_of_service : public ::testing::TestWithParam<std::pair<std::uint32_t, std::uint32_t>> {};

// given: 20 requests at once, more than there is place for / expected: each is as if it were alone
TEST_P(shapes_of_service, answer_as_one_alone) {
  const auto [width, depth] = GetParam();
  service_rig x;
  for (std::uint32_t i = 0; i < width * depth; ++i)
    x.add_worker();
  x.begin(width, depth);
  auto all = drawn_requests(20, width * 10 + depth);
  begin(x.front(), all);
  expect_right(all);
  expect_nothing_left(x);
}

INSTANTIATE_TEST_SUITE_P(service, shapes_of_service,
                         ::testing::Values(std::pair{1u, 1u}, std::pair{2u, 1u}, std::pair{1u, 2u}, std::pair{2u, 2u}));

// given: 20 requests / expected: a rank says of each pass how large it was, as proven, and what it took; the gateway
// says how long requests were
TEST(service, says_what_plans_are_made_by) {
  service_rig x;
  x.add_worker();
  x.begin(1, 1);
  auto all = drawn_requests(20, 3);
  begin(x.front(), all);
  std::uint64_t rows = 0, asked_for = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> lengths;
  for (auto& y : all) {
    EXPECT_EQ(y.came->wait(), request_end::length);
    asked_for += y.wish.prompt.size() + y.wish.max_tokens - 1; // with the last one nothing is computed
    lengths.emplace_back(y.wish.prompt.size(), y.wish.max_tokens);
  }
  while (rows < asked_for) {
    const auto said = x.all_served().front();
    rows += said.rows;
    std::uint64_t passes = 0, room = 0;
    for (const auto& y : said.by_size) {
      EXPECT_TRUE(std::ranges::binary_search(x.sizes(), y.size)) << y.size;
      EXPECT_GT(y.ms, 0);
      passes += y.passes;
      room += y.passes * y.size;
    }
    EXPECT_EQ(passes, said.passes);
    EXPECT_GE(room, said.rows);
  }
  EXPECT_EQ(rows, asked_for);
  EXPECT_TRUE(eventually([&] { return x.last_routed().answered.size() == all.size(); }));
  std::vector<std::pair<std::uint32_t, std::uint32_t>> told;
  for (const auto& y : x.last_routed().answered)
    told.emplace_back(y.prompt, y.tokens);
  std::ranges::sort(told);
  std::ranges::sort(lengths);
  EXPECT_EQ(told, lengths);
  EXPECT_GT(x.last_routed().requests.arrivals_per_s, 0);
}

// given: one generation after the other, of other shapes, each stopped while requests run / expected: all streams are
// right, and where a stage keeps its layers nothing is computed again
TEST(service, goes_on_after_each_stop) {
  service_rig x;
  for (int i = 0; i < 4; ++i)
    x.add_worker();
  auto all = drawn_requests(24, 1);
  std::size_t tokens = 0;
  for (const auto& [width, depth] :
       std::vector<std::pair<std::uint32_t, std::uint32_t>>{{1, 1}, {1, 1}, {2, 1}, {1, 2}, {2, 2}, {1, 4}, {4, 1}}) {
    x.begin(width, depth);
    if (tokens == 0)
      begin(x.front(), all);
    wait_for_tokens(all, tokens += 40);
    x.stop();
  }
  x.begin(2, 2);
  expect_right(all);
  expect_nothing_left(x);
}

void expect_recomputed(service_rig& x, std::uint64_t positions) {
  std::this_thread::sleep_for(std::chrono::milliseconds(1'200)); // it is said each second
  EXPECT_EQ(x.recomputed(), positions);
}

// given: one generation after the other, on other workers, deeper, shallower, narrower, each stopped while requests run
// / expected: caches go to where requests go on: all streams are right, nothing is computed twice, nothing is left
TEST(service, moves_caches_at_each_stop) {
  service_rig x;
  for (int i = 0; i < 4; ++i)
    x.add_worker();
  auto all = drawn_requests(16, 8);
  x.begin(1, 1);
  begin(x.front(), all);
  std::size_t tokens = 0;
  using order = std::vector<std::size_t>;
  for (const auto& [width, depth, ranks] :
       std::vector<std::tuple<std::uint32_t, std::uint32_t, order>>{{1, 1, {3}},
                                                                    {1, 2, {1, 3}},
                                                                    {1, 3, {0, 1, 2}},
                                                                    {1, 1, {2}},
                                                                    {2, 1, {2, 1}},
                                                                    {2, 1, {1, 2}}, // each has the other's
                                                                    {2, 2, {0, 1, 2, 3}},
                                                                    {1, 2, {3, 2}},
                                                                    {1, 1, {0}}}) {
    wait_for_tokens(all, tokens += 25);
    x.stop();
    x.move(width, depth, ranks);
  }
  expect_right(all);
  expect_recomputed(x, 0);
  x.stop();
  x.begin(4, 1); // all of them
  expect_nothing_left(x);
}

// given: who leaves dies while it sends caches, and who they go to / expected: all streams are right; of the first,
// what arrived counts
TEST(service, survives_who_dies_while_caches_move) {
  for (const bool source : {true, false}) {
    service_rig x;
    std::atomic<bool> armed = source;
    x.add_worker([&](const fault_point& at) {
      if (at.phase == std::string("cache_send") && at.index == 8 && armed.exchange(false))
        throw killed();
    });
    for (int i = 0; i < 3; ++i)
      x.add_worker();
    auto all = drawn_requests(8, 9);
    x.begin(1, 1);
    begin(x.front(), all);
    wait_for_tokens(all, 40);
    x.stop();
    x.prepare_move(1, 2, {2, 1});
    x.kill(source ? 0 : 2);
    x.abort();
    x.begin(1, 1); // of the last two, or of the first, as is left
    expect_right(all);
    expect_nothing_left(x);
  }
}

// given: a worker that is killed at a drawn moment, again and again, another one in its place / expected: all streams
// are right
TEST(service, loses_no_token_with_its_workers) {
  std::mt19937_64 draw(3);
  service_rig x;
  for (int i = 0; i < 4; ++i)
    x.add_worker();
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> shapes{{1, 1}, {2, 1}, {1, 2}, {2, 2}, {1, 3}};
  auto all = drawn_requests(24, 2);
  for (int i = 0; i < 10; ++i) {
    const auto [width, depth] = shapes[static_cast<std::size_t>(i) % shapes.size()];
    x.begin(width, depth);
    if (i == 0)
      begin(x.front(), all);
    std::this_thread::sleep_for(std::chrono::milliseconds(draw() % 30));
    x.kill(draw() % (width * depth));
    x.abort();
    x.add_worker();
  }
  x.begin(2, 2);
  expect_right(all);
  expect_nothing_left(x);
}

// given: all workers die, others come later / expected: streams go on
TEST(service, waits_for_workers) {
  service_rig x;
  x.add_worker();
  x.begin(1, 1);
  auto all = drawn_requests(6, 4);
  begin(x.front(), all);
  wait_for_tokens(all, 10);
  x.kill(0);
  x.abort();
  x.add_worker();
  x.begin(1, 1);
  expect_right(all);
}

// given: a queue of four, and no pipeline for a while / expected: when it is full everybody may see it, without asking
// for anything, and who did counts as refused; when there are workers again it is no more full, and all are right
TEST(service, tells_that_its_queue_is_full) {
  auto job = served_job();
  job.serve.queue = 4;
  service_rig x(job);
  x.add_worker();
  x.begin(1, 1);
  EXPECT_FALSE(x.front().turns_away());
  x.stop();
  auto all = drawn_requests(50, 6); // some may be in the pipeline that stops, until that is heard
  std::size_t taken = 0;
  for (; taken < all.size(); ++taken)
    if (all[taken].id = x.front().begin(all[taken].wish, all[taken].came); all[taken].id == 0)
      break;
  ASSERT_GE(taken, job.serve.queue);
  ASSERT_LT(taken, all.size());
  all.resize(taken);
  std::uint64_t refused = 1;
  const auto is_full = [&] {
    const bool result = x.front().turns_away();
    refused += result;
    return result;
  };
  EXPECT_TRUE(is_full());
  x.begin(1, 1);
  expect_right(all);
  EXPECT_TRUE(eventually([&] { return !is_full(); }));
  EXPECT_TRUE(eventually([&] { return x.last_routed().requests.refused == refused; }));
}

// given: a gateway that goes while it serves, and another one / expected: its clients are told; the same requests get
// the same tokens from the next one, by the same generation, which holds nothing of the old ones
TEST(service, outlives_its_gateway) {
  service_rig x;
  for (int i = 0; i < 2; ++i)
    x.add_worker();
  x.begin(1, 2);
  auto all = drawn_requests(8, 5);
  begin(x.front(), all);
  wait_for_tokens(all, 10);
  x.start_gateway();
  for (auto& each : all)
    if (each.came->wait() == request_end::closed)
      each.came = std::make_shared<stream>();
  std::vector<asked> again;
  for (auto& each : all)
    if (!each.came->is_over())
      again.push_back(each);
  ASSERT_FALSE(again.empty());
  while (!x.front().serves())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  begin(x.front(), again);
  expect_right(all);
  expect_nothing_left(x);
}

// given: clients that go while their requests run / expected: others are as ever, nothing is left
TEST(service, forgets_who_goes) {
  service_rig x;
  x.add_worker();
  x.begin(1, 1);
  auto all = drawn_requests(16, 6);
  begin(x.front(), all);
  std::vector<asked> stay;
  for (std::size_t i = 0; i < all.size(); ++i) {
    wait_for_tokens(all, i);
    if (i % 2 == 0)
      x.front().cancel(all[i].id);
    else
      stay.push_back(all[i]);
  }
  expect_right(stay);
  expect_nothing_left(x);
}

// given: a pass that throws in the first stage, or in the last / expected: the rank has failed, and says so; in the
// next generation all streams are right
TEST(service, survives_a_pass_that_throws) {
  for (const std::size_t stage : {0, 1}) {
    std::atomic<int> passes = 0;
    const auto throws = [&](const fault_point& at) {
      if (at.phase == std::string("forward") && ++passes == 5)
        throw std::runtime_error("made to fail");
    };
    service_rig x;
    for (std::size_t i = 0; i < 2; ++i)
      x.add_worker(i == stage ? throws : std::function<void(const fault_point&)>());
    x.begin(1, 2);
    auto all = drawn_requests(8, 7);
    begin(x.front(), all);
    const auto failure = x.failure_of(stage);
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->kind, failure::computation);
    EXPECT_EQ(failure->what, "made to fail");
    x.abort();
    x.begin(1, 2);
    expect_right(all);
    expect_nothing_left(x);
  }
}

} // namespace
} // namespace parcae::rig

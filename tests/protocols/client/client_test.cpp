#include "protocols/client/client.hpp"
#include "protocols/client/manifest.hpp"
#include "protocols/client/pages.hpp"
#include "tests/support/client_samples.hpp"

#include <boost/json.hpp>

#include <gmock/gmock.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace parcae {
namespace {

std::vector<char> recorded(const std::string& name) {
  std::ifstream file(RECORDED "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// given: what a build wrote whose schema said less of groups and names / expected: the same values, in every field
TEST(client, bytes_of_older_builds_are_read) {
  const auto submitted = std::get<submit_request>(decode_request(recorded("submission.bin")));
  EXPECT_EQ(submitted.priority, -5);
  // job_specification has no ==, its bytes have.
  EXPECT_EQ(encode(request{submitted}), encode(request{submit_request{sample_job(), -5}}));
  EXPECT_EQ(std::get<status_reply>(decode_reply(recorded("status.bin"))), sample_status());
  const auto manifest = decode_manifest(recorded("manifest.bin"));
  EXPECT_EQ(manifest.at, sample_manifest().at);
  EXPECT_EQ(manifest.result, sample_manifest().result);
  EXPECT_EQ(encode(manifest), encode(sample_manifest()));
}

template <class T>
std::string fields_of_one(const T& x) {
  return boost::json::serialize(boost::json::value_from(x));
}

template <class T>
void expect_travels(const T& x) {
  EXPECT_EQ(fields_of_one(std::get<T>(decode_request(encode(request{x})))), fields_of_one(x));
}

// given: each kind of request / expected: the same in every field after encoding and decoding
TEST(client, requests_round_trip) {
  auto expected = sample_job();
  expected.min_instances = 6; // older builds did not know it, nor exported models
  expected.model.path = "/models/m";
  expected.model.exported = "{\"version\": 1}";
  expected.model.images = expected.model.masked = true;
  expected.model.weights = "/models/w";
  expected.model.weights_digests = {"one", "two"};
  expected.optimizer.decay_norms_and_biases = false;
  expected.optimizer.rate_factors = "*=2";
  expected.optimizer.schedule_from = 3;
  expected.patience = 3;
  expected.min_delta = 0.25;
  expected.precision = "bfloat16";
  expected.transport = "tcp";
  expected.checkpoint = {"s3://bucket/prefix", "https://minio.example:9000", "eu-central-1"};
  expected.data.source = {{"/one", 2}, {"/two", 3}};
  expected.data.token_bytes = 4;
  expected.data.resize = 36;
  expected.data.augment = "crop";
  expected.data.flip = true;
  expected.data.mean = {0.25, 0.5};
  expected.data.deviation = {0.125, 0.75};
  expected.gradient_sums = "bfloat16";
  expected.keeper_share_of_link = 0.25;
  expected.feed = true;
  expect_travels(submit_request{expected, -5});
  expect_travels(check_request{expected, 6});
  expect_travels(status_request{1, 2, 3, 4, 5, 6, 7, 8, "a", 9});
  expect_travels(preempt_request{{"a", "b"}, 2, 3, 4});
  expect_travels(report_request{"a", "what", {"one", "two"}, 7, true});
  expect_travels(trace_request{4, 5, 6});
  expect_travels(losses_request{7, 8, 9});
  EXPECT_EQ(std::get<cancel_request>(decode_request(encode(request{cancel_request{9}}))).job, 9u);
  EXPECT_EQ(std::get<checkpoint_request>(decode_request(encode(request{checkpoint_request{8}}))).job, 8u);
}

// given: each kind of reply / expected: the same after encoding and decoding
TEST(client, replies_round_trip) {
  auto expected = sample_status();
  expected.jobs[0].data_wait_ms = 12.5; // older builds did not know it
  expected.jobs[0].data_wait_for = "a/0: /data/tokens.bin";
  expected.jobs[0].transport = {"tcp", "NVIDIA H200", "a/0: too late", {true, "a/0: by the host's memory"}};
  expected.jobs[0].links = {{"activations", "tcp", "1 link between machines; a/0: too late"}, {"shards", "tcp", ""}};
  expected.jobs[0].owner = "ann";
  expected.jobs[0].step_times = {{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, "a/0"}, {{}, "b/0"}};
  expected.jobs[0].slowest_slot = "b/0";
  expected.jobs[0].resumed_from = "/state/gpt-1/5@2";
  expected.jobs[0].not_on_disk = "no checkpoint";
  expected.jobs[0].decisions[0].p99_ms = 125.5;
  expected.jobs[0].decisions[0].requests_per_s = 12.5;
  expected.jobs[0].global_batch = 24;
  expected.jobs[0].planning_interval_ms = 60'000;
  expected.warning = "the certificate ends";
  expected.instances[0].pool = "w2a-spot";
  expected.market = sample_market();
  expected.more = true;
  EXPECT_EQ(std::get<status_reply>(decode_reply(encode(reply{expected}))), expected);
  const auto submitted = std::get<submitted_reply>(decode_reply(encode(reply{submitted_reply{5, 7}})));
  EXPECT_EQ(submitted.job, 5u);
  EXPECT_EQ(submitted.manager_life, 7u);
  EXPECT_THAT(std::get<preempted_reply>(decode_reply(encode(reply{preempted_reply{{"a"}}}))).names,
              testing::ElementsAre("a"));
  EXPECT_EQ(std::get<cancelled_reply>(decode_reply(encode(reply{cancelled_reply{6}}))).job, 6u);
  EXPECT_TRUE(std::holds_alternative<reported_reply>(decode_reply(encode(reply{reported_reply{}}))));
  const auto losses = std::get<losses_reply>(decode_reply(encode(reply{losses_reply{3, {'a'}, {{4, 5}, {6, 7}}}})));
  EXPECT_EQ(losses.every, 3u);
  EXPECT_THAT(losses.block, testing::ElementsAre('a'));
  EXPECT_THAT(losses.validation_losses, testing::ElementsAre(loss_point{4, 5}, loss_point{6, 7}));
  const trace_reply traced{1,    2, 3, 4, {"a/0", "b/0"},
                           true, 5, 6, 7, {{{8, {{step_part::optimizer, step_span::no_micro_batch, 9, 10}}, true}, 1}}};
  EXPECT_EQ(std::get<trace_reply>(decode_reply(encode(reply{traced}))), traced);
  const auto expect_told = []<class T>(const T& x) {
    EXPECT_EQ(fields_of_one(std::get<T>(decode_reply(encode(reply{x})))), fields_of_one(x));
  };
  expect_told(error_reply{"unknown_job", "no such job: 4"});
  expect_told(checked_reply{"waits", {"job 1", "job 2"}, {"a: no /x"}, {"b: silent"}});
}

// given: 3,000 instances with all that they may say, lives of one name among them, and 100 jobs of 150 layers /
// expected: pages that fit, each asked for behind the one before, which are all of it once; a job that is too large by
// itself is told without its details
TEST(client, a_large_cluster_is_told_in_pages) {
  status_reply all;
  for (int i = 0; i < 3'000; ++i) {
    instance_status x;
    x.name = std::to_string(10'000 + i / 2) + std::string(90, 'x');
    x.incarnation = {static_cast<std::uint64_t>(1 + i % 2)};
    x.processor = std::string(500, 'p');
    x.warning = std::string(400, 'w');
    x.gpus = {{"cuda:0", 97, 64, "power", 3, 1, 63, "none"}};
    all.instances.push_back(std::move(x));
  }
  for (std::uint64_t id = 1; id <= 100; ++id) {
    job_status x;
    x.id = id;
    x.layer_costs.resize(150);
    all.jobs.push_back(std::move(x));
  }
  all.jobs[41].detailed = true;
  all.jobs[41].losses.resize(100'000);
  all.news = {{1, 2, "warning", "news"}};
  status_request asked{.changes_from = 7};
  const auto decoded = [](const std::vector<char>& page) { return std::get<status_reply>(decode_reply(page)); };
  auto told = decoded(page_of(all, asked));
  int pages = 1;
  for (auto rest = rest_of(asked, told); rest; ++pages) {
    EXPECT_EQ(rest->changes_from, 7u);
    const auto bytes = page_of(all, *rest);
    ASSERT_LE(bytes.size(), client_message_limit_bytes);
    auto page = decoded(bytes);
    rest = rest_of(*rest, page);
    add_page(told, std::move(page));
    ASSERT_LT(pages, 100);
  }
  EXPECT_GT(pages, 5);
  EXPECT_EQ(told.instances, all.instances);
  ASSERT_EQ(told.jobs.size(), all.jobs.size());
  EXPECT_FALSE(told.jobs[41].detailed);
  EXPECT_TRUE(told.jobs[41].losses.empty());
  EXPECT_EQ(told.jobs[40], all.jobs[40]);
  EXPECT_EQ(told.jobs[99], all.jobs[99]);
  EXPECT_EQ(told.news, all.news);
  EXPECT_FALSE(told.more);
  EXPECT_EQ(decoded(page_of(sample_status(), {})), sample_status());
}

// given: nothing, half a word, more than the limit / expected: std::runtime_error
TEST(client, malformed_bytes_are_refused) {
  EXPECT_THROW(decode_request({}), std::runtime_error);
  EXPECT_THROW(decode_request(std::vector<char>(7)), std::runtime_error);
  EXPECT_THROW(decode_request(std::vector<char>(client_message_limit_bytes + 8)), std::runtime_error);
}

} // namespace
} // namespace parcae

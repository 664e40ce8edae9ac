// The exactness contract over jobs unlike the one that other tests use: final parameters at several shapes against 1×1.

#include "tests/gpu/training/short_job.hpp"
#include "tests/support/data_folder.hpp"
#include "tests/support/executor_cluster.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

namespace parcae {
namespace {

/// A job and the shapes it takes in turn, a few steps each, the last one to the end.
struct exactness_case {
  const char* name;
  shapes taken;
  void (*change)(job_specification&);
};

void PrintTo(const exactness_case& x, std::ostream* to) {
  *to << x.name;
}

class exactness : public ::testing::TestWithParam<exactness_case> {};

TEST_P(exactness, shapes_change_no_bit) {
  auto job = small_job();
  job.steps = 12;
  job.model.layers = 3;
  GetParam().change(job);
  ASSERT_EQ(problem_of(job), "");
  EXPECT_EQ(digest_after(job, GetParam().taken), undisturbed_digest(job));
}

/// What is changed stands last, as it takes lines.
exactness_case with(const char* name, shapes taken, void (*change)(job_specification&)) {
  return {name, std::move(taken), change};
}

const exactness_case cases[] = {
    with("mlp_with_dropout", {{2, 2}, {3, 1}, {1, 5}, {2, 1}},
         [](job_specification& job) { job.model = {"mlp", 3, 24, 1, 16, 256, 0.2, false}; }),
    with("sgd_with_momentum", {{1, 2}, {4, 1}, {2, 2}, {1, 1}},
         [](job_specification& job) {
           job.optimizer.kind = "sgd";
           job.optimizer.learning_rate = 0.1;
           job.optimizer.schedule = "linear";
         }),
    with("sgd_without_momentum_or_clipping", {{3, 1}, {2, 2}, {1, 5}},
         [](job_specification& job) {
           job.optimizer.kind = "sgd";
           job.optimizer.momentum = 0;
           job.optimizer.clip_norm = 0;
           job.model.tied_embeddings = false;
         }),
    with("replicas_not_a_power_of_two", {{4, 1}, {5, 1}, {3, 2}, {6, 1}, {1, 3}},
         [](job_specification& job) {
           job.global_batch = 12;
           job.micro_batch = 1;
           job.virtual_replicas = 6;
         }),
    with("three_replicas", {{2, 1}, {3, 2}, {1, 4}},
         [](job_specification& job) {
           job.global_batch = 18;
           job.virtual_replicas = 3;
         }),
    with("one_replica_of_one_micro_batch", {{1, 5}, {1, 2}, {1, 3}},
         [](job_specification& job) {
           job.global_batch = 3;
           job.micro_batch = 3;
           job.virtual_replicas = 1;
         }),
    with("fewer_micro_batches_than_stages", {{2, 3}, {1, 5}, {2, 1}},
         [](job_specification& job) {
           job.global_batch = 4;
           job.virtual_replicas = 2;
         }),
    with("bert_with_dropout", {{2, 2}, {3, 1}, {1, 5}, {2, 1}},
         [](job_specification& job) {
           job.model = {"bert", 3, 24, 2, 24, 257, 0.1, true, 256};
           job.steps = 8;
         }),
    with("resnet", {{2, 2}, {3, 1}, {1, 5}, {4, 1}},
         [](job_specification& job) {
           job.model = {.kind = "resnet", .layers = 8, .width = 4, .image = 16};
           job.data = {.kind = "synthetic", .samples = 100};
           job.steps = 8;
         }),
    with("vgg_with_dropout", {{2, 2}, {3, 1}, {1, 5}, {4, 1}},
         [](job_specification& job) {
           job.model = {.kind = "vgg", .layers = 11, .width = 2, .dropout = 0.3};
           job.data = {.kind = "synthetic", .samples = 100};
           job.steps = 8;
         }),
    with("groups_of_parameters", {{2, 2}, {1, 5}, {3, 1}, {1, 3}},
         [](job_specification& job) {
           job.model.width = 15;
           job.model.heads = 3;
           job.optimizer.weight_decay = 0.1;
           job.optimizer.decay_norms_and_biases = false;
           job.optimizer.rate_factors = "transformer.wte.weight=0.5, *.0.ln_1.*=3, *.1.mlp.*=0";
         }),
    with("tokens_of_two_sources_on_the_disk", {{2, 2}, {1, 5}, {3, 1}},
         [](job_specification& job) {
           static const data_folder data;
           job.data = {.kind = "tokens",
                       .validation = 10,
                       .source = {{data.large_tokens(), 3}, {data.few_tokens(), 1}},
                       .token_bytes = 4};
         }),
    with("folder_of_augmented_images", {{2, 2}, {3, 1}, {1, 5}, {4, 1}},
         [](job_specification& job) {
           static const data_folder data;
           job.model = {.kind = "resnet", .layers = 8, .width = 4, .image = 16, .classes = 3};
           job.data = {.kind = "image_folder",
                       .path = data.images(),
                       .resize = 18,
                       .augment = "crop",
                       .flip = true,
                       .mean = {0.4, 0.5, 0.6},
                       .deviation = {0.2, 0.25, 0.3}};
           job.steps = 8;
         }),
    with("sums_in_bfloat16", {{2, 2}, {3, 1}, {1, 5}, {4, 1}},
         [](job_specification& job) { job.gradient_sums = "bfloat16"; }),
    with("sums_and_products_in_bfloat16_of_one_micro_batch_a_replica", {{4, 1}, {5, 1}, {3, 2}, {6, 1}, {1, 3}},
         [](job_specification& job) {
           job.gradient_sums = job.precision = "bfloat16";
           job.global_batch = 12;
           job.micro_batch = 1;
           job.virtual_replicas = 6;
           job.steps = 15;
         }),
    with("resnet_with_sums_in_bfloat16", {{2, 2}, {3, 1}, {1, 5}},
         [](job_specification& job) {
           job.model = {.kind = "resnet", .layers = 8, .width = 4, .image = 16};
           job.data = {.kind = "synthetic", .samples = 100};
           job.gradient_sums = "bfloat16";
           job.steps = 8;
         }),
    with("columns", {{2, 2}, {3, 1}, {1, 5}},
         [](job_specification& job) {
           static const data_folder data;
           job.model.sequence = 12;
           job.data = {.kind = "columns", .path = data.columns(12)};
         }),
    with("odd_sizes", {{2, 2}, {1, 2}, {3, 1}, {1, 5}}, [](job_specification& job) {
      job.model.width = 15;
      job.model.heads = 3;
      job.model.sequence = 13;
      job.model.vocabulary = 257;
      job.micro_batch = 1;
      job.global_batch = 8;
    })};

INSTANTIATE_TEST_SUITE_P(jobs, exactness, ::testing::ValuesIn(cases),
                         [](const auto& x) { return std::string(x.param.name); });

std::map<std::uint64_t, double> losses_of(const job_specification& job, std::uint32_t width, std::uint32_t depth) {
  executor_cluster cluster(job);
  cluster.keep_shape(width, depth);
  cluster.add_keeper("keeper");
  cluster.add_workers(width * depth);
  EXPECT_TRUE(cluster.run_until_ended()) << cluster.log().back();
  return cluster.losses();
}

// given: the same job with sums of both types / expected: the first loss the same, then others, within 2 %
TEST(bfloat16_sums, lose_as_float32_does) {
  auto job = small_job();
  job.steps = 30;
  const auto expected = losses_of(job, 1, 1);
  job.gradient_sums = "bfloat16";
  const auto came = losses_of(job, 1, 1);
  ASSERT_EQ(expected.size(), job.steps);
  ASSERT_EQ(came.size(), job.steps);
  EXPECT_EQ(came.begin()->second, expected.begin()->second);
  EXPECT_NE(came, expected);
  for (const auto& [step, loss] : came)
    EXPECT_NEAR(loss / expected.at(step), 1, 0.02) << "step " << step;
}

// given: a worker that dies at each of these points of a step, another one, and a keeper / expected: the same bits
TEST(bfloat16_sums, kills_change_no_bit) {
  auto job = small_job();
  job.steps = 10;
  job.keeper_every = 1;
  job.gradient_sums = "bfloat16";
  expect_kills_change_no_bit(job);
}

class recomputation : public ::testing::TestWithParam<const char*> {};

TEST_P(recomputation, changes_no_bit) {
  auto job = small_job();
  job.steps = 6;
  const std::string kind = GetParam();
  if (kind == "bert")
    job.model = {"bert", 3, 24, 2, 24, 257, 0.1, true, 256};
  if (kind == "resnet") {
    job.model = {.kind = "resnet", .layers = 8, .width = 4, .image = 16};
    job.data = {.kind = "synthetic", .samples = 100};
  }
  const auto expected = undisturbed_digest(job);
  job.recompute = true;
  EXPECT_EQ(undisturbed_digest(job), expected);
  EXPECT_EQ(digest_after(job, {{2, 2}, {1, 4}}), expected);
}

INSTANTIATE_TEST_SUITE_P(kinds, recomputation, ::testing::Values("gpt", "bert", "resnet"));

TEST(plain_all_reduce, trains_at_every_shape) {
  // Not the same bits, but the same training: the losses stay close to those of one device.
  auto job = small_job();
  job.steps = 8;
  job.reproducible = false;
  for (const auto& [sums, bound] : {std::pair("float32", 1e-4), {"bfloat16", 2e-2}}) {
    job.gradient_sums = sums;
    const auto expected = losses_of(job, 1, 1);
    ASSERT_EQ(expected.size(), job.steps);
    for (auto [width, depth] : shapes{{3, 1}, {2, 2}, {5, 1}}) {
      const auto came = losses_of(job, width, depth);
      ASSERT_EQ(came.size(), job.steps);
      for (const auto& [step, loss] : came)
        EXPECT_NEAR(loss / expected.at(step), 1, bound) << sums << ", " << width << "×" << depth << " step " << step;
    }
  }
}

} // namespace
} // namespace parcae

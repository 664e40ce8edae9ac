// How long a job is, where it starts from, and how its optimizer treats tensors, as job files say it.

#include "runtime/job/job_file.hpp"
#include "tests/support/thrown_by.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace parcae {
namespace {

// given: epochs of 100 samples, 4 of them held back, in batches of 16 / expected: steps
TEST(job_options, epochs_are_rounded_up_to_whole_steps) {
  for (auto [epochs, steps] : {std::pair{"0.01", 1u}, {"1", 6u}, {"1.01", 7u}, {"2.5", 15u}})
    EXPECT_EQ(
        parse_job("job.epochs = " + std::string(epochs) + "\n[data]\nkind = 'synthetic'\nsamples = 100\nvalidation = 4",
                  "x.toml")
            .steps,
        steps);
}

// given: each option / expected: its value
TEST(job_options, are_read) {
  const auto job = parse_job("job.steps = 9\njob.evaluate_every = 5\njob.patience = 6\njob.min_delta = 0.5\n"
                             "[data]\nkind = 'synthetic'\nvalidation = 9\n"
                             "[optimizer]\ndecay_norms_and_biases = false\nrate_factors = '*.bias=2'",
                             "x.toml");
  EXPECT_EQ(job.patience, 6u);
  EXPECT_EQ(job.min_delta, 0.5);
  EXPECT_FALSE(job.optimizer.decay_norms_and_biases);
  EXPECT_EQ(job.optimizer.rate_factors, "*.bias=2");
}

// given: how often checkpoints are to be written, in the file or instead of it / expected: steps or time; by default
// each half an hour
TEST(job_options, checkpoints_come_by_steps_or_by_time) {
  const std::string file = "job.steps = 9\n[data]\nkind = 'synthetic'\n";
  struct row {
    const char* said;
    std::uint64_t steps, ms;
  };
  for (const auto& [said, steps, ms] :
       {row{"", 0, 1'800'000}, row{"0", 0, 0}, row{"50", 50, 0}, row{"'90s'", 0, 90'000}}) {
    const auto job = parse_job(*said ? "job.checkpoint_every = " + std::string(said) + "\n" + file : file, "x.toml");
    EXPECT_EQ(job.checkpoint_every, steps) << said;
    EXPECT_EQ(job.checkpoint_every_ms, ms) << said;
    EXPECT_EQ(with_overrides(job, {"job.seed=2"}).checkpoint_every_ms, ms) << said;
    EXPECT_EQ(with_overrides(job, {"job.checkpoint_every=2h"}).checkpoint_every_ms, 7'200'000u);
    EXPECT_EQ(with_overrides(job, {"job.checkpoint_every=2h"}).checkpoint_every, 0u);
    EXPECT_EQ(with_overrides(job, {"job.checkpoint_every=7"}).checkpoint_every_ms, 0u);
  }
}

// given: when snapshots are to come / expected: by default as often as links allow, in half of them; each N-th step
// where the job says so; a share that is none is refused
TEST(job_options, snapshots_come_by_links_or_by_steps) {
  const std::string file = "job.steps = 9\n[data]\nkind = 'synthetic'\n[keepers]\n";
  const auto usual = parse_job(file, "x.toml");
  EXPECT_TRUE(usual.paces_snapshots());
  EXPECT_EQ(usual.keeper_share_of_link, 0.5);
  EXPECT_TRUE(usual.snapshot_is_due(1) && usual.snapshot_is_due(2));
  EXPECT_EQ(parse_job(file + "every = 0\nshare_of_link = 0.75", "x.toml").keeper_share_of_link, 0.75);
  const auto each_third = parse_job(file + "every = 3", "x.toml");
  EXPECT_FALSE(each_third.paces_snapshots());
  EXPECT_TRUE(each_third.snapshot_is_due(3) && !each_third.snapshot_is_due(4));
  for (const auto* share : {"0", "0.001", "1.0", "-1"})
    EXPECT_THROW(parse_job(file + "share_of_link = " + share, "x.toml"), job_file_error) << share;
}

// given: a job that goes on after 100 steps / expected: another schedule begins there, the same where it did; what is
// said is known from what is not
TEST(job_options, another_schedule_begins_where_the_job_goes_on) {
  const optimizer_specification before{.schedule = "cosine", .schedule_from = 7, .warmup_steps = 10};
  auto now = before;
  now.learning_rate = before.learning_rate / 2;
  EXPECT_EQ(schedule_start(before, now, 100), 7u);
  now.warmup_steps = 0;
  EXPECT_EQ(schedule_start(before, now, 100), 100u);
  now = before;
  now.schedule = "linear";
  EXPECT_EQ(schedule_start(before, now, 100), 100u);
  EXPECT_FALSE(is_given("optimizer.schedule_from", "", {"optimizer.schedule=linear"}));
  EXPECT_TRUE(is_given("optimizer.schedule_from", "", {"optimizer.schedule_from=0"}));
}

// given: a whole file / expected: the error
TEST(job_options, what_makes_no_sense_is_refused) {
  const auto error_of = [](const char* text) { return thrown_by<job_file_error>([&] { parse_job(text, "x.toml"); }); };
  struct row {
    const char* text;
    const char* error;
  };
  for (const auto& [text, error] : std::vector<row>{
           {"[job]\nsamples = 1\nepochs = 2\n[data]\npath = 'x'",
            "x.toml:3:10: job.epochs and job.samples must not be given both"},
           {"[job]\nepochs = 1\n[data]\npath = '/nothing/here'",
            "x.toml:2:10: job.epochs counts samples where the job is submitted: data /nothing/here: no such file or "
            "folder; give job.samples instead"},
           {"[job]\nepochs = 0\n[data]\nkind = 'synthetic'",
            "x.toml:2:10: job.epochs must be above 0, and at most 1000000000 steps"},
           {"[job]\nepochs = nan\n[data]\nkind = 'synthetic'",
            "x.toml:2:10: job.epochs must be above 0, and at most 1000000000 steps"},
           {"[job]\nepochs = 1e9\n[data]\nkind = 'synthetic'",
            "x.toml:2:10: job.epochs must be above 0, and at most 1000000000 steps"},
           {"[job]\nsteps = 1\npatience = 2\n[data]\npath = 'x'", "x.toml:3:12: job.patience needs job.evaluate_every"},
           {"[job]\nsteps = 1\nmin_delta = 0.5\n[data]\npath = 'x'",
            "x.toml:1:1: job.patience must be given, since job.min_delta is"},
           {"[job]\nsteps = 1\nthreads = 0\n[data]\npath = 'x'",
            "x.toml:3:11: job.threads is 0, the cores that each slot has, and bits depend on how many those are: give "
            "a "
            "number, or job.reproducible = false"},
           {"[job]\nsteps = 1\n[data]\npath = 'x'\n[model]\nweights = 'ftp://x/y'",
            "x.toml:6:11: model.weights is \"ftp://x/y\"; URLs begin with s3:// or https:// (or http://, without "
            "encryption)"},
           {"[job]\nsteps = 1\n[data]\npath = 'x'\n[model]\nweights = '/nothing/here'",
            "x.toml:6:11: model.weights: /nothing/here cannot be opened: No such file or directory"},
           {"[job]\nsteps = 1\n[data]\npath = 'x'\n[optimizer]\nrate_factors = 'head.*=2'",
            "x.toml:6:16: optimizer.rate_factors has \"head.*\", which no tensor's name fits, such as "
            "transformer.wte.weight"},
       })
    EXPECT_EQ(error_of(text), error) << text;
}

// given: precision = "bfloat16" for each kind of model, and another word / expected: taken for built-in ones, else one
// line that says why
TEST(job_options, bfloat16_is_for_built_in_models) {
  const std::string rest = "job.steps = 5\ndata.path = 'x'\njob.precision = ";
  EXPECT_THAT(thrown_by<job_file_error>([&] { parse_job(rest + "'half'", "x.toml"); }),
              testing::StartsWith("x.toml:3:17: job.precision is \"half\", must be one of \"float32\", \"bfloat16\""));
  auto job = parse_job(rest + "'bfloat16'", "x.toml");
  EXPECT_TRUE(job.in_bfloat16());
  job.model.path = "/model";
  job.model.exported = "{}";
  job.model.plugin = std::string(64, '0');
  for (const std::string kind : {"exported", "plugin"}) {
    job.model.kind = kind;
    EXPECT_THAT(problem_of(job),
                testing::StartsWith("job.precision must be \"float32\" for a model of kind \"" + kind));
  }
}

// given: job.gradient_sums left out, known words, another one / expected: "float32", the words for models of any kind,
// one line that says what is known; another one is a change that has to be wanted
TEST(job_options, sums_of_gradients_have_a_type) {
  const std::string rest = "job.steps = 5\ndata.path = 'x'\n";
  auto job = parse_job(rest, "x.toml");
  EXPECT_EQ(job.gradient_sums, "float32");
  EXPECT_FALSE(job.sums_in_bfloat16());
  EXPECT_EQ(job.sum_bytes(400), 400u);
  EXPECT_THAT(thrown_by<job_file_error>([&] { parse_job(rest + "job.gradient_sums = 'half'", "x.toml"); }),
              testing::StartsWith("x.toml:3:21: job.gradient_sums is \"half\", must be one of \"float32\", "
                                  "\"bfloat16\""));
  const auto small = parse_job(rest + "job.gradient_sums = 'bfloat16'", "x.toml");
  EXPECT_TRUE(small.sums_in_bfloat16());
  EXPECT_FALSE(small.in_bfloat16());
  EXPECT_EQ(small.sum_bytes(400), 200u);
  EXPECT_THAT(changed_keys(job, small, on_resume::fixed),
              testing::ElementsAre("job.gradient_sums (\"bfloat16\", was \"float32\")"));
  job = small;
  job.model.path = "/model";
  job.model.exported = "{}";
  job.model.kind = "exported";
  EXPECT_EQ(problem_of(job), "");
}

// given: job.transport left out, known words, another one / expected: "auto", the words, one line that says what is
// known
TEST(job_options, transport_is_one_of_those_known) {
  const std::string rest = "job.steps = 5\ndata.path = 'x'\n";
  EXPECT_EQ(parse_job(rest, "x.toml").transport, "auto");
  for (const std::string known : {"tcp", "nccl"})
    EXPECT_EQ(parse_job(rest + "job.transport = '" + known + "'", "x.toml").transport, known);
  EXPECT_THAT(thrown_by<job_file_error>([&] { parse_job(rest + "job.transport = 'udp'", "x.toml"); }),
              testing::StartsWith("x.toml:3:17: job.transport is \"udp\", must be one of \"auto\", \"tcp\", \"nccl\""));
  job_specification job;
  job.data.path = "x";
  job.transport = "udp";
  EXPECT_THAT(problem_of(job), testing::StartsWith("job.transport is \"udp\""));
}

} // namespace
} // namespace parcae

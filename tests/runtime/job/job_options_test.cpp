// How long a job is, where it starts from, and how its optimizer treats tensors, as job files say it.

#include "runtime/job/job_file.hpp"

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

// given: a whole file / expected: the error
TEST(job_options, what_makes_no_sense_is_refused) {
  const auto error_of = [](const char* text) -> std::string {
    try {
      parse_job(text, "x.toml");
    } catch (const job_file_error& e) {
      return e.what();
    }
    return {};
  };
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
  try {
    parse_job(rest + "'half'", "x.toml");
    FAIL() << "accepted";
  } catch (const job_file_error& e) {
    EXPECT_THAT(e.what(), testing::StartsWith(
                              "x.toml:3:17: job.precision is \"half\", must be one of \"float32\", \"bfloat16\""));
  }
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

// given: job.transport left out, known words, another one / expected: "auto", the words, one line that says what is
// known
TEST(job_options, transport_is_one_of_those_known) {
  const std::string rest = "job.steps = 5\ndata.path = 'x'\n";
  EXPECT_EQ(parse_job(rest, "x.toml").transport, "auto");
  for (const std::string known : {"tcp", "nccl"})
    EXPECT_EQ(parse_job(rest + "job.transport = '" + known + "'", "x.toml").transport, known);
  try {
    parse_job(rest + "job.transport = 'udp'", "x.toml");
    FAIL() << "accepted";
  } catch (const job_file_error& e) {
    EXPECT_THAT(e.what(), testing::StartsWith(
                              "x.toml:3:17: job.transport is \"udp\", must be one of \"auto\", \"tcp\", \"nccl\""));
  }
  job_specification job;
  job.data.path = "x";
  job.transport = "udp";
  EXPECT_THAT(problem_of(job), testing::StartsWith("job.transport is \"udp\""));
}

} // namespace
} // namespace parcae

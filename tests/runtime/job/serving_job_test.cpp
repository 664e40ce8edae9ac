// Job files of jobs that serve: what is accepted, and what is said about those that are not.

#include "protocols/model/model_description.hpp"
#include "protocols/values/job_keys.hpp"
#include "runtime/job/job_file.hpp"
#include "tests/support/names.hpp"

#include <utility>

namespace parcae {
namespace {

constexpr std::string_view serves = "[job]\nkind = \"serve\"\n";

std::string refusal_of(const std::string& text) {
  try {
    parse_job(text, "x.toml");
  } catch (const job_file_error& error) {
    return error.what();
  }
  return "accepted";
}

// given: a file that only says that the job serves / expected: defaults, no moments, and a job that the manager takes
TEST(serving_job, needs_no_more_than_its_kind) {
  const auto job = parse_job(serves, "some/folder/tiny.toml");
  EXPECT_TRUE(job.serves());
  EXPECT_EQ(job.name, "tiny");
  EXPECT_EQ(job.served_name(), "tiny");
  EXPECT_EQ(job.context(), job.model.sequence);
  EXPECT_EQ(moments_of(job.optimizer), 0u);
  EXPECT_EQ(problem_of(job), "");
  EXPECT_EQ(model_problem_of(job), "");
}

// given: each key of [serve] / expected: it arrives; so it does by --set
TEST(serving_job, every_key_arrives) {
  const auto job = parse_job(std::string(serves) + R"(
[serve]
model = "mine"
tokenizer = "bytes"
chat = "chatml"
context = 32
cache = "512MiB"
batch = 7
chunk = 9
queue = 11
wait = "2m"
stop_tokens = [10, 0]
)",
                             "x.toml", {"serve.batch=8", "serve.cache=2MiB"});
  EXPECT_EQ(job.served_name(), "mine");
  EXPECT_EQ(job.serve.tokenizer, "bytes");
  EXPECT_EQ(job.serve.chat, "chatml");
  EXPECT_EQ(job.context(), 32u);
  EXPECT_EQ(job.serve.cache_bytes, 2u << 20);
  EXPECT_EQ(job.serve.batch, 8u);
  EXPECT_EQ(job.serve.chunk, 9u);
  EXPECT_EQ(job.serve.queue, 11u);
  EXPECT_EQ(job.serve.wait_ms, 120'000u);
  EXPECT_EQ(job.serve.stop_tokens, (std::vector<std::uint32_t>{10, 0}));
}

// given: what is wrong / expected: one line with the place, the key and what would be right
TEST(serving_job, wrong_values_are_refused_by_line_and_key) {
  const std::pair<const char*, const char*> all[] = {
      {"[serve]\ncontext = 65\n", "x.toml:4:11: serve.context is 65, must be at most model.sequence, 64"},
      {"[serve]\ncache = \"1GB\"\n", "x.toml:4:9: serve.cache must be a size such as \"512MiB\" or \"2GiB\""},
      {"[serve]\ncache = \"1B\"\n", "x.toml:4:9: serve.cache is 1B, must be from 1MiB to 16TiB"},
      {"[serve]\nwait = \"1ms\"\n", "x.toml:4:8: serve.wait must be from 100ms to 1h"},
      {"[serve]\nbatch = 65\n", "x.toml:4:9: serve.batch is 65, must be from 1 to 64"},
      {"[serve]\nchunk = 193\n", "x.toml:4:9: serve.chunk is 193, must be from 1 to 192"},
      {"[serve]\nqueue = 0\n", "x.toml:4:9: serve.queue is 0, must be from 1 to 1000000"},
      {"[serve]\nchat = \"jinja\"\n",
       "x.toml:4:8: serve.chat is \"jinja\", must be one of \"none\", \"plain\", \"chatml\", \"llama3\""},
      {"[serve]\nstop_tokens = [256]\n", "x.toml:4:15: serve.stop_tokens must be below model.vocabulary, 256"},
      {"[serve]\nstop_tokens = 1\n", "x.toml:4:15: serve.stop_tokens must be a list of whole numbers: [1, 2]"},
      {"[serve]\ntokenizer = \"\"\n",
       "x.toml:4:13: serve.tokenizer must be \"auto\", \"bytes\", \"ids\", or the path of a "
       "tokenizer.json at the gateway"},
      {"[serve]\ntokenizer = \"bytes\"\n[model]\nvocabulary = 100\n",
       "x.toml:4:13: serve.tokenizer is \"bytes\", and model.vocabulary is below 256"},
      {"[serve]\nbath = 1\n", "x.toml:4:1: \"bath\" is not a key of [serve]; did you mean \"batch\"?"},
      {"[model]\nkind = \"resnet\"\nlayers = 18\n",
       "x.toml:4:8: model.kind is \"resnet\", must be one of \"gpt\", \"exported\""},
      {"[model]\nkind = \"bert\"\n", "x.toml:4:8: model.kind is \"bert\", must be one of \"gpt\", \"exported\""},
      {"transport = \"nccl\"\n", "x.toml:3:13: job.transport must be \"auto\" or \"tcp\" if job.kind is \"serve\""},
      {"threads = 0\n", "x.toml:3:11: job.threads is 0, the cores that each slot has, and bits depend on how many "
                        "those are: give a number, or job.reproducible = false"},
      {"[parallel]\nmin_depth = 7\n",
       "x.toml:4:13: parallel.min_depth is 7, but the model has 6 layers to make stages of"},
  };
  for (const auto& [text, error] : all)
    EXPECT_EQ(refusal_of(std::string(serves) + text), error);
  EXPECT_THAT(refusal_of("[job]\nkind = \"sevre\"\nsteps = 1\n[data]\npath = \"x\"\n"),
              HasSubstr("x.toml:2:8: job.kind is \"sevre\", must be one of \"train\", \"serve\""));
}

// given: each key that is for the other kind of job / expected: refused by its line; the others are not
TEST(serving_job, keys_of_the_other_kind_are_refused) {
  EXPECT_EQ(refusal_of(std::string(serves) + "[data]\npath = \"x\"\n"),
            "x.toml:4:8: data.path is for jobs that train, but job.kind is \"serve\"; leave it out");
  EXPECT_EQ(refusal_of(std::string(serves) + "[[data.source]]\npath = \"x\"\n"),
            "x.toml:3:1: data.source is for jobs that train, but job.kind is \"serve\"; leave it out");
  EXPECT_EQ(refusal_of("[job]\nsteps = 5\n[data]\npath = \"text\"\n[serve]\nbatch = 1\n"),
            "x.toml:6:9: serve.batch is for jobs that serve, but job.kind is \"train\"; leave it out");
  for (const auto& key : job_keys()) {
    if (key.section == data_sources)
      continue;
    const auto section = std::string(key.section), name = std::string(key.name);
    const auto problem = refusal_of("[job]\nkind = \"serve\"\n" + (section == "job" ? name + " = 1\n" : "") +
                                    (section == "job" ? "" : "[" + section + "]\n" + name + " = 1\n"));
    const auto refusal = path_of(key) + " is for jobs that train";
    if (job_kind_of(key) == "train") {
      EXPECT_THAT(problem, HasSubstr(refusal));
    }
    if (job_kind_of(key) != "train") {
      EXPECT_THAT(problem, Not(HasSubstr(refusal)));
    }
  }
}

// given: a serving job as a client of another kind may send it / expected: what the file's reader would have refused
TEST(serving_job, the_manager_believes_no_client) {
  auto job = parse_job(serves, "x.toml");
  job.optimizer.kind = "adamw";
  EXPECT_THAT(problem_of(job), StartsWith("optimizer.kind must be \"none\""));
  job = parse_job(serves, "x.toml");
  job.resume = {5, "folder", ""};
  EXPECT_THAT(problem_of(job), StartsWith("job.kind is \"serve\""));
  job = parse_job("[job]\nsteps = 5\n[data]\npath = \"text\"\n", "x.toml");
  job.optimizer.kind = "none";
  EXPECT_THAT(problem_of(job), StartsWith("optimizer.kind is \"none\", must be one of"));
}

} // namespace
} // namespace parcae

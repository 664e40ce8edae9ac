// Job files: what is accepted, and what is said about those that are not.

#include "runtime/job/job_file.hpp"
#include "tests/support/names.hpp"
#include "tests/support/thrown_by.hpp"

#include <boost/json.hpp>

#include <tuple>

namespace parcae {
namespace {

constexpr std::string_view least = R"([job]
steps = 5
[data]
path = "text"
)";

std::string error_of(std::string_view text) {
  try {
    parse_job(text, "x.toml");
  } catch (const job_file_error& error) {
    return error.what();
  }
  return "accepted";
}

// --- accepted

TEST(job_file, defaults_fill_what_is_left_out) {
  auto job = parse_job(least, "some/folder/tiny.toml");
  EXPECT_EQ(job.name, "tiny");
  EXPECT_EQ(job.steps, 5u);
  EXPECT_EQ(job.data.path, "text");
  job_specification defaults;
  EXPECT_EQ(job.model.kind, defaults.model.kind);
  EXPECT_EQ(job.global_batch, defaults.global_batch);
  EXPECT_EQ(job.optimizer.learning_rate, defaults.optimizer.learning_rate);
  EXPECT_EQ(job.policy, "liveput");
  EXPECT_EQ(job.planning_interval_ms, 60'000u);
  EXPECT_EQ(job.virtual_replicas, 4u); // 16 / 4 micro-batches
}

TEST(job_file, every_key_arrives) {
  const auto job = parse_job(R"(
[job]
name = "all"
steps = 1000
seed = 77
threads = 2
reproducible = false
checkpoint_every = 90
checkpoints_kept = 3
min_instances = 4
[model]
kind = "bert"
layers = 3
width = 40
heads = 5
sequence = 33
vocabulary = 300
dropout = 0.25
tied_embeddings = false
mask_token = 299
[data]
kind = "text"
path = "/data"
[batch]
global = 24
micro = 2
[optimizer]
kind = "adamw"
learning_rate = 1
schedule = "linear"
warmup_steps = 7
weight_decay = 0.125
beta1 = 0.75
beta2 = 0.875
epsilon = 1e-3
clip_norm = 2.5
[parallel]
min_depth = 2
max_depth = 3
min_width = 4
max_width = 5
virtual_replicas = 6
[keepers]
every = 8
copies = 2
[planning]
policy = "throughput"
interval = "2m"
look_ahead = 9
)",
                             "x.toml");
  job_specification x;
  std::tie(x.name, x.steps, x.seed, x.threads, x.reproducible) = std::tuple("all", 1000, 77, 2, false);
  std::tie(x.checkpoint_every, x.checkpoints_kept, x.min_instances) = std::tuple(90, 3, 4);
  x.model = {"bert", 3, 40, 5, 33, 300, 0.25, false, 299};
  x.data.path = "/data";
  std::tie(x.global_batch, x.micro_batch) = std::tuple(24, 2);
  x.optimizer = {"adamw", 1, "linear", 0, 7, 0.125, 0.9, 0.75, 0.875, 1e-3, 2.5};
  std::tie(x.min_depth, x.max_depth, x.min_width, x.max_width) = std::tuple(2, 3, 4, 5);
  std::tie(x.virtual_replicas, x.keeper_every, x.keeper_copies) = std::tuple(6, 8, 2);
  std::tie(x.policy, x.planning_interval_ms, x.look_ahead) = std::tuple("throughput", 120'000, 9);
  EXPECT_EQ(boost::json::serialize(boost::json::value_from(job)), boost::json::serialize(boost::json::value_from(x)));
}

// given: the keys that only images, synthetic data and SGD have / expected: their values
TEST(job_file, keys_of_a_kind_are_read) {
  auto job = parse_job(R"(
[job]
steps = 10
[model]
kind = "vgg"
layers = 11
image = 64
channels = 2
classes = 7
[data]
kind = "synthetic"
samples = 99
seed = 5
[optimizer]
kind = "sgd"
momentum = 0.5
)",
                       "x.toml");
  EXPECT_EQ(job.model, (model_specification{.kind = "vgg", .layers = 11, .image = 64, .channels = 2, .classes = 7}));
  EXPECT_EQ(job.data, (data_specification{.kind = "synthetic", .samples = 99, .seed = 5}));
  EXPECT_EQ(job.optimizer.kind, "sgd");
  EXPECT_EQ(job.optimizer.momentum, 0.5);
}

// given: global and micro batch / expected: virtual replicas, the largest power of two up to 8 that divides their
// quotient
TEST(job_file, virtual_replicas_follow_the_batch) {
  for (auto [global, micro, replicas] :
       {std::tuple{16, 4, 4u}, {16, 2, 8u}, {64, 1, 8u}, {12, 1, 4u}, {12, 2, 2u}, {9, 3, 1u}, {7, 7, 1u}}) {
    auto job = parse_job(std::string(least) + "[batch]\nglobal = " + std::to_string(global) +
                             "\nmicro = " + std::to_string(micro) + "\n",
                         "x.toml");
    EXPECT_EQ(job.virtual_replicas, replicas) << global << " / " << micro;
  }
}

// given: samples, in batches of 16 / expected: steps
TEST(job_file, samples_are_rounded_up_to_whole_steps) {
  for (auto [samples, steps] : {std::pair{1, 1u}, {16, 1u}, {17, 2u}, {160, 10u}})
    EXPECT_EQ(parse_job("job.samples = " + std::to_string(samples) + "\ndata.path = 'x'", "x.toml").steps, steps);
}

TEST(job_file, examples_are_accepted) {
  EXPECT_EQ(parse_job_file(PARCAE_EXAMPLES "/gpt.toml").model.kind, "gpt");
  EXPECT_EQ(parse_job_file(PARCAE_EXAMPLES "/mlp.toml").steps, 500u);
  EXPECT_EQ(parse_job_file(PARCAE_EXAMPLES "/bert.toml").model.mask_token, 256u);
  EXPECT_TRUE(parse_job_file(PARCAE_EXAMPLES "/resnet.toml").recompute);
  EXPECT_EQ(parse_job_file(PARCAE_EXAMPLES "/vgg.toml").model.layers, 11u);
  EXPECT_EQ(parse_job_file(PARCAE_EXAMPLES "/gpt_bfloat16.toml").precision, "bfloat16");
  EXPECT_EQ(parse_job_file(PARCAE_EXAMPLES "/store/gpt.toml").checkpoint.to, "s3://my-bucket/runs");
}

// --- refused

// given: lines after the smallest job file, which has four / expected: start of the error, and what it must say as well
TEST(job_file, malformed_files_are_refused_by_line_and_key) {
  struct row {
    const char* text;
    const char* start;
    const char* says;
  };
  for (const auto& [text, start, says] : std::vector<row>{
           // unknown words
           {"[model]\nwidht = 3", "x.toml:6:1: \"widht\" is not a key of [model]", "did you mean \"width\"?"},
           {"[model]\n  layer = 3", "x.toml:6:3: \"layer\"", "did you mean \"layers\"?"},
           {"[batch]\nsize = 3", "x.toml:6:1: \"size\"", "known are global, micro"},
           {"[optimiser]\nkind = 'sgd'", "x.toml:5:2: \"optimiser\" is not a section", "did you mean \"optimizer\"?"},
           {"[trainer]\nkind = 'sgd'", "x.toml:5:2: \"trainer\"", "known are job, model, data, batch"},
           {"[model.gpt]\nwidth = 3", "x.toml:5:8: \"gpt\" is not a key of [model]", "known are"},
           {"[[model]]\nwidth = 3", "x.toml:5:3: model must be a section", "[model]"},
           {"[checkpoint]\nto = 'runs'", "x.toml:6:6: checkpoint.to is \"runs\"", "s3://BUCKET/PREFIX, or a folder's"},
           {"[checkpoint]\nto = 'gs://b/p'", "x.toml:6:6: checkpoint.to", "must be s3://BUCKET/PREFIX"},
           {"[checkpoint]\nendpoint = 'minio:9000'", "x.toml:6:12: checkpoint.endpoint", "must begin with https://"},
           // wrong types
           {"[model]\nwidth = 'wide'", "x.toml:6:9: model.width must be a whole number", ""},
           {"[model]\nwidth = 3.0", "x.toml:6:9: model.width must be a whole number", ""},
           {"[model]\ndropout = 'some'", "x.toml:6:11: model.dropout must be a number", ""},
           {"[model]\ntied_embeddings = 1", "x.toml:6:19: model.tied_embeddings must be true or false", ""},
           {"[model]\nkind = [\"gpt\"]", "x.toml:6:8: model.kind must be a string", ""},
           {"[optimizer]\nlearning_rate = 2020-01-01", "x.toml:6:17: optimizer.learning_rate must be a number", ""},
           {"[planning]\ninterval = 60", "x.toml:6:12: planning.interval must be a duration", "\"30s\""},
           {"[planning]\ninterval = '60'", "x.toml:6:12: planning.interval must be a duration", ""},
           {"[planning]\ninterval = '-1s'", "x.toml:6:12: planning.interval must be a duration", ""},
           // values out of range
           {"[model]\nlayers = -1", "x.toml:6:10: model.layers is -1", "must not be negative"},
           {"[model]\nlayers = 4294967296", "x.toml:6:10: model.layers is 4294967296", "too large"},
           {"[model]\nlayers = 0", "x.toml:6:10: model.layers", "from 1 to"},
           {"[model]\nkind = 'gtp'", "x.toml:6:8: model.kind is \"gtp\"",
            "\"gpt\", \"bert\", \"mlp\", \"resnet\", \"vgg\""},
           {"[model]\ndropout = 1.0", "x.toml:6:11: model.dropout", "below 1"},
           {"[model]\ndropout = nan", "x.toml:6:11: model.dropout", "at least 0"},
           {"[optimizer]\nlearning_rate = inf", "x.toml:6:17: optimizer.learning_rate", "below"},
           {"[model]\nvocabulary = 255", "x.toml:6:14: model.vocabulary", "at least 256"},
           {"[model]\nheads = 5", "x.toml:6:9: model.heads", "must divide model.width"},
           {"[model]\nwidth = 65", "x.toml:5:1: model.heads must divide model.width", ""}, // a default no longer fits
           {"[batch]\nglobal = 10\nmicro = 4", "x.toml:7:9: batch.micro must divide batch.global", ""},
           {"[batch]\nmicro = 0", "x.toml:6:9: batch.micro", "from 1 to 16"},
           {"[batch]\nglobal = 0", "x.toml:6:10: batch.global", "from 1 to"},
           {"[parallel]\nvirtual_replicas = 3", "x.toml:6:20: parallel.virtual_replicas is 3",
            "must divide the number of micro-batches, 4"},
           {"[parallel]\nmin_width = 5", "x.toml:6:13: parallel.min_width", "must not exceed"},
           {"[parallel]\nmin_depth = 900\nmax_depth = 1000", "x.toml:6:13: parallel.min_depth", "but the model has"},
           {"[parallel]\nmin_depth = 3\nmax_depth = 2", "x.toml:6:13: parallel.min_depth", "from 1 to 2"},
           {"[keepers]\nevery = -1", "x.toml:6:9: keepers.every", "must not be negative"},
           {"[planning]\ninterval = '99ms'", "x.toml:6:12: planning.interval is 99ms", "from 100ms to 24h"},
           {"[planning]\npolicy = 'best'", "x.toml:6:10: planning.policy", "\"throughput\""},
           {"[model]\nkind = 'resnet'", "x.toml:5:1: model.layers is 4", "6n + 2"},
           {"[model]\nkind = 'resnet'\nlayers = 20", "x.toml:3:1: data.kind",
            "\"images\", \"image_folder\", \"columns\", \"synthetic\""},
           {"[model]\nkind = 'resnet'\nlayers = 20\ndropout = 0.1", "x.toml:8:11: model.dropout", "a resnet has none"},
           {"[model]\nkind = 'vgg'\nlayers = 12", "x.toml:7:10: model.layers is 12", "11, 13, 16 or 19"},
           {"[model]\nkind = 'vgg'\nlayers = 11\nimage = 48", "x.toml:8:9: model.image", "multiple of 32"},
           {"[model]\nkind = 'bert'", "x.toml:5:1: model.mask_token", "below model.vocabulary"},
           {"[model]\nkind = 'bert'\nvocabulary = 300\nmask_token = 7", "x.toml:8:14: model.mask_token",
            "at least 256"},
           // keys of another kind
           {"[model]\nkind = 'mlp'\nheads = 2", "x.toml:7:9: model.heads is for gpt, bert", "model.kind is \"mlp\""},
           {"[model]\nclasses = 2", "x.toml:6:11: model.classes is for resnet, vgg", "\"gpt\"; leave it out"},
           {"[optimizer]\nmomentum = 0.5", "x.toml:6:12: optimizer.momentum is for sgd", "\"adamw\""},
           {"[optimizer]\nkind = 'sgd'\nbeta1 = 0.5", "x.toml:7:9: optimizer.beta1 is for adamw", "\"sgd\""},
           // not TOML
           {"[model\nwidth = 3", "x.toml:5:", ""},
           {"[model]\nwidth = ", "x.toml:6:", ""},
           {"[model]\nwidth = 3\nwidth = 4", "x.toml:7:", "width"},
           {"[job]\nseed = 1", "x.toml:5:", "job"},
           {"[model]\nwidth = 99999999999999999999", "x.toml:6:", ""},
           {"[&", "x.toml:5:", ""},
           {"[[[model]]]", "x.toml:5:", ""},
           {"\x01", "x.toml:5:", ""},
           {"\xff\xfe", "x.toml:", "utf-8"},
       }) {
    auto error = error_of(std::string(least) + text);
    EXPECT_THAT(error, StartsWith(start)) << text;
    EXPECT_THAT(error, HasSubstr(says)) << text;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

// given: letters, marks and signs beyond ASCII where none may be / expected: the line, as for any other
TEST(job_file, letters_beyond_ascii_are_no_keys) {
  for (const std::string letter : {"ö", "\u030b", "\u0499", "\u2190", "\ufffd", "日"})
    for (const auto& line : {"gr" + letter + "sse = 3", letter + " = 3", "seed = " + letter, "seed = 3" + letter})
      EXPECT_EQ(error_of("[job]\nsteps = 1\n" + line).substr(0, 9), "x.toml:3:") << line;
}

// given: a whole file / expected: the error
TEST(job_file, incomplete_files_are_refused) {
  struct row {
    const char* text;
    const char* error;
  };
  for (const auto& [text, error] : std::vector<row>{
           {"", "x.toml: job.steps, job.samples or job.epochs must be given"},
           {"[job]\nseed = 1", "x.toml:1:1: job.steps, job.samples or job.epochs must be given"},
           {"[job]\nsteps = 1\nsamples = 2\n[data]\npath = 'x'",
            "x.toml:3:11: job.samples and job.steps must not be given both"},
           {"[job]\nsamples = 0", "x.toml:2:11: job.samples must be at least 1"},
           {"[job]\nsteps = 1", "x.toml: data.path must name a file or folder"},
           {"[job]\nsteps = 1\n[data]\npath = ''", "x.toml:4:8: data.path must name a file or folder"},
           {"[job]\nsteps = 1\n[data]\npath = \"a\\u0000b\"",
            "x.toml:4:8: data.path must be a string without zero bytes"},
           {"[job]\nsteps = 0\n[data]\npath = 'x'", "x.toml:2:9: job.steps is 0, must be from 1 to 1000000000"},
           {"[job]\nname = ''\nsteps = 1\n[data]\npath = 'x'",
            "x.toml:2:8: job.name must have 1 to 100 bytes, none of them a control character"},
           {"steps = 1", "x.toml:1:1: \"steps\" is not a section of a job file; it belongs into [job]"},
           {"kind = 'gpt'",
            "x.toml:1:1: \"kind\" is not a section of a job file; it belongs into [job, model, data, optimizer]"},
           {"job = 1", "x.toml:1:1: job must be a section: [job]"},
       })
    EXPECT_EQ(error_of(text), error) << text;
}

// --- changes

// given: changes to the smallest file / expected: as if it said so
TEST(job_file, overrides_count) {
  const auto job =
      parse_job(least, "x.toml",
                {"model.width=32", "job.name = \"other\"", "optimizer.kind=sgd", "optimizer.momentum=0.5",
                 "planning.interval=2m", "job.steps=9", "data.path=/else/where", "model.tied_embeddings=false"});
  EXPECT_EQ(job.model.width, 32u);
  EXPECT_EQ(job.name, "other");
  EXPECT_EQ(job.optimizer.kind, "sgd");
  EXPECT_EQ(job.optimizer.momentum, 0.5);
  EXPECT_EQ(job.planning_interval_ms, 120'000u);
  EXPECT_EQ(job.steps, 9u);
  EXPECT_EQ(job.data.path, "/else/where");
  EXPECT_FALSE(job.model.tied_embeddings);
  auto again = with_overrides(job, {"job.steps=20", "keepers.every=3"});
  EXPECT_EQ(again.steps, 20u);
  EXPECT_EQ(again.keeper_every, 3u);
  EXPECT_EQ(again.name, "other");
  EXPECT_EQ(again.planning_interval_ms, 120'000u);
  EXPECT_EQ(again.virtual_replicas, job.virtual_replicas);
}

// given: what a job may take and cost / expected: read, and kept when it goes on unless it is changed; what makes no
// sense is refused
TEST(job_file, budgets_are_read) {
  const auto job = parse_job(least, "x.toml", {"budget.deadline=36h", "budget.total=500", "budget.first=total"});
  EXPECT_EQ(job.budget.deadline_ms, 36u * 3'600'000);
  EXPECT_EQ(job.budget.total_usd, 500);
  EXPECT_EQ(with_overrides(job, {"budget.hourly=40"}).budget.deadline_ms, job.budget.deadline_ms);
  EXPECT_EQ(parse_job(least, "x.toml", {"budget.total=5", "budget.hourly=4"}).budget.hourly_usd, 4);
  EXPECT_THAT(error_of(std::string(least) + "[budget]\nfirst = \"total\"\n"), HasSubstr("budget.total must be given"));
  EXPECT_THAT(error_of(std::string(least) + "[budget]\ndeadline = \"1s\"\n"), HasSubstr("must be from 10s"));
}

// given: changes that are wrong / expected: the error names them
TEST(job_file, wrong_overrides_are_named) {
  const std::pair<std::string, std::string> table[] = {
      {"model.widht=3", "--set model.widht=3: \"widht\" is not a key of [model]; did you mean \"width\"?"},
      {"modle.width=3", "--set modle.width=3: \"modle\" is not a section of a job file; did you mean \"model\"?"},
      {"model.width=wide", "--set model.width=wide: model.width must be a whole number"},
      {"model.width=0", "--set model.width=0: model.width is 0, must be from 1 to 100000"},
      {"job.min_instances=0", "--set job.min_instances=0: job.min_instances is 0, must be from 1 to 10000"},
      {"batch.micro=3", "--set batch.micro=3: batch.micro must divide batch.global"},
      {"width=3", "--set width=3: must be SECTION.KEY=VALUE, such as model.width=128"},
      {"model.width", "--set model.width: must be SECTION.KEY=VALUE, such as model.width=128"},
      {"model.width=", "--set model.width=: must be SECTION.KEY=VALUE, such as model.width=128"},
      {"a.b.c=3", "--set a.b.c=3: must be SECTION.KEY=VALUE, such as model.width=128"},
      {"model.image=32",
       "--set model.image=32: model.image is for resnet, vgg, but model.kind is \"gpt\"; leave it out"},
      {"data.path=gs://x/y",
       "--set data.path=gs://x/y: data.path is \"gs://x/y\"; URLs begin with s3:// or https:// (or http://, without "
       "encryption)"},
  };
  for (const auto& [change, error] : table)
    EXPECT_EQ(thrown_by<job_file_error>([&] { parse_job(least, "x.toml", {change}); }), error);
  for (const auto* odd : {"model.width=[", "model.width=3\nx = 4", "=", ".=", "model.width={ a = 1 }", "model.=1",
                          "[model].width=1", "model.width=\"\"\"", "model.width='"})
    EXPECT_THROW(parse_job(least, "x.toml", {odd}), job_file_error) << odd;
}

// given: jobs that differ in each key / expected: it is named, among those that may change freely, those that may not,
// or those of the tensors' shapes
TEST(job_file, changes_are_told_by_key) {
  const auto before = parse_job(least, "x.toml");
  auto after = before;
  after.global_batch = 32;
  after.seed = 9;
  after.data.validation = 5;
  after.model.weights = "/elsewhere";
  after.model.weights_digests = {"other"};
  after.model.width = 128;
  after.optimizer.learning_rate = 0.5;
  EXPECT_THAT(changed_keys(before, after, on_resume::fixed),
              testing::ElementsAre("job.seed (9, was 1)", "data.validation (5, was 0)", "batch.global (32, was 16)",
                                   "model.weights (another version 0)"));
  EXPECT_THAT(changed_keys(before, after, on_resume::shape), testing::ElementsAre("model.width (128, was 64)"));
  EXPECT_THAT(
      changed_keys(before, after, on_resume::free),
      testing::ElementsAre("model.weights (\"/elsewhere\", was \"\")", "optimizer.learning_rate (0.5, was 0.001)"));
}

// --- files of any kind

TEST(job_file, errors_are_short_whatever_the_file_says) {
  auto word = std::string(100'000, 'w');
  EXPECT_LT(error_of("[job]\n" + word + " = 1").size(), 500u);
  EXPECT_LT(error_of("[" + word + "]\n").size(), 500u);
  EXPECT_LT(error_of(std::string(least) + "[model]\nkind = '" + word + "'").size(), 500u);
  EXPECT_LT(error_of(std::string(least) + "[planning]\npolicy = '" + word + "'").size(), 500u);
  EXPECT_EQ(error_of("[job]\n\"new\\nline\" = 1").find('\n'), std::string::npos);
}

TEST(job_file, large_files_and_deep_nesting_are_refused) {
  EXPECT_THAT(error_of(std::string(max_job_file_bytes + 1, '#')), HasSubstr("larger than 1048576 bytes"));
  EXPECT_THAT(error_of(std::string(least) + std::string(max_job_file_bytes - least.size() - 1, '#')), "accepted");
  EXPECT_THAT(error_of("x = " + std::string(200'000, '[')), StartsWith("x.toml:1:"));
  std::string dotted = "a";
  for (int i = 0; i < 500'000; ++i)
    dotted += ".a";
  EXPECT_NE(error_of(dotted + " = 1"), "accepted");
  EXPECT_NE(error_of("[" + dotted + "]"), "accepted");
}

TEST(job_file, files_that_cannot_be_read_are_named) {
  EXPECT_THROW(
      {
        try {
          parse_job_file("/no/such/file.toml");
        } catch (const job_file_error& error) {
          EXPECT_STREQ(error.what(), "/no/such/file.toml: cannot be opened: No such file or directory");
          throw;
        }
      },
      job_file_error);
  EXPECT_THROW(parse_job_file("/"), job_file_error);
}

} // namespace
} // namespace parcae

// Every error a user can cause: its exit status, and one line that says what, where and what to do.

#include "gpu/checkpoint/checkpoint.hpp"
#include "tests/support/cluster.hpp"

#include <algorithm>
#include <sstream>

namespace parcae {
namespace {

const std::string good_file = R"([job]
steps = 20
[model]
kind = "mlp"
layers = 1
width = 16
sequence = 16
[data]
path = "/usr/share/common-licenses/GPL-3"
)";

struct row {
  std::string what; ///< for people
  std::vector<std::string> arguments;
  int status;
  std::vector<std::string> says; ///< parts of the line
};

struct error : cluster_test {
  /// A checkpoint of two of the three layers of `good_file`.
  std::string incomplete_checkpoint(const std::string& name) {
    job_specification job;
    job.steps = 20;
    job.model = {"mlp", 1, 16, 4, 16, 256, 0, true};
    job.data.path = "/usr/share/common-licenses/GPL-3";
    checkpoint_share share{{{10, {1}}, {}, job, "", "", 0, {}}, {}};
    for (std::uint32_t layer : {0, 1}) {
      const std::vector<std::byte> part(describe(job.model).layers[layer].parameters() * sizeof(float));
      share.shards.push_back(std::make_shared<const shard_bytes>(shard_bytes{layer, {10, {1}}, {part, part, part}}));
    }
    std::atomic<bool> never = false;
    write_share(*open_store((folder.path() / name).string()), "k", std::move(share), never);
    return folder.path() / name;
  }

  /// Lines, but for what is only said by the way.
  static std::ptrdiff_t problems_of(const std::string& text) {
    std::istringstream lines(text);
    std::ptrdiff_t result = 0;
    for (std::string line; std::getline(lines, line);)
      result += !line.starts_with("warning: ") && !line.starts_with("not found out: ");
    return result;
  }

  void check(const row& x, const outcome& y) {
    SCOPED_TRACE(x.what);
    EXPECT_EQ(y.status, x.status);
    EXPECT_THAT(y.output, IsEmpty());
    EXPECT_EQ(problems_of(y.error), 1) << y.error;
    for (const auto& part : x.says)
      EXPECT_THAT(y.error, HasSubstr(part));
  }
};

// given: commands that are wrong, or that ask for what cannot be / expected: the table. Paths are in folder F.
TEST_F(error, commands) {
  const auto f = folder.path().string() + "/";
  const auto good = write("good.toml", good_file);
  const auto incomplete = incomplete_checkpoint("incomplete");
  const auto damaged = incomplete_checkpoint("damaged");
  write("damaged/k.manifest", "something else than a manifest");
  incomplete_checkpoint("all/damaged");
  write("all/damaged/k.manifest", "something else than a manifest");
  incomplete_checkpoint("parts/incomplete");
  write("not-json", "{");
  write("empty", "");
  const auto manager = to_string(cluster->where());
  for (int i = 0; i < 2; ++i)
    cluster->client().submit(small_job(10)); // waits for instances
  run_well({"cancel", "2"});

  const row table[] = {
      // Wrong usage: 2.
      {"no command", {}, 2, {"parcae: a command is required", "parcae -h"}},
      {"unknown command", {"fly"}, 2, {"fly", "parcae -h"}},
      {"unknown option", {"submit", good, "--fast"}, 2, {"parcae submit: ", "--fast", "parcae submit -h"}},
      {"submit without a file", {"submit"}, 2, {"job file", "--resume CHECKPOINT"}},
      {"no address", {"status", "--manager", "nowhere"}, 2, {"nowhere", "HOST:PORT"}},
      {"no port", {"status", "--manager", "localhost:99999"}, 2, {"localhost:99999", "HOST:PORT"}},
      {"job that is no number", {"status", "first"}, 2, {"parcae status: ", "first", "parcae status -h"}},
      {"job before the first", {"status", "-1"}, 2, {"parcae status: ", "parcae status -h"}},
      {"cancel without a job", {"cancel"}, 2, {"parcae cancel: ", "JOB", "parcae cancel -h"}},
      {"export without a file", {"export", "1"}, 2, {"--output FILE", "--curve FILE.csv"}},
      {"export to elsewhere", {"export", "1", "--output", "s3://bucket/x"}, 2, {"s3://bucket/x", "local paths only"}},
      {"resume from elsewhere", {"submit", "--resume", "gs://bucket/x"}, 1, {"gs://bucket/x", "must begin with s3://"}},
      {"a priority beyond all", {"submit", good, "--priority", "1001"}, 2, {"--priority", "1000"}},
      {"a misspelt command",
       {"sumbit", good},
       2,
       {"\"sumbit\" is not a command", "did you mean \"submit\"?", "parcae -h"}},
      {"a misspelt option", {"submit", good, "--wiat"}, 2, {"--wiat", "did you mean \"--wait\"?"}},
      {"export to where no folder is",
       {"export", "1", "--output", f + "no/x"},
       2,
       {"--output", "no folder " + f + "no"}},
      {"preempt without names", {"preempt"}, 2, {"names of instances", "--any N"}},
      {"preempt by name and number", {"preempt", "a", "--any", "1"}, 2, {"--any", "parcae preempt -h"}},
      {"notice that is no duration", {"preempt", "a", "--notice", "soon"}, 2, {"--notice", "soon", "must be like"}},
      {"notice of two days", {"preempt", "a", "--notice", "48h"}, 2, {"--notice", "at most 24h"}},
      {"export to nothing", {"export", "1", "--output", ""}, 2, {"--output", "must not be empty"}},
      {"export of both to one file", {"export", "1", "--output", f + "x", "--curve", f + "x"}, 2, {"the same file"}},
      {"listening to the world", {"manager", "--listen", "0.0.0.0:0"}, 2, {"0.0.0.0", "loopback"}},
      {"unknown kind of log", {"manager", "--log-format", "xml"}, 2, {"--log-format xml", "text or json"}},
      {"simulate without a trace", {"simulate", "--profile", "p"}, 2, {"parcae simulate: ", "--trace"}},
      {"options of another accounting",
       {"simulate", "--profile", f + "p", "--trace", f + "t", "--accounting", "published", "--detect", "1s"},
       2,
       {"--detect", "--accounting realistic"}},
      // What cannot be: 1.
      {"no such job file", {"submit", f + "no.toml"}, 1, {f + "no.toml", "No such file"}},
      {"a folder as job file", {"submit", f}, 1, {f, "is a folder"}},
      {"not TOML", {"submit", write("not.toml", "[job\n")}, 1, {"not.toml:1", "]"}},
      {"unknown key",
       {"submit", write("key.toml", good_file + "[parallel]\nwidht = 2\n")},
       1,
       {"key.toml:11:1", "widht", "max_width"}},
      {"unknown section", {"submit", write("section.toml", good_file + "[modle]\n")}, 1, {"section.toml:10", "model"}},
      {"value out of range",
       {"submit", write("range.toml", good_file + "[batch]\nglobal = 0\n")},
       1,
       {"range.toml:11", "batch.global", "must be from 1"}},
      {"value of another type",
       {"submit", write("type.toml", good_file + "[batch]\nglobal = \"all\"\n")},
       1,
       {"type.toml:11", "batch.global", "must be a whole number"}},
      {"values that do not fit",
       {"submit", write("fit.toml", good_file + "[batch]\nglobal = 8\nmicro = 3\n")},
       1,
       {"fit.toml:12", "batch.micro must divide batch.global"}},
      {"name that a terminal would act on",
       {"submit", write("name.toml", "[job]\nname = \"a\\u001b[31m\"\n" + good_file.substr(good_file.find("steps")))},
       1,
       {"name.toml", "job.name", "control character"}},
      {"no steps",
       {"submit", write("steps.toml", "[data]\npath = \"x\"\n")},
       1,
       {"steps.toml", "job.steps, job.samples or job.epochs must be given"}},
      {"resume from nothing", {"submit", "--resume", f + "none"}, 1, {"no checkpoint at " + f + "none", "manifest"}},
      {"resume from a damaged checkpoint", {"submit", "--resume", damaged}, 1, {damaged + "/k.manifest", "damaged"}},
      {"resume another model",
       {"submit", write("model.toml", good_file + "[optimizer]\nkind = \"sgd\"\n"), "--resume", incomplete},
       1,
       {"model.toml", "optimizer.kind (\"sgd\", was \"adamw\")", incomplete, "leave out the job file"}},
      {"resume with another seed and batch",
       {"submit", "--resume", incomplete, "--set", "job.seed=7", "--set", "batch.global=32"},
       1,
       {"--set: job.seed (7, was 1), batch.global (32, was 16)", incomplete, "--allow-change"}},
      {"resume other data",
       {"submit", write("tokens.toml", good_file + "kind = \"tokens\"\n"), "--resume", incomplete},
       1,
       {"tokens.toml", "data.kind (\"tokens\", was \"text\")", "--allow-change"}},
      {"a name that no checkpoint has", {"submit", "--resume", "gpt-77"}, 1, {"gpt-77", "`parcae checkpoints`"}},
      {"a change of what is no key",
       {"submit", good, "--set", "model.widht=3"},
       1,
       {"--set model.widht=3", "\"width\"?"}},
      {"a job that nothing can run", {"submit", good, "--check"}, 1, {"waits for workers", "parcae-node"}},
      {"resume without a step left",
       {"submit", write("short.toml", "[job]\nsteps = 10\n" + good_file.substr(good_file.find("[model]"))), "--resume",
        incomplete},
       1,
       {"short.toml", "job.steps", "already has 10 steps", "larger"}},
      {"no such job", {"status", "99"}, 1, {"no such job: 99", "parcae status"}},
      {"no such job to watch", {"watch", "99"}, 1, {"no such job: 99", "parcae status"}},
      {"no such job to cancel", {"cancel", "99"}, 1, {"no such job: 99", "parcae status"}},
      {"a job that is cancelled already", {"cancel", "2"}, 1, {"the job has ended"}},
      {"no such job to export", {"export", "99", "--output", f + "x"}, 1, {"no such job: 99", "parcae status"}},
      {"nothing to export yet", {"export", "1", "--output", f + "x"}, 1, {"job 1", "no keeper holds"}},
      {"no checkpoint to export", {"export", f + "none", "--output", f + "x"}, 1, {"no checkpoint at " + f + "none"}},
      {"only damaged checkpoints to export",
       {"export", f + "all", "--output", f + "x"},
       1,
       {"no checkpoint at " + f + "all", "all/damaged/k.manifest", "damaged"}},
      {"only half a checkpoint to export",
       {"export", f + "parts", "--output", f + "x"},
       1,
       {"layers 2 ", f + "parts/incomplete", "one folder"}},
      {"half a checkpoint to export", {"export", incomplete, "--output", f + "x"}, 1, {"layers 2 ", "one folder"}},
      {"no such instance", {"preempt", "nobody"}, 1, {"no such instance: nobody", "parcae status"}},
      {"too few instances", {"preempt", "--any", "50"}, 1, {"50 asked for, 0 workers"}},
      {"manager's port is taken",
       {"manager", "--listen", manager, "--state", f + "manager"},
       1,
       {manager, "another manager"}},
      {"profile on some GPU",
       {"profile", good, "--output", f + "x", "--device", "auto"},
       2,
       {"--device auto", "for example cuda:0"}},
      {"profile on two GPUs",
       {"profile", good, "--output", f + "x", "--device", "cuda:GPU-1,GPU-2"},
       2,
       {"--device cuda:GPU-1,GPU-2", "for example cuda:0"}},
      {"profile on a GPU by name that is not there",
       {"profile", good, "--output", f + "x", "--device", "cuda:GPU-1"},
       1,
       {"--device cuda:GPU-1"}},
      {"profile on a GPU that is not there",
       {"profile", good, "--output", f + "x", "--device", "cuda:9"},
       1,
       {"--device cuda:9"}},
      {"no such profile", {"simulate", "--profile", f + "no", "--trace", f + "no"}, 1, {f + "no", "cannot be opened"}},
      {"not a profile", {"simulate", "--profile", f + "not-json", "--trace", f + "no"}, 1, {f + "not-json"}},
      {"no such trace", {"forecast", "--trace", f + "no"}, 1, {f + "no", "cannot be opened"}},
      {"a kind of trace that there is not", {"forecast", "--trace", "nope:1"}, 1, {"nope:1", "KIND:SEED", "bursty"}},
      {"a trace of one moment",
       {"forecast", "--trace", write("moment", "0,add,a\n")},
       1,
       {f + "moment", "one interval only"}},
      {"a trace too short to forecast",
       {"forecast", "--trace", write("short", "0,add,a\n60000,add,b\n")},
       1,
       {f + "short", "2 intervals", "--warm-up 30"}},
      {"a trace for the demo that is none",
       {"demo", "--trace", write("demo", "0,add,a\n1,remove,b\n")},
       1,
       {f + "demo: line 2", "removes b"}},
      {"an empty trace", {"forecast", "--trace", f + "empty"}, 1, {f + "empty", "no intervals"}},
      {"no manager",
       {"status", "--manager", "127.0.0.1:1"},
       1,
       {"no manager at 127.0.0.1:1", "`parcae manager`", "--manager"}},
  };
  for (const auto& x : table) {
    auto arguments = x.arguments;
    // Others than these would take the manager's address for a second one, or not at all.
    const bool asks = !arguments.empty() && std::ranges::find(arguments, "--manager") == arguments.end() &&
                      (arguments[0] == "submit" || arguments[0] == "status" || arguments[0] == "cancel" ||
                       arguments[0] == "export" || arguments[0] == "preempt" || arguments[0] == "watch");
    check(x, run(arguments, asks));
  }
}

// given: nodes started wrongly / expected: the table; what they log before is on lines of its own
TEST_F(error, nodes) {
  const auto f = folder.path().string() + "/";
  const auto manager = to_string(cluster->where());
  cluster->start_node("a");
  wait_for_workers(1);
  const row table[] = {
      {"unknown role", {"--role", "boss"}, 2, {"parcae-node: --role", "boss", "parcae-node -h"}},
      {"no slots", {"--slots", "0"}, 2, {"--slots", "parcae-node -h"}},
      {"unknown device", {"--device", "abacus"}, 2, {"--device", "abacus", "parcae-node -h"}},
      {"grace that is no duration", {"--grace", "soon"}, 2, {"--grace", "soon", "must be like"}},
      {"unknown fault", {"--fault", "sneeze"}, 2, {"sneeze"}},
      {"no address", {"--manager", "nowhere"}, 2, {"nowhere", "HOST:PORT"}},
      {"loader log that cannot be written", {"--loader-log", f + "no/log", "--manager", manager}, 1, {f + "no/log"}},
      {"checkpoints that cannot be written",
       {"--role", "keeper", "--state", write("state", ""), "--manager", manager},
       1,
       {f + "state", "File exists", "--state"}},
      {"a name twice", {"--name", "a", "--manager", manager}, 1, {"living instance has that name", "--name"}},
      {"a name with a space", {"--name", "a b", "--manager", manager}, 1, {"name", "without spaces"}},
  };
  for (const auto& x : table) {
    auto arguments = x.arguments;
    arguments.insert(arguments.begin(), sibling_program("parcae-node"));
    auto y = run_program(arguments);
    y.error.erase(0, std::min(y.error.find("parcae-node: "), y.error.size()));
    check(x, y);
  }
}

// given: jobs that no node can run / expected: submit --wait ends with 1 and the reason
TEST_F(error, jobs) {
  start_nodes({"a"});
  const auto incomplete = incomplete_checkpoint("incomplete");
  auto text = good_file;
  text.replace(text.find("/usr"), std::string("/usr/share/common-licenses/GPL-3").size(), "/no/such/text");
  auto x = run({"submit", write("data.toml", text), "--wait"});
  EXPECT_EQ(x.status, 1);
  EXPECT_THAT(x.error, HasSubstr("warning: /no/such/text is not on this machine"));
  EXPECT_THAT(x.error, HasSubstr("parcae: job 1 failed: data /no/such/text"));
  x = run({"submit", "--resume", incomplete, "--wait"});
  EXPECT_EQ(x.status, 1);
  EXPECT_THAT(x.error, HasSubstr("parcae: job 2 failed: layers 2 of the checkpoint of step 10 are lost"));
}

} // namespace
} // namespace parcae

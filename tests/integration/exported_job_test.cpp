// Jobs with exported models, from the folder that Python wrote to the parameters at the end.

#include "tests/support/cluster.hpp"

#include <csignal>
#include <fstream>

namespace parcae {
namespace {

const std::filesystem::path models = PARCAE_EXPORTED_MODELS;

struct exported_job : cluster_test {
  std::string job_file(const std::string& model, const std::string& rest) {
    const auto path = folder.path() / (model + ".toml");
    std::ofstream(path) << "[model]\nkind = \"exported\"\npath = \"" << (models / model).string() << "\"\n" << rest;
    return path.string();
  }

  std::uint64_t submit(const std::string& file) {
    const auto x = run({"submit", file});
    EXPECT_EQ(x.status, 0) << x.error;
    return x.status == 0 ? std::stoull(x.output) : 0;
  }

  job_status undisturbed(const std::string& file) {
    start("undisturbed");
    cluster->start_keeper();
    cluster->start_node("alone");
    return wait_for_end(submit(file));
  }

  /// Takes away a worker that has a place, with notice or without, and brings another; so often.
  void preempt(std::uint64_t id, int times) {
    int next = 3;
    std::uint64_t seen = 0;
    for (int i = 0; i < times; ++i) {
      const auto now = wait_for_job(id, "steps before the next preemption", [&](const job_status& j) {
        return j.state != "running" || (j.phase == "running" && !j.grid.empty() && j.steps_done >= seen + 2);
      });
      ASSERT_EQ(now.state, "running") << "it ended after " << i << " preemptions: " << now.problem;
      seen = now.steps_done;
      const auto& place = now.grid.at(static_cast<std::size_t>(i) % now.grid.size());
      cluster->node(place.substr(0, place.find('/'))).signal(i % 3 == 2 ? SIGTERM : SIGKILL);
      cluster->start_node("w" + std::to_string(next++));
    }
  }
};

// given: Hugging Face's GPT-2 with dropout and tied embeddings, a job in which 20 workers that had a place went, every
// third with notice / expected: the parameters of the undisturbed run, bit for bit
TEST_F(exported_job, twenty_preemptions_cost_no_bit) {
  const auto file = job_file("gpt2_dropout", R"(
[job]
steps = 1500
evaluate_every = 500
[data]
kind = "text"
path = "/usr/share/common-licenses/GPL-3"
validation = 20
[batch]
global = 8
micro = 2
[optimizer]
clip_norm = 1.0
[keepers]
every = 5
)");
  cluster->start_keeper();
  for (auto name : {"w0", "w1", "w2"})
    cluster->start_node(name);
  wait_for_workers(3);
  const auto id = submit(file);
  preempt(id, 20);
  const auto end = wait_for_end(id);
  EXPECT_EQ(end.state, "done") << end.problem;
  EXPECT_EQ(end.steps_done, 1500u);
  EXPECT_GE(end.generation, 15u) << "preemptions fell together";
  EXPECT_FALSE(end.parameters_sha256.empty());
  EXPECT_EQ(end.parameters_sha256, undisturbed(file).parameters_sha256);
}

// given: Hugging Face's BERT for classification with dropout, on data with token types and a mask, three preemptions /
// expected: the parameters of the undisturbed run; the validation loss falls below that of guessing
TEST_F(exported_job, masks_reach_every_stage) {
  const auto file = job_file("classifier_dropout", R"(
[job]
steps = 300
evaluate_every = 100
[data]
kind = "columns"
path = ")" + (models / "classifier_dropout/data").string() +
                                                       R"("
validation = 40
[batch]
global = 16
micro = 4
[optimizer]
learning_rate = 0.003
[parallel]
min_depth = 2
[keepers]
every = 5
)");
  cluster->start_keeper();
  for (auto name : {"w0", "w1", "w2"})
    cluster->start_node(name);
  wait_for_workers(3);
  const auto id = submit(file);
  preempt(id, 3);
  const auto end = wait_for_end(id);
  EXPECT_EQ(end.state, "done") << end.problem;
  EXPECT_LT(end.validation_loss, 1.5) << "ln 5 is 1.61";
  EXPECT_FALSE(end.parameters_sha256.empty());
  auto alone = content(file);
  alone.replace(alone.find("min_depth = 2"), 13, "min_depth = 1");
  std::ofstream(file) << alone;
  EXPECT_EQ(end.parameters_sha256, undisturbed(file).parameters_sha256);
}

// given: a ResNet-18 with BatchNorm, recomputation / expected: the same, running statistics among it
TEST_F(exported_job, running_statistics_go_along) {
  const auto file = job_file("resnet18", R"(
[job]
steps = 60
[data]
kind = "synthetic"
samples = 1000
[batch]
global = 8
micro = 2
[optimizer]
kind = "sgd"
[parallel]
recompute = true
min_depth = 2
max_depth = 3
[keepers]
every = 2
)");
  cluster->start_keeper();
  for (auto name : {"w0", "w1", "w2"})
    cluster->start_node(name);
  wait_for_workers(3);
  const auto id = submit(file);
  preempt(id, 4);
  const auto end = wait_for_end(id);
  EXPECT_EQ(end.state, "done") << end.problem;
  EXPECT_FALSE(end.parameters_sha256.empty());
  auto alone = content(file);
  alone.replace(alone.find("min_depth = 2"), 13, "min_depth = 1");
  std::ofstream(file) << alone;
  EXPECT_EQ(end.parameters_sha256, undisturbed(file).parameters_sha256);
}

// given: a folder that is not there, a model of another version, and weights that changed after submit was asked /
// expected: refused before a step, with a line that says where
TEST_F(exported_job, what_is_wrong_is_said_at_submit) {
  const std::string rest = "[job]\nsteps = 1000\n[data]\nkind = \"synthetic\"\n[batch]\nglobal = 4\nmicro = 2\n";
  const auto missing = run({"submit", job_file("nothing", rest)});
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.error, testing::HasSubstr("nothing/model.json"));
  EXPECT_THAT(missing.error, testing::HasSubstr("nothing.toml:3:"));
  const auto copy = folder.path() / "copy";
  std::filesystem::copy(models / "mixer", copy);
  auto text = content(copy / "model.json");
  text.replace(text.find("\"version\": 1"), 12, "\"version\": 9");
  std::ofstream(copy / "model.json") << text;
  const auto file = folder.path() / "copy.toml";
  std::ofstream(file) << "[model]\nkind = \"exported\"\npath = \"" << copy.string() << "\"\n" << rest;
  const auto other = run({"submit", file.string()});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.error, testing::HasSubstr("version 9 of the format"));
  // The values are only looked at on the nodes.
  text.replace(text.find("\"version\": 9"), 12, "\"version\": 1");
  std::ofstream(copy / "model.json") << text;
  {
    std::fstream weights(copy / "weights.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    weights.seekp(-2, std::ios::end);
    weights.put('\x55');
  }
  cluster->start_keeper();
  cluster->start_node("w0");
  wait_for_workers(1);
  const auto end = wait_for_end(submit(file.string()));
  EXPECT_EQ(end.state, "failed");
  EXPECT_EQ(end.steps_done, 0u);
  EXPECT_THAT(end.problem, testing::HasSubstr("has other values of"));
}

} // namespace
} // namespace parcae

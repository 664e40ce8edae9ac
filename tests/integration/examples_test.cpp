// Each job file of deploy/examples runs as it is, but for the number of its steps and, if a script beside it makes its
// data, the folder of that.

#include "tests/support/cluster.hpp"

#include <algorithm>
#include <map>
#include <regex>

namespace parcae {
namespace {

std::vector<std::string> all_examples() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(PARCAE_EXAMPLES))
    if (entry.path().extension() == ".toml" && entry.path().stem() != "serve") // which has no end
      names.push_back(entry.path().stem());
  std::ranges::sort(names);
  return names;
}

class examples : public cluster_test, public testing::WithParamInterface<std::string> {};

// given: a keeper, two workers, the example with the length of its training cut / expected: `submit --wait` ends well;
// parameters
TEST_P(examples, runs_to_the_end) {
  auto text = content(std::filesystem::path(PARCAE_EXAMPLES) / (GetParam() + ".toml"));
  const auto maker = std::filesystem::path(PARCAE_EXAMPLES) / "data" / ("make_" + GetParam() + ".py");
  if (std::filesystem::exists(maker)) {
    const auto made = folder.path() / "data";
    const auto outcome = run_program({"/usr/bin/python3", maker.string(), made.string()});
    ASSERT_EQ(outcome.status, 0) << outcome.error;
    text = std::regex_replace(text, std::regex("/tmp/parcae-" + GetParam()), made.string());
  }
  const std::regex length("\\n(steps|samples|epochs) = ([\\d.]+)"); // the first is that of [job]
  std::smatch found;
  ASSERT_TRUE(std::regex_search(text, found, length));
  const auto file = folder.path() / "job.toml";
  const std::map<std::string, std::string> cut{{"samples", "320"}, {"steps", "20"}, {"epochs", "0.1"}};
  std::ofstream(file) << found.prefix() << "\n" << found[1] << " = " << cut.at(found[1]) << found.suffix();
  start_nodes({"a", "b"});
  run_well({"submit", file.string(), "--wait"});
  const auto jobs = cluster->client().status().jobs;
  ASSERT_EQ(jobs.size(), 1u);
  const auto& job = jobs[0];
  EXPECT_EQ(job.name, GetParam());
  EXPECT_EQ(job.state, "done") << job.problem;
  EXPECT_EQ(job.steps_done, job.steps);
  if (found[1] == "epochs")
    EXPECT_THAT(job.steps, testing::AllOf(testing::Gt(15u), testing::Lt(60u))) << "a tenth of the text";
  else
    EXPECT_EQ(job.steps, 20u);
  EXPECT_FALSE(job.parameters_sha256.empty());
}

// given: gpt.toml as it is / expected: its loss falls far, and never rises by much over what it was before
TEST_F(cluster_test, gpt_has_no_spike) {
  start_nodes({"a", "b"});
  const auto submitted = run({"submit", std::string(PARCAE_EXAMPLES) + "/gpt.toml"});
  ASSERT_EQ(submitted.status, 0) << submitted.error;
  const auto losses = wait_for_end(1).losses;
  ASSERT_GT(losses.size(), 100u);
  double least = losses.front().loss;
  for (const auto& x : losses) {
    EXPECT_LT(x.loss, least + 0.5) << "step " << x.steps; // of one batch: 0.3 is noise
    least = std::min(least, x.loss);
  }
  EXPECT_LT(losses.back().loss, losses.front().loss / 2);
}

// given: recipe.toml, short, and the command in it that makes a job longer / expected: that goes on where the first
// ended, to twice as many passes over the data
TEST_F(cluster_test, recipe_is_made_longer) {
  const auto file = std::string(PARCAE_EXAMPLES) + "/recipe.toml";
  ASSERT_THAT(content(file), testing::HasSubstr("parcae submit --resume NAME --set job.epochs="));
  start_nodes({"a"});
  const auto first = run({"submit", file, "--set", "job.epochs=0.1", "--wait"});
  ASSERT_EQ(first.status, 0) << first.error;
  const auto before = job_of(cluster->client().status(), 1);
  ASSERT_FALSE(before.checkpoint_folders.empty());
  const auto longer =
      run({"submit", "--resume", before.checkpoint_folders[0].folder, "--set", "job.epochs=0.2", "--wait"});
  ASSERT_EQ(longer.status, 0) << longer.error;
  const auto end = job_of(cluster->client().status(), 2);
  EXPECT_NEAR(static_cast<double>(end.steps), 2.0 * static_cast<double>(before.steps), 1.0);
  EXPECT_EQ(end.steps_done, end.steps);
  EXPECT_EQ(end.chain.at(0).last, before.steps) << "it is the first job's version";
}

INSTANTIATE_TEST_SUITE_P(deploy, examples, testing::ValuesIn(all_examples()), [](const auto& x) { return x.param; });

} // namespace
} // namespace parcae

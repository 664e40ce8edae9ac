// Each job file of deploy/examples runs as it is, but for the number of its steps and, if a script beside it makes its
// data, the folder of that.

#include "tests/support/cluster.hpp"

#include <algorithm>
#include <regex>

namespace parcae {
namespace {

std::vector<std::string> all_examples() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(PARCAE_EXAMPLES))
    if (entry.path().extension() == ".toml")
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
  std::ofstream(file) << found.prefix() << "\n"
                      << (found[1] == "samples" ? "samples = 320" : "steps = 20") << found.suffix();
  cluster->start_keeper();
  cluster->start_node("a");
  cluster->start_node("b");
  wait_for_workers(2);
  const auto submitted = run({"submit", file.string(), "--wait"});
  EXPECT_EQ(submitted.status, 0) << submitted.error;
  const auto jobs = cluster->client().status().jobs;
  ASSERT_EQ(jobs.size(), 1u);
  const auto& job = jobs[0];
  EXPECT_EQ(job.name, GetParam());
  EXPECT_EQ(job.state, "done") << job.problem;
  EXPECT_EQ(job.steps_done, 20u);
  EXPECT_FALSE(job.parameters_sha256.empty());
}

INSTANTIATE_TEST_SUITE_P(deploy, examples, testing::ValuesIn(all_examples()), [](const auto& x) { return x.param; });

} // namespace
} // namespace parcae

// Jobs on files that go while they are read, or that have what cannot be trained on: by real executors
// over real connections, driven by the real conductor.

#include "tests/support/data_folder.hpp"
#include "tests/support/executor_cluster.hpp"
#include "tests/support/names.hpp"

#include <fstream>
#include <string>

namespace parcae {
namespace {

struct data_jobs : testing::Test {
  data_folder data;

  static job_specification job_on(const std::string& path, std::uint32_t token_bytes) {
    auto job = small_job();
    job.data = {.kind = "tokens", .path = path, .token_bytes = token_bytes};
    return job;
  }

  static bool says(const executor_cluster& cluster, const std::string& text) {
    return std::ranges::any_of(cluster.log(), [&](const auto& line) { return line.find(text) != line.npos; });
  }
};

// given: a file that becomes shorter while two train, and is whole again later / expected: it is named, nobody dies,
// and the parameters at the end are those of the undisturbed run
TEST_F(data_jobs, file_that_shrinks_costs_no_bit) {
  const auto path = data.large_tokens();
  auto job = job_on(path, 4);
  job.steps = 100;
  std::filesystem::copy_file(path, path + ".whole");
  executor_cluster cluster(job);
  cluster.add_keeper("keeper");
  cluster.add_workers({"a", "b"});
  ASSERT_TRUE(cluster.run_until([&] { return cluster.view().steps_done > 5; }));
  std::filesystem::resize_file(path, 4096);
  ASSERT_TRUE(cluster.run_until([&] { return says(cluster, path + ": has become shorter: nothing is at byte "); }))
      << cluster.log().back();
  { // the same file, whole again
    std::ifstream from(path + ".whole", std::ios::binary);
    std::fstream to(path, std::ios::binary | std::ios::in | std::ios::out);
    to << from.rdbuf();
  }
  ASSERT_TRUE(cluster.run_until_ended()) << cluster.log().back();
  EXPECT_TRUE(cluster.good());
  EXPECT_EQ(cluster.final_digest(), undisturbed_digest(job));
}

// given: a token beyond the vocabulary in each sample but those tried at once, and an image that is damaged / expected:
// the job ends, and says in which file and where
TEST_F(data_jobs, what_cannot_be_trained_on_ends_the_job) {
  const auto tokens = data.large_tokens();
  auto job = job_on(tokens, 4);
  const auto samples = ((std::uint64_t{9} << 20) - 1) / job.model.sequence, tried = samples / 64;
  {
    std::fstream file(tokens, std::ios::binary | std::ios::in | std::ios::out);
    for (std::uint64_t i = 0; i < samples; ++i)
      if (i % tried != 0) {
        file.seekp(static_cast<std::streamoff>(4 * (i * job.model.sequence + 9) + 1));
        file.put('\1');
      }
  }
  executor_cluster cluster(job);
  cluster.add_keeper("keeper");
  cluster.add_worker("a");
  cluster.run_until_ended();
  ASSERT_TRUE(cluster.ended());
  EXPECT_FALSE(cluster.good());
  EXPECT_THAT(cluster.view().problem, HasSubstr("a/0: data " + tokens + ": token "));
  EXPECT_THAT(cluster.view().problem, HasSubstr(", the vocabulary has 256 (at byte "));

  const auto images = data.images();
  std::ofstream(images + "/b/1.jpg") << "\xff\xd8\xff no more";
  job.model = {.kind = "resnet", .layers = 8, .width = 4, .image = 16, .classes = 3};
  job.data = {.kind = "image_folder", .path = images};
  executor_cluster other(job);
  other.add_keeper("keeper");
  other.add_worker("a");
  other.run_until_ended();
  ASSERT_TRUE(other.ended());
  EXPECT_THAT(other.view().problem, HasSubstr("a/0: data " + images + "/b/1.jpg: "));
}

} // namespace
} // namespace parcae

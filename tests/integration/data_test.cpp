// Jobs on data of every kind, by real processes: what it costs a node, and what it says when the data is not what it
// was.

#include "tests/support/cluster.hpp"
#include "tests/support/data_folder.hpp"

#include <chrono>
#include <csignal>
#include <fstream>

namespace parcae {
namespace {

using testing::HasSubstr;

struct data_job : cluster_test {
  data_folder data;

  std::filesystem::path sparse(const std::string& name, std::uint64_t bytes) const {
    const auto path = data.path() / name;
    std::ofstream{path};
    std::filesystem::resize_file(path, bytes);
    return path;
  }

  job_specification job_on(data_specification what, std::uint64_t steps) {
    auto job = small_job(steps);
    job.data = std::move(what);
    return job;
  }

  /// The node's own memory and what it maps of files, kB.
  static std::uint64_t memory_of(const child_process& node) {
    std::ifstream status("/proc/" + std::to_string(node.pid()) + "/status");
    std::uint64_t result = 0;
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("RssAnon:") || line.starts_with("RssFile:"))
        result += std::stoull(line.substr(line.find(':') + 1));
    return result;
  }

  /// Runs the job for some steps on a fresh node; what it took from submit to the first step, and the node's memory
  /// then.
  std::pair<std::chrono::duration<double>, std::uint64_t> first_steps(const std::string& name,
                                                                      const job_specification& job) {
    start(name);
    cluster->start_keeper();
    cluster->start_node("a");
    wait_for_workers(1);
    const auto began = std::chrono::steady_clock::now();
    const auto id = cluster->client().submit(job);
    wait_for_job(id, "a step", [](const job_status& j) { return j.steps_done > 0 || j.state == "failed"; });
    const auto took = std::chrono::steady_clock::now() - began;
    const auto now = wait_for_job(id, "a hundred steps",
                                  [](const job_status& j) { return j.steps_done > 100 || j.state == "failed"; });
    EXPECT_EQ(now.problem, "");
    return {took, memory_of(cluster->node("a"))};
  }
};

// given: the same job on a file of 4 KiB, and on one of 4 GiB / expected: the first step less than 2 s later, and less
// than 50 MiB more memory, mapped files included
TEST_F(data_job, four_gibibytes_cost_neither_memory_nor_time) {
  const auto small = first_steps("small", job_on({.kind = "tokens", .path = sparse("small", 4096)}, 1'000'000));
  const auto large =
      first_steps("large", job_on({.kind = "tokens", .path = sparse("large", std::uint64_t{4} << 30)}, 1'000'000));
  RecordProperty("small_s", std::to_string(small.first.count()));
  RecordProperty("large_s", std::to_string(large.first.count()));
  RecordProperty("more_kib", std::to_string(static_cast<double>(large.second) - static_cast<double>(small.second)));
  EXPECT_LT(large.first - small.first, std::chrono::seconds(2));
  EXPECT_LT(large.second, small.second + 50 * 1024);
}

// given: a file that becomes shorter while two nodes train, and is whole again later / expected: the nodes live and say
// which file; the job goes on with the bits of the undisturbed run
TEST_F(data_job, a_file_that_shrinks_ends_no_process) {
  const auto path = data.large_tokens();
  auto job = job_on({.kind = "tokens", .path = path, .token_bytes = 4}, 400);
  cluster->start_keeper();
  for (const auto* name : {"a", "b"})
    cluster->start_node(name);
  wait_for_workers(2);
  const auto id = cluster->client().submit(job);
  wait_for_job(id, "some steps", [](const job_status& j) { return j.steps_done > 20; });
  std::filesystem::copy_file(path, path + ".whole");
  std::filesystem::resize_file(path, 4096);
  cluster->wait_for("a word on it", limit, [&](const status_reply& s) {
    const auto j = job_of(s, id);
    return std::ranges::any_of(
        j.events, [&](const auto& e) { return e.text.find(path + ": has become shorter") != e.text.npos; });
  });
  for (const auto* name : {"a", "b"})
    EXPECT_FALSE(cluster->node(name).wait(std::chrono::seconds(0))) << name << " has ended";
  { // in place: the same file
    std::ifstream from(path + ".whole", std::ios::binary);
    std::ofstream(path, std::ios::binary | std::ios::in) << from.rdbuf();
  }
  const auto end = wait_for_end(id);
  EXPECT_EQ(end.state, "done") << end.problem;
  EXPECT_EQ(end.parameters_sha256, undisturbed(job).parameters_sha256);
}

// given: images in folders, trained with random parts and flips, while nodes come and go / expected: the parameters of
// the undisturbed run
TEST_F(data_job, images_are_exact_under_preemption) {
  auto job = job_on({.kind = "image_folder",
                     .path = data.images(),
                     .validation = 4,
                     .resize = 18,
                     .augment = "crop",
                     .flip = true,
                     .mean = {0.485, 0.456, 0.406},
                     .deviation = {0.229, 0.224, 0.225}},
                    300);
  job.model = {.kind = "resnet", .layers = 8, .width = 4, .image = 16, .classes = 3};
  job.micro_batch = 2;
  job.evaluate_every = 100;
  cluster->start_keeper();
  for (const auto* name : {"a", "b", "c"})
    cluster->start_node(name);
  wait_for_workers(3);
  const auto id = cluster->client().submit(job);
  std::uint64_t seen = 0;
  for (const auto* next : {"d", "e", "f"}) {
    const auto now = wait_for_job(id, "steps", [&](const job_status& j) {
      return j.state == "failed" || (j.phase == "running" && !j.grid.empty() && j.steps_done > seen + 10);
    });
    ASSERT_EQ(now.state, "running") << now.problem;
    seen = now.steps_done;
    cluster->node(now.grid.front().substr(0, now.grid.front().find('/'))).signal(SIGKILL);
    cluster->start_node(next);
  }
  const auto end = wait_for_end(id);
  EXPECT_EQ(end.state, "done") << end.problem;
  const auto expected = undisturbed(job);
  EXPECT_EQ(end.parameters_sha256, expected.parameters_sha256);
  EXPECT_EQ(end.validation_loss, expected.validation_loss);
}

// given: an image that is damaged, and a token beyond the vocabulary in a large file / expected: the job fails and says
// where
TEST_F(data_job, what_cannot_be_trained_on_is_named) {
  const auto images = data.images();
  std::ofstream(images + "/b/1.jpg") << "\xff\xd8\xff no more";
  auto job = job_on({.kind = "image_folder", .path = images}, 100);
  job.model = {.kind = "resnet", .layers = 8, .width = 4, .image = 16, .classes = 3};
  job.micro_batch = 2;
  cluster->start_keeper();
  cluster->start_node("a");
  EXPECT_THAT(wait_for_end(cluster->client().submit(job)).problem, HasSubstr(images + "/b/1.jpg: "));
  const auto tokens = data.large_tokens();
  {
    std::fstream file(tokens, std::ios::binary | std::ios::in | std::ios::out);
    for (int i = 0; i < 9 << 20; i += 50) { // no sample is without
      file.seekp(4 * i + 1);
      file.put('\x01');
    }
  }
  job = job_on({.kind = "tokens", .path = tokens, .token_bytes = 4}, 100);
  job.model.sequence = 100;
  EXPECT_THAT(wait_for_end(cluster->client().submit(job)).problem, HasSubstr(", the vocabulary has 256 (at byte "));
}

} // namespace
} // namespace parcae

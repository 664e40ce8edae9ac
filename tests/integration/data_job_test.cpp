// Jobs of real processes on large files: what those cost, and what a slow disk does to them.

#include "tests/support/cluster.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <sstream>

namespace parcae {
namespace {

struct data_job : cluster_test {
  /// Of a token of two bytes, all 0; takes no room.
  static std::string sparse(const std::filesystem::path& path, std::uint64_t bytes) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream{path};
    std::filesystem::resize_file(path, bytes);
    return path.string();
  }

  job_specification job_on(const std::string& path) {
    auto job = small_job(1'000'000);
    job.data = {.kind = "tokens", .path = path};
    return job;
  }

  struct cost {
    std::chrono::duration<double> first_step; ///< from submit, a worker is there
    double cpu_s;                             ///< of the worker until then
    std::uint64_t bytes;                      ///< the worker's own memory, and what it maps of files
  };

  static double processor_seconds(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text{std::istreambuf_iterator<char>(file), {}};
    std::istringstream behind_name(text.substr(text.rfind(')') + 1));
    std::string skipped;
    for (int i = 3; i < 14; ++i)
      behind_name >> skipped;
    double user = 0, system = 0;
    behind_name >> user >> system;
    return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }

  cost cost_on(const std::string& path) {
    start("measured" + std::to_string(++measured_));
    start_nodes({"a"});
    const auto began = std::chrono::steady_clock::now();
    const auto id = cluster->client().submit(job_on(path));
    wait_for_job(id, "the first step", [](const job_status& j) { return j.steps_done > 0; });
    const auto first_step = std::chrono::steady_clock::now() - began;
    const auto cpu_s = processor_seconds(cluster->node("a").pid());
    wait_for_job(id, "more steps", [](const job_status& j) { return j.steps_done >= 30; });
    std::ifstream status("/proc/" + std::to_string(cluster->node("a").pid()) + "/status");
    std::uint64_t bytes = 0;
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("RssAnon:") || line.starts_with("RssFile:"))
        bytes += 1024 * std::stoull(line.substr(line.find(':') + 1));
    EXPECT_GT(bytes, 0u);
    return {first_step, cpu_s, bytes};
  }

private:
  int measured_ = 0;
};

// given: a job on a file of 64 KiB, then the same on one of 4 GiB / expected: less than 50 MiB more, mapped files
// included, less than 0.5 s more of the processor before the first step (to read 4 GiB takes more), which is done less
// than 2 s later
TEST_F(data_job, four_gibibytes_cost_neither_memory_nor_time) {
  const auto small = cost_on(sparse(folder.path() / "small", 64 << 10));
  const auto path = sparse(folder.path() / "large", std::uint64_t{4} << 30);
  const auto large = cost_on(path);
  std::cout << "first step after " << small.first_step.count() << " s and " << large.first_step.count() << " s, "
            << small.cpu_s << " and " << large.cpu_s << " s of the processor, "
            << (static_cast<double>(large.bytes) - static_cast<double>(small.bytes)) / (1 << 20) << " MiB more\n";
  EXPECT_LT(large.first_step, small.first_step + std::chrono::seconds(2));
  EXPECT_LT(large.cpu_s, small.cpu_s + 0.5);
  EXPECT_LT(large.bytes, small.bytes + (50 << 20));
}

// given: a job on a disk that keeps up, takes 20 ms for each read for a while, and keeps up again / expected: nothing
// of it in `status`; then who waits for which file, while training goes on; then nothing again
TEST_F(data_job, a_slow_disk_is_named_in_status) {
  if (std::string_view(PARCAE_SLOW_DISK).empty())
    GTEST_SKIP() << "nothing can be preloaded before a sanitizer";
  const auto disk = folder.path() / "disk";
  const auto path = sparse(disk / "tokens", 64 << 20); // more than is held in memory
  ::setenv("LD_PRELOAD", PARCAE_SLOW_DISK, 1);
  ::setenv("PARCAE_SLOW_DISK", disk.c_str(), 1);
  cluster->start_node("a");
  ::unsetenv("LD_PRELOAD");
  ::unsetenv("PARCAE_SLOW_DISK");
  cluster->start_keeper();
  const auto id = cluster->client().submit(job_on(path));
  const auto wait_for_text = [&](const auto& expected) {
    std::string text;
    const auto end = std::chrono::steady_clock::now() + limit;
    do
      text = run({"status", std::to_string(id)}).output;
    while (!testing::Value(text, expected) && std::chrono::steady_clock::now() < end);
    EXPECT_THAT(text, expected);
  };
  wait_for_job(id, "steps", [](const job_status& j) { return j.steps_done >= 30; });
  wait_for_text(Not(HasSubstr("a step for data")));
  std::ofstream{disk.string() + ".slow"};
  wait_for_text(HasSubstr("ms a step for data: a/0: " + path));
  const auto slow = job_of(cluster->client().status(), id);
  EXPECT_EQ(slow.phase, "running");
  EXPECT_GT(slow.data_wait_ms, 0);
  wait_for_job(id, "more steps", [&](const job_status& j) { return j.steps_done >= slow.steps_done + 5; });
  std::filesystem::remove(disk.string() + ".slow");
  wait_for_text(Not(HasSubstr("a step for data")));
  EXPECT_EQ(job_of(cluster->client().status(), id).chain.size(), 1u) << "nothing was disturbed";
}

} // namespace
} // namespace parcae

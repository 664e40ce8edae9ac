// How LibTorch's memory is had after the settings were made.

#include "gpu/executor/memory_settings.hpp"
#include "tests/support/resident_memory.hpp"

#include <ATen/ops/ones.h>

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <latch>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace parcae {
namespace {

std::string text_of(const char* path) {
  std::ifstream in(path);
  std::ostringstream result;
  result << in.rdbuf();
  return result.str();
}

/// Of this process, in KiB.
long in_huge_pages() {
  const auto all = text_of("/proc/self/smaps_rollup");
  const auto found = all.find("AnonHugePages:");
  return found == std::string::npos ? 0 : std::stol(all.substr(all.find(':', found) + 1));
}

// given: a system that gives huge pages to who asks / expected: a large tensor is in them
TEST(memory_settings, large_tensors_have_huge_pages) {
  const auto given = text_of("/sys/kernel/mm/transparent_hugepage/enabled");
  if (given.empty() || given.find("[never]") != std::string::npos)
    GTEST_SKIP() << "this system has no huge pages: " << given;
  keep_memory_for_tensors();
  const auto x = at::ones({32 << 20});
  EXPECT_GE(in_huge_pages(), 64 << 10); // of 128 MiB: a system may be short of them
}

// given: many threads that live at once, of which one after the other starts, takes a tensor, and frees it / expected:
// what a few of them had is kept, not what each had
// A thread that starts while a tensor is there may take its few bytes behind it: the next tensor has no room there.
TEST(memory_settings, threads_do_not_keep_a_tensor_each) {
  keep_memory_for_tensors();
  constexpr int count = 48;
  constexpr long tensor_kib = 20 << 10; // of what stays with the process
  const auto before = resident_kib();
  std::atomic<int> freed = 0;
  std::latch all(count);
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&] {
      at::ones({tensor_kib << 8});
      ++freed;
      freed.notify_one();
      all.arrive_and_wait();
    });
    freed.wait(i);
  }
  for (auto& x : threads)
    x.join();
  EXPECT_LT(resident_kib() - before, 12 * tensor_kib); // of 48, and with eight arenas a core 31
}

} // namespace
} // namespace parcae

// How LibTorch's memory is had after the settings were made.

#include "gpu/training/memory_settings.hpp"

#include <ATen/ops/ones.h>

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

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

} // namespace
} // namespace parcae

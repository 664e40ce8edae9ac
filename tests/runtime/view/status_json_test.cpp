// `status --json` byte for byte: programs read it.

#include "runtime/view/status_json.hpp"
#include "tests/support/client_samples.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

namespace parcae {
namespace {

/// What is in a file, separated by empty lines, each in one line: the file has a line for each value, for who reads it.
std::vector<std::string> recorded(const std::string& name) {
  std::ifstream file(RECORDED "/" + name);
  std::vector<std::string> result(1);
  for (std::string line; std::getline(file, line);)
    if (line.empty())
      result.emplace_back();
    else
      result.back() += line;
  return result;
}

/// Else says where they first differ: each is some thousand characters.
void expect_recorded(const std::string& json, const std::string& expected) {
  const auto differ = std::ranges::mismatch(json, expected);
  const auto from = static_cast<std::size_t>(std::max<std::ptrdiff_t>(differ.in1 - json.begin() - 60, 0));
  EXPECT_TRUE(json == expected) << "now      …" << json.substr(from, 120) << "\nrecorded …"
                                << expected.substr(from, 120)
                                << "\nA field that was added is added to " RECORDED "/status.json, a line each.";
}

// given: a status with something in every field, and one of jobs that have not begun, have diverged, or come from a
// manager that does not tell lives / expected: the JSON that was recorded
TEST(status_json, is_as_recorded) {
  const auto expected = recorded("status.json");
  ASSERT_EQ(expected.size(), 3u);
  expect_recorded(json_of(sample_status()), expected[0]);
  expect_recorded(json_of({}), expected[1]);
  auto odd = sample_status();
  odd.jobs.insert(odd.jobs.begin(), job_status{});
  auto& diverged = odd.jobs.back();
  diverged.loss = std::nan("");
  diverged.validation_loss = -std::numeric_limits<double>::infinity();
  diverged.gradient_norm = std::numeric_limits<double>::infinity();
  diverged.losses.back().loss = std::nan("");
  diverged.width = 1;
  diverged.depth = 2;
  diverged.grid_incarnations.clear();
  diverged.configurations.push_back({1, 1, 10, 11, 12, 13, 0, 0, false});
  diverged.configurations.push_back({1, 2, 10, 11, 12, 13, 5, 1, false});
  odd.instances.back().gpus = {{"cuda:0", 97, 64, "power", 3, 1, 63, "none"}};
  odd.instances.back().pool = "w2a-spot";
  odd.instances.back().slot_bytes = std::uint64_t{80} << 30;
  odd.market = sample_market();
  odd.jobs.push_back(sample_job_status());
  odd.jobs.back().loss_steps = odd.jobs.back().evaluated_steps = -1;
  expect_recorded(json_of(odd), expected[2]);
}

} // namespace
} // namespace parcae

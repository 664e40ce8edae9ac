// The demo itself: what it promises, it did. Two seeds.

#include "runtime/child/process.hpp"

#include <boost/json.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>

namespace parcae {
namespace {

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class demo : public testing::TestWithParam<int> {};

// given: `parcae demo` as users run it, with more steps, so that a fast machine does not end before all was shown /
// expected: exit status 0, identical parameters, and every count that it is to show
TEST_P(demo, shows_everything_and_changes_no_bit) {
  const scratch_folder folder("parcae-demo-test");
  const auto out = folder.path() / "out", error = folder.path() / "error";
  child_process process(
      {{sibling_program("parcae"), "demo", "--json", "--steps", "1900", "--seed", std::to_string(GetParam())},
       out,
       error});
  ASSERT_EQ(process.wait(std::chrono::minutes(8)), 0) << content(error);
  std::string line;
  std::ifstream lines(out);
  for (std::string next; std::getline(lines, next);)
    line = next;
  auto said = boost::json::parse(line).as_object();
  const auto count = [](const boost::json::object& x, const char* key) { return x.at(key).to_number<std::uint64_t>(); };
  EXPECT_TRUE(said.at("identical").as_bool());
  EXPECT_EQ(count(said, "steps"), 1900u);
  EXPECT_GE(count(said, "preemptions"), 15u);
  EXPECT_GE(count(said, "preemptions_without_notice"), 8u);
  EXPECT_GE(count(said, "simultaneous_losses"), 1u);
  EXPECT_GE(count(said, "losses_during_change"), 1u);
  EXPECT_GE(count(said, "stage_losses"), 1u);
  for (const auto* kind : {"intra_stage", "inter_stage", "pipeline"})
    EXPECT_GE(count(said.at("migrations").as_object(), kind), 3u) << kind;
  if (HasFailure()) {
    said.erase("changes");
    std::cout << boost::json::serialize(said) << "\n" << content(error);
  }
}

INSTANTIATE_TEST_SUITE_P(seeds, demo, testing::Values(1, 2));

} // namespace
} // namespace parcae

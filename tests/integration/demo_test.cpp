// The demo itself: what it promises, it did. Two seeds.

#include "runtime/child/process.hpp"
#include "tests/support/files.hpp"

#include <boost/json.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

namespace parcae {
namespace {

// That process's own child whose command line has the word; 0: none yet.
pid_t child_with(pid_t parent, const std::string& word) {
  const auto process = [](pid_t id) { return "/proc/" + std::to_string(id); };
  std::istringstream children(content(process(parent) + "/task/" + std::to_string(parent) + "/children"));
  for (pid_t id = 0; children >> id;)
    if (content(process(id) + "/cmdline").find(word) != std::string::npos)
      return id;
  return 0;
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

// given: the demo's manager stands still for longer than a command waits for an answer / expected: the demo goes on
TEST(frozen_demo, waits_for_a_manager_that_stands_still) {
  const scratch_folder folder("parcae-demo-test");
  const auto out = folder.path() / "out", error = folder.path() / "error";
  child_process process({{sibling_program("parcae"), "demo", "--json", "--steps", "400"}, out, error});
  pid_t manager = 0;
  for (int i = 0; i < 600 && (manager = child_with(process.pid(), "manager")) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ASSERT_NE(manager, 0);
  for (int i = 0; i < 600 && content(error).find("training") == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ASSERT_EQ(kill(manager, SIGSTOP), 0);
  std::this_thread::sleep_for(std::chrono::seconds(7));
  ASSERT_EQ(kill(manager, SIGCONT), 0) << "it ended meanwhile: " << content(error);
  EXPECT_EQ(process.wait(std::chrono::minutes(5)), 0) << content(error);
}

} // namespace
} // namespace parcae

// The demo itself: what it promises, it did. Two seeds.

#include "runtime/child/process.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/files.hpp"
#include "tests/support/web_client.hpp"

#include <boost/json.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iostream>
#include <regex>
#include <sstream>
#include <thread>

namespace parcae {
namespace {

// That process's own child whose command line has that argument; 0: none yet.
pid_t child_with(pid_t parent, const std::string& argument) {
  const auto process = [](pid_t id) { return "/proc/" + std::to_string(id); };
  std::istringstream children(content(process(parent) + "/task/" + std::to_string(parent) + "/children"));
  for (pid_t id = 0; children >> id;)
    if (content(process(id) + "/cmdline").find('\0' + argument + '\0') != std::string::npos)
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

// given: the demo with its page; its manager stands still for longer than a command waits for an answer / expected: the
// page is where the demo says, and says that the manager is away; the demo goes on
TEST(frozen_demo, waits_for_a_manager_that_stands_still) {
  const scratch_folder folder("parcae-demo-test");
  const auto out = folder.path() / "out", error = folder.path() / "error";
  child_process process({{sibling_program("parcae"), "demo", "--json", "--web", "--steps", "1000"}, out, error});
  const auto minute = std::chrono::minutes(1);
  pid_t manager = 0;
  ASSERT_TRUE(eventually([&] { return (manager = child_with(process.pid(), "manager")) != 0; }, minute));
  std::smatch page;
  std::string said;
  ASSERT_TRUE(eventually(
      [&] {
        said = content(error);
        return said.find("training") != said.npos &&
               std::regex_search(said, page, std::regex(R"(watch it at http://127\.0\.0\.1:(\d+)/ until)"));
      },
      minute))
      << said;
  const auto status_of = [&](const std::string& path) {
    return web_client(static_cast<std::uint16_t>(std::stoi(page[1]))).ask({.target = path}).status;
  };
  EXPECT_TRUE(eventually([&] { return status_of("/readyz") == 200; }, minute));
  EXPECT_EQ(status_of("/"), 200u);
  ASSERT_EQ(kill(manager, SIGSTOP), 0);
  EXPECT_TRUE(eventually([&] { return status_of("/readyz") == 503; }, minute));
  ASSERT_EQ(kill(manager, SIGCONT), 0) << "it ended meanwhile: " << content(error);
  EXPECT_EQ(process.wait(std::chrono::minutes(5)), 0) << content(error);
}

} // namespace
} // namespace parcae

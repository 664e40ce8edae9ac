// The demo itself: what it promises, it did. Two seeds.

#include "runtime/child/process.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/files.hpp"
#include "tests/support/web_client.hpp"

#include <boost/json.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

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

// `parcae demo` as users run it, with more steps, so that a fast machine does not end before all was shown.
class demo : public testing::Test {
protected:
  void start(const std::vector<std::string>& options) {
    std::vector<std::string> arguments{sibling_program("parcae"), "demo", "--json", "--steps", "1900"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    process_.emplace(launch_options{arguments, out_, error_});
  }

  std::string error() const { return content(error_); }

  child_process& process() { return *process_; }

  // Exit status 0, identical parameters, and every count that it is to show.
  void expect_all_shown() {
    ASSERT_EQ(process().wait(std::chrono::minutes(8)), 0) << error();
    std::string line;
    std::ifstream lines(out_);
    for (std::string next; std::getline(lines, next);)
      line = next;
    auto said = boost::json::parse(line).as_object();
    const auto count = [](const boost::json::object& x, const char* key) {
      return x.at(key).to_number<std::uint64_t>();
    };
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
      std::cout << boost::json::serialize(said) << "\n" << error();
    }
  }

private:
  const scratch_folder folder_{"parcae-demo-test"};
  const std::filesystem::path out_ = folder_.path() / "out", error_ = folder_.path() / "error";
  std::optional<child_process> process_;
};

// given: the demo / expected: all is shown, and no bit changed
TEST_F(demo, shows_everything_and_changes_no_bit) {
  start({"--seed", "1"});
  expect_all_shown();
}

// given: another seed, with its page; its manager stands still for longer than a command waits for an answer /
// expected: the page is where the demo says, and says that the manager is away; the demo goes on, and all is shown
TEST_F(demo, waits_for_a_manager_that_stands_still) {
  start({"--seed", "2", "--web"});
  const auto minute = std::chrono::minutes(1);
  pid_t manager = 0;
  ASSERT_TRUE(eventually([&] { return (manager = child_with(process().pid(), "manager")) != 0; }, minute));
  std::smatch page;
  std::string said;
  ASSERT_TRUE(eventually(
      [&] {
        said = error();
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
  ASSERT_EQ(kill(manager, SIGCONT), 0) << "it ended meanwhile: " << error();
  expect_all_shown();
}

} // namespace
} // namespace parcae

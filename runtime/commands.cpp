#include "runtime/commands.hpp"

#include "runtime/client.hpp"
#include "runtime/duration.hpp"
#include "runtime/job_file.hpp"
#include "runtime/manager.hpp"
#include "runtime/status_text.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>

namespace parcae {

namespace {

constexpr std::chrono::milliseconds poll_interval{200};

std::shared_ptr<std::string> add_manager_option(CLI::App& command) {
  auto x = std::make_shared<std::string>("127.0.0.1:4242");
  command.add_option("--manager", *x, "HOST:PORT of the manager")->envname("PARCAE_MANAGER")->capture_default_str();
  return x;
}

void print(const std::string& x) {
  std::fputs(x.c_str(), stdout);
}

void wait_for(manager_client& client, std::uint64_t id) {
  // Polling only: the client has nothing else to do, and the job may take days.
  for (;;) {
    auto job = client.status({.job = id, .changes_from = UINT64_MAX, .events_from = UINT64_MAX, .decisions_from = UINT64_MAX}).jobs.at(0);
    if (job.state == "done") {
      std::fprintf(stderr, "job %llu is done, parameters sha256 %s\n", static_cast<unsigned long long>(id),
                   job.parameters_sha256.c_str());
      return;
    }
    if (job.state == "failed" || job.state == "cancelled")
      throw client_error("job " + std::to_string(id) + " " + job.state +
                         (job.problem.empty() ? "" : ": " + job.problem));
    std::this_thread::sleep_for(poll_interval);
  }
}

void submit(const std::string& manager, const std::string& file, bool wait) {
  auto job = parse_job_file(file);
  // The path is looked up on the nodes; here is only a hint for the common case of one machine.
  if (!std::filesystem::exists(job.data.path))
    std::fprintf(stderr, "warning: %s is not on this machine; the nodes need it\n", job.data.path.c_str());
  manager_client client(parse_address(manager));
  auto id = client.submit(job);
  std::printf("%llu\n", static_cast<unsigned long long>(id));
  std::fflush(stdout);
  if (wait)
    wait_for(client, id);
}

} // namespace

void add_manager(CLI::App& app) {
  auto command = app.add_subcommand("manager", "run the manager, which instances and commands connect to\n"
                                               "Example: parcae manager --listen 127.0.0.1:4242");
  auto listen = std::make_shared<std::string>("127.0.0.1:4242");
  command->add_option("--listen", *listen, "loopback HOST:PORT; port 0: any free one")->capture_default_str();
  command->callback([=] { run_manager(parse_listen_address(*listen)); });
}

void add_submit(CLI::App& app) {
  auto command = app.add_subcommand("submit", "queue a job and print its number\n"
                                              "Example: parcae submit deploy/examples/gpt.toml --wait");
  auto manager = add_manager_option(*command);
  auto file = std::make_shared<std::string>();
  auto wait = std::make_shared<bool>(false);
  command->add_option("JOB.toml", *file, "the job file")->required();
  command->add_flag("--wait", *wait, "return when the job has ended");
  command->callback([=] { submit(*manager, *file, *wait); });
}

void add_status(CLI::App& app) {
  auto command = app.add_subcommand("status", "show jobs and instances\nExample: parcae status 1 --json");
  auto manager = add_manager_option(*command);
  auto job = std::make_shared<std::uint64_t>(0);
  auto json = std::make_shared<bool>(false);
  command->add_option("JOB", *job, "only this job");
  command->add_flag("--json", *json, "all details, as one line of JSON");
  command->callback([=] {
    auto x = manager_client(parse_address(*manager)).status({.job = *job});
    print(*json ? json_of(x) + "\n" : text_of(x));
  });
}

void add_preempt(CLI::App& app) {
  auto command = app.add_subcommand("preempt", "synthetic preemption: notice, then the node's process is killed\n"
                                               "Example: parcae preempt --any 2 --notice 30s");
  auto manager = add_manager_option(*command);
  auto x = std::make_shared<preempt_request>();
  auto notice = std::make_shared<std::string>("0s");
  auto names = command->add_option("INSTANCE", x->names, "instances by name");
  auto any = command->add_option("--any", x->any, "or this many workers, chosen by --seed");
  any->excludes(names);
  command->add_option("--seed", x->seed, "for --any")->capture_default_str();
  command->add_option("--notice", *notice, "0s: without notice")->capture_default_str();
  command->callback([=] {
    if (x->names.empty() && x->any == 0)
      throw std::invalid_argument("preempt needs names of instances, or --any N");
    auto duration = parse_duration(*notice);
    if (!duration)
      throw std::invalid_argument("--notice " + *notice + " is not a duration such as 30s");
    x->notice_ms = static_cast<std::uint64_t>(duration->count());
    for (const auto& name : manager_client(parse_address(*manager)).preempt(*x))
      print(name + "\n");
  });
}

void add_cancel(CLI::App& app) {
  auto command = app.add_subcommand("cancel", "end a job, or take it from the queue\nExample: parcae cancel 1");
  auto manager = add_manager_option(*command);
  auto job = std::make_shared<std::uint64_t>(0);
  command->add_option("JOB", *job)->required();
  command->callback([=] { manager_client(parse_address(*manager)).cancel(*job); });
}

} // namespace parcae

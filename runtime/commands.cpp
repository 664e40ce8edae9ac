#include "runtime/commands.hpp"

#include "gpu/checkpoint.hpp"
#include "protocols/printable.hpp"
#include "runtime/client.hpp"
#include "runtime/duration.hpp"
#include "runtime/job_file.hpp"
#include "runtime/manager.hpp"
#include "runtime/status_text.hpp"
#include "runtime/usage.hpp"
#include "runtime/watch.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>

namespace parcae {

namespace {

constexpr std::chrono::milliseconds poll_interval{200};
const CLI::Range job_number(1, 1'000'000'000);
constexpr std::chrono::seconds checkpoint_limit{120};
constexpr std::chrono::seconds absence_limit{30}; // of the manager, while a job is waited for
constexpr int polls_to_tell = 5;                  // what passes sooner is no news

std::shared_ptr<std::string> add_manager_option(CLI::App& command) {
  auto x = std::make_shared<std::string>("127.0.0.1:4242");
  command.add_option("--manager", *x, "HOST:PORT of the manager")->envname("PARCAE_MANAGER")->capture_default_str();
  return x;
}

void print(const std::string& x) {
  std::fputs(x.c_str(), stdout);
}

// As long as it takes, and so also through moments in which the manager does not answer.
job_status patient_status(const address& manager, std::unique_ptr<manager_client>& client, std::uint64_t id) {
  const auto end = std::chrono::steady_clock::now() + absence_limit;
  for (;;)
    try {
      if (!client)
        client = std::make_unique<manager_client>(manager);
      return client
          ->status({.job = id, .changes_from = UINT64_MAX, .events_from = UINT64_MAX, .decisions_from = UINT64_MAX})
          .jobs.at(0);
    } catch (const client_error&) {
      if (std::chrono::steady_clock::now() > end)
        throw;
      client.reset();
      std::this_thread::sleep_for(poll_interval);
    }
}

void wait_for(const address& manager, std::unique_ptr<manager_client> client, std::uint64_t id,
              const std::string& name) {
  std::string told, problem;
  int polls = 0; // in a row that found this problem
  // Polling only: the client has nothing else to do, and the job may take days.
  for (;;) {
    auto job = patient_status(manager, client, id);
    if (job.name != name)
      throw client_error("job " + std::to_string(id) + " is now another one, " + job.name +
                         ": the manager was started anew and lost this one; go on with `parcae submit --resume`");
    if (job.state == "done") {
      std::fprintf(stderr, "job %llu is done, parameters sha256 %s\n", static_cast<unsigned long long>(id),
                   job.parameters_sha256.c_str());
      return;
    }
    if (job.state == "failed" || job.state == "cancelled")
      throw client_error("job " + std::to_string(id) + " " + job.state +
                         (job.problem.empty() ? "" : ": " + job.problem));
    polls = job.problem == problem ? polls + 1 : 0;
    problem = job.problem;
    if (polls == polls_to_tell && problem != told) {
      told = problem;
      if (!problem.empty())
        std::fprintf(stderr, "job %llu: %s\n", static_cast<unsigned long long>(id), printable(problem).c_str());
    }
    std::this_thread::sleep_for(poll_interval);
  }
}

// The checkpoint's own specification, or that of a job file for the same model.
job_specification resumed(const std::filesystem::path& folder, const std::string& file) {
  // Keepers look for the last two names of it: without a slash at its end.
  auto found = (std::filesystem::absolute(find_checkpoint(folder)) / "").lexically_normal().parent_path();
  checkpoint_reader checkpoint({found});
  const auto& manifest = checkpoint.manifest();
  auto job = file.empty() ? manifest.specification : parse_job_file(file);
  if (job.model != manifest.specification.model || job.optimizer.kind != manifest.specification.optimizer.kind)
    throw std::runtime_error(file + ": [model] or optimizer.kind differs from that of the checkpoint at " +
                             found.string() + "; leave out the job file to go on with the checkpoint's own");
  job.resume = {manifest.at.steps, found.string(), manifest.data_digest};
  if (auto problem = problem_of(job); !problem.empty())
    throw std::runtime_error((file.empty() ? found.string() : file) + ": " + problem);
  if (const auto missing = checkpoint.missing(); !missing.empty())
    std::fprintf(
        stderr,
        "warning: %s lacks layers %s; another keeper must have them, or name the folder of an older checkpoint\n",
        found.c_str(), list_of(missing).c_str());
  return job;
}

// The folders of a checkpoint of the newest version that the keepers hold, those that this machine sees.
std::vector<std::filesystem::path> checkpoint_of(const std::string& manager, std::uint64_t id) {
  manager_client client(parse_local_address(manager));
  const status_request wanted{.job = id, .changes_from = UINT64_MAX, .events_from = UINT64_MAX};
  auto job = client.status(wanted).jobs.at(0);
  const auto steps = std::max(job.protected_steps, job.checkpoint_steps);
  const auto name = "job " + std::to_string(id);
  if (steps == 0)
    throw client_error(name + " has no state to export yet: no keeper holds a version of it");
  if (job.state == "running" && job.checkpoint_steps < steps)
    client.checkpoint(id);
  const auto limit = std::chrono::steady_clock::now() + checkpoint_limit;
  while (job.checkpoint_steps < steps) {
    job = client.status(wanted).jobs.at(0);
    if (job.checkpoint_steps >= steps)
      break;
    if (!job.checkpoint_problem.empty())
      throw client_error(name + ": " + job.checkpoint_problem);
    if (job.state != "running" || std::chrono::steady_clock::now() > limit)
      throw client_error(name + " is " + job.state + " and wrote no checkpoint of step " + std::to_string(steps) +
                         "; `parcae status " + std::to_string(id) + "` tells more");
    std::this_thread::sleep_for(poll_interval);
  }
  std::string places;
  std::vector<std::filesystem::path> seen;
  for (const auto& place : job.checkpoint_folders) {
    if (std::ranges::find(seen, std::filesystem::path(place.folder)) == seen.end() &&
        std::filesystem::exists(place.folder))
      seen.emplace_back(place.folder);
    places += (places.empty() ? "" : ", ") + place.folder + " (keeper " + place.keeper + ")";
  }
  if (!seen.empty())
    return seen;
  if (places.empty())
    throw client_error(name + " has written no checkpoint since it was started from one; try again later");
  throw client_error("the checkpoint of " + name + " is not on this machine but at " + places +
                     "; run `parcae export FOLDER` there");
}

void export_job(const std::string& manager, const std::string& what, const std::string& output) {
  const auto number = !what.empty() && what.find_first_not_of("0123456789") == what.npos && what.size() < 19;
  checkpoint_reader from(number ? checkpoint_of(manager, std::stoull(what)) : std::vector{find_checkpoint(what)});
  export_parameters(from, output);
  std::fprintf(stderr, "%s: parameters of step %llu\n", output.c_str(),
               static_cast<unsigned long long>(from.manifest().at.steps));
}

void submit(const std::string& manager, const std::string& file, const std::string& checkpoint, bool wait) {
  if (file.empty() && checkpoint.empty())
    throw std::invalid_argument("submit needs a job file, or --resume CHECKPOINT");
  auto job = checkpoint.empty() ? parse_job_file(file) : resumed(checkpoint, file);
  // The path is looked up on the nodes; here is only a hint for the common case of one machine.
  if (!job.data.path.empty() && !std::filesystem::exists(job.data.path))
    std::fprintf(stderr, "warning: %s is not on this machine; the nodes need it\n", job.data.path.c_str());
  auto client = std::make_unique<manager_client>(parse_local_address(manager));
  auto id = client->submit(job);
  std::printf("%llu\n", static_cast<unsigned long long>(id));
  std::fflush(stdout);
  if (wait)
    wait_for(parse_local_address(manager), std::move(client), id, job.name);
}

} // namespace

void add_manager(CLI::App& app) {
  auto command = app.add_subcommand("manager", "run the manager, which instances and commands connect to\n"
                                               "Example: parcae manager --listen 127.0.0.1:4242");
  auto listen = std::make_shared<std::string>("127.0.0.1:4242");
  command->add_option("--listen", *listen, "loopback HOST:PORT; port 0: any free one")->capture_default_str();
  auto log = std::make_shared<std::string>("text");
  command->add_option("--log-format", *log, "text or json, one line per event on stderr")->capture_default_str();
  command->callback([=] { run_manager(parse_local_address(*listen), parse_log_format(*log)); });
}

void add_submit(CLI::App& app) {
  auto command = app.add_subcommand("submit", "queue a job and print its number\n"
                                              "Example: parcae submit deploy/examples/gpt.toml --wait");
  auto manager = add_manager_option(*command);
  auto file = std::make_shared<std::string>();
  auto checkpoint = std::make_shared<std::string>();
  auto wait = std::make_shared<bool>(false);
  command->add_option("JOB.toml", *file, "the job file; not needed with --resume");
  command->add_option("--resume", *checkpoint, "go on from a checkpoint: its folder, or the one with all of a job's");
  command->add_flag("--wait", *wait, "return when the job has ended");
  command->callback([=] { submit(*manager, *file, *checkpoint, *wait); });
}

void add_status(CLI::App& app) {
  auto command = app.add_subcommand("status", "show jobs and instances\nExample: parcae status 1 --json");
  auto manager = add_manager_option(*command);
  auto job = std::make_shared<std::uint64_t>(0);
  auto json = std::make_shared<bool>(false);
  command->add_option("JOB", *job, "only this job")->check(job_number);
  command->add_flag("--json", *json, "all details, as one line of JSON");
  command->callback([=] {
    auto x = manager_client(parse_local_address(*manager)).status({.job = *job});
    print(*json ? json_of(x) + "\n" : text_of(x));
  });
}

void add_watch(CLI::App& app) {
  auto command = app.add_subcommand("watch", "follow a job until it ends, live on a terminal, else line by line\n"
                                             "Example: parcae watch 1");
  auto manager = add_manager_option(*command);
  auto job = std::make_shared<std::uint64_t>(0);
  command->add_option("JOB", *job, "default: the one that runs, else the next, else the last")->check(job_number);
  command->callback([=] { watch(parse_local_address(*manager), *job); });
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
    for (const auto& name : manager_client(parse_local_address(*manager)).preempt(*x))
      print(printable(name) + "\n");
  });
}

void add_export(CLI::App& app) {
  auto command = app.add_subcommand("export", "write a job's parameters as PyTorch users load them\n"
                                              "Example: parcae export 1 --output gpt.safetensors");
  auto manager = add_manager_option(*command);
  auto job = std::make_shared<std::string>();
  auto output = std::make_shared<std::string>();
  command->add_option("JOB", *job, "a job's number, or the folder of a checkpoint (no manager is needed)")->required();
  command->add_option("--output", *output, "the safetensors file to write")->required()->check(in_a_folder);
  command->callback([=] { export_job(*manager, *job, *output); });
}

void add_cancel(CLI::App& app) {
  auto command = app.add_subcommand("cancel", "end a job, or take it from the queue\nExample: parcae cancel 1");
  auto manager = add_manager_option(*command);
  auto job = std::make_shared<std::uint64_t>(0);
  command->add_option("JOB", *job)->required()->check(job_number);
  command->callback([=] { manager_client(parse_local_address(*manager)).cancel(*job); });
}

} // namespace parcae

// `parcae submit`: a job file, changes to it, the checkpoint it goes on from; what the user is told.

#include "gpu/checkpoint/checkpoint.hpp"
#include "protocols/base/printable.hpp"
#include "protocols/base/text.hpp"
#include "protocols/model/model_description.hpp"
#include "protocols/store/store.hpp"
#include "runtime/cli/checkpoints.hpp"
#include "runtime/cli/command_options.hpp"
#include "runtime/job/job_file.hpp"
#include "runtime/process/client.hpp"
#include "runtime/process/usage.hpp"
#include "runtime/view/status_text.hpp"

#include <CLI/CLI.hpp>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <thread>

namespace parcae {

namespace {

constexpr std::chrono::seconds absence_limit{30}; // of the manager, while a job is waited for
constexpr int polls_to_tell = 5;                  // what passes sooner is no news

struct submit_options {
  manager_option manager;
  std::string file;
  std::string checkpoint;
  job_overrides overrides;
  std::int32_t priority = 0;
  bool allow_change = false;
  bool check = false;
  bool wait = false;
};

void say(const std::string& x) {
  std::fprintf(stderr, "%s\n", printable(x).c_str());
}

std::string joined(const std::vector<std::string>& x) {
  std::string result;
  for (const auto& part : x)
    result += (result.empty() ? "" : ", ") + part;
  return result;
}

// As long as it takes, and so also through moments in which the manager does not answer.
job_status patient_status(const manager_access& manager, std::unique_ptr<manager_client>& client, std::uint64_t id) {
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
      std::this_thread::sleep_for(ask_interval);
    }
}

void wait_for(const manager_access& manager, std::unique_ptr<manager_client> client, std::uint64_t id,
              const std::string& name, std::string told) {
  std::string problem;
  int polls = 0; // in a row that found this problem
  // Polling only: the client has nothing else to do, and the job may take days.
  for (;;) {
    auto job = patient_status(manager, client, id);
    if (job.name != name)
      throw client_error("job " + std::to_string(id) + " is now another one, " + job.name +
                         ": the manager was started anew and lost this one; go on with `parcae submit --resume`");
    if (job.state == "done") {
      const auto early = early_end_of(job);
      say(fmt::format("job {} is done{} at step {}/{}, parameters sha256 {}", id, early.empty() ? "" : early + ",",
                      job.steps_done, job.steps, job.parameters_sha256));
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
    std::this_thread::sleep_for(ask_interval);
  }
}

// The checkpoint's own specification, or that of a job file, with changes.
job_specification resumed(const submit_options& options) {
  checkpoint_specification place;
  if (!options.file.empty())
    place = parse_job_file(options.file, options.overrides).checkpoint;
  const auto store = find_by_name(options.checkpoint, options.manager, place);
  const auto found = store->place();
  if (const auto writer = writer_of(found, options.manager))
    throw std::runtime_error("the checkpoint at " + found + " is of job " + std::to_string(*writer) +
                             ", which still runs and will replace it; cancel that job first, or wait for its end");
  checkpoint_reader checkpoint({store});
  const auto& manifest = checkpoint.manifest();
  const auto& before = manifest.specification;
  auto job = options.file.empty() ? with_overrides(before, options.overrides)
                                  : parse_job_file(options.file, options.overrides);
  const auto where = options.file.empty() ? "--set" : options.file;
  if (const auto changed = changed_keys(before, job, on_resume::shape); !changed.empty())
    throw std::runtime_error(where + ": " + joined(changed) + ": the checkpoint at " + found +
                             " is of another model or optimizer; leave out the job file to go on with its own");
  const auto changed = changed_keys(before, job, on_resume::fixed);
  if (!changed.empty() && !options.allow_change)
    throw std::runtime_error(where + ": " + joined(changed) + ": the checkpoint at " + found +
                             " was not trained like that; leave it as it was, or give --allow-change");
  if (!changed.empty())
    say("goes on with other values than before: " + joined(changed));
  const auto steps = manifest.at.steps;
  if (!is_given("optimizer.schedule_from", options.file, options.overrides))
    job.optimizer.schedule_from = schedule_start(before.optimizer, job.optimizer, steps);
  // Data that moved is the same by its digest; other data has to be wanted.
  job.resume = {steps, found, options.allow_change ? std::string() : manifest.data_digest};
  if (auto problem = problem_of(job); !problem.empty())
    throw std::runtime_error((options.file.empty() ? found : options.file) + ": " + problem);
  say(fmt::format("goes on at step {} of {}, with learning rate {:.3g}{}", steps, job.steps,
                  learning_rate(job.optimizer, steps, job.steps),
                  job.optimizer.schedule_from == steps ? ", where its schedule begins" : ""));
  if (const auto missing = checkpoint.missing(); !missing.empty())
    say("warning: " + found + " lacks layers " + list_of(missing) +
        "; another keeper must have them, or name the folder of an older checkpoint");
  return job;
}

job_specification job_of(const submit_options& options) {
  if (options.file.empty() && options.checkpoint.empty())
    throw std::invalid_argument("submit needs a job file, or --resume CHECKPOINT");
  auto job = options.checkpoint.empty() ? parse_job_file(options.file, options.overrides) : resumed(options);
  // The path is looked up on the nodes; here is only a hint for the common case of one machine.
  std::vector<std::filesystem::path> all{job.data.path};
  for (const auto& x : job.data.source)
    all.emplace_back(x.path);
  std::error_code not_seen; // links that end nowhere
  for (const auto& data : all)
    if (!data.empty() && !is_url(data.string()) && !std::filesystem::exists(data, not_seen))
      say("warning: " + data.string() + " is not on this machine" +
          (data.is_absolute() ? "" : " (seen from " + std::filesystem::current_path().string() + ")") +
          "; the nodes need it" + (data.is_absolute() ? "" : ", seen from the folder each was started in"));
  return job;
}

// What would be lost with the workers.
void warn_of_risks(const job_specification& job, const status_reply& there) {
  const auto has = [&](const char* role) {
    return std::ranges::any_of(there.instances, [&](const auto& x) { return x.role == role && x.state == "alive"; });
  };
  if (job.serves()) {
    if (!has("gateway"))
      say("warning: there is no gateway, so nobody answers requests; start one with `parcae-node --role gateway --http "
          "HOST:PORT`");
    if (job.model.weights.empty() && !job.model.is_own()) // which has some in its folder
      say("warning: model.weights is not given: what is served was drawn from job.seed, not trained");
    return;
  }
  if (!has("keeper"))
    say("warning: there is no keeper: what all workers hold is lost if they all go, and nothing is written to disk; "
        "start one with `parcae-node --role keeper`");
  else if (job.checkpoint_every == 0 && job.checkpoint_every_ms == 0)
    say("warning: job.checkpoint_every is 0: nothing is on disk before the job ends");
}

bool is_of_budget(const std::string& problem) {
  return problem.starts_with("budget.");
}

// It is submitted anyway: what cannot hold now may later. What is not told in time is left out.
void warn_of_budget(manager_client& client, const job_specification& job, std::int32_t priority) {
  if (!job.budget.is_set())
    return;
  try {
    for (const auto& problem : client.check(job, priority).problems)
      if (is_of_budget(problem))
        say("warning: " + problem);
  } catch (const client_error&) {
  }
}

void check(const submit_options& options) {
  const auto job = job_of(options);
  manager_client client(options.manager.access());
  const auto x = client.check(job, options.priority);
  warn_of_risks(job, client.status({.changes_from = UINT64_MAX, .events_from = UINT64_MAX}));
  if (job.sums_in_bfloat16())
    say("gradients are summed in bfloat16: the bits are others than with job.gradient_sums = \"float32\"");
  for (const auto& unknown : x.unknown)
    say("not found out: " + unknown);
  for (const auto& problem : x.problems)
    say(problem);
  if (!x.obstacle.empty() || !x.problems.empty())
    throw client_error("job " + job.name + " is well formed, but " +
                       (!x.obstacle.empty()                             ? x.obstacle
                        : std::ranges::all_of(x.problems, is_of_budget) ? "its budget cannot hold"
                                                                        : "a node does not find what it needs"));
  std::printf("job %s can run here%s\n", job.name.c_str(),
              x.before.empty() ? ", at once" : (", after " + joined(x.before)).c_str());
}

// Why it waits, and what to do next. Returns the former. What the manager does not tell in time is left out: the job is
// submitted.
std::string tell_next(manager_client& client, const submit_options& options, const job_specification& what,
                      std::uint64_t id) {
  std::string problem;
  const auto number = std::to_string(id);
  try {
    const auto there = client.status({.job = id, .changes_from = UINT64_MAX, .events_from = UINT64_MAX});
    warn_of_risks(what, there);
    const auto& job = there.jobs.at(0);
    if (job.state == "queued")
      problem = job.problem;
    if (!problem.empty())
      say("job " + number + " " + (problem.starts_with("waits") ? "" : "waits: ") + problem);
  } catch (const client_error&) {
  }
  if (!options.wait)
    say("next: `parcae watch " + number + "` follows it, `parcae cancel " + number + "` ends it");
  return problem;
}

void submit(const submit_options& options) {
  if (options.check)
    return check(options);
  const auto job = job_of(options);
  const auto manager = options.manager.access();
  auto client = std::make_unique<manager_client>(manager);
  warn_of_budget(*client, job, options.priority);
  const auto id = client->submit(job, options.priority);
  std::printf("%llu\n", static_cast<unsigned long long>(id));
  std::fflush(stdout);
  auto told = tell_next(*client, options, job, id);
  if (options.wait)
    wait_for(manager, std::move(client), id, job.name, std::move(told));
}

} // namespace

void add_submit(CLI::App& app) {
  auto command = app.add_subcommand("submit", "queue a job and print its number\n"
                                              "Example: parcae submit deploy/examples/gpt.toml --wait");
  auto x = add_options(*command, submit);
  command->add_option("JOB.toml", x->file, "the job file (`parcae job-keys`); not needed with --resume")
      ->check(local_path);
  command->add_option("--resume", x->checkpoint,
                      "go on from a checkpoint: its name (`parcae checkpoints`), its folder or s3:// URL; or a job's "
                      "folder: its newest");
  command->add_option("--set", x->overrides, "SECTION.KEY=VALUE instead of what the file says; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--priority", x->priority, "higher ones are started first; does not interrupt the job that runs")
      ->check(CLI::Range(-max_priority, max_priority))
      ->capture_default_str();
  command->add_flag("--allow-change", x->allow_change,
                    "with --resume: batch, seed or data may differ from the checkpoint's");
  command->add_flag(
      "--check", x->check,
      "only say whether it could run now: on these instances, with its data, with its place for checkpoints");
  command->add_flag("--wait", x->wait, "return when the job has ended");
}

} // namespace parcae

#include "runtime/lab/demo.hpp"

#include "actors/conductor/model_facts.hpp"
#include "planner/situation/memory.hpp"
#include "runtime/lab/demo_run.hpp"
#include "runtime/view/status_text.hpp"

#include <CLI/CLI.hpp>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

namespace parcae {

namespace {

using clock = std::chrono::steady_clock;

constexpr std::chrono::minutes undisturbed_limit{60};

// Real text that is on every Debian machine; else whatever text lies in the working folder.
std::string text_on_this_machine() {
  for (const char* path : {"/usr/share/common-licenses", "README.md", "docs"})
    if (std::filesystem::exists(path) && !std::filesystem::is_empty(path))
      return std::filesystem::absolute(path);
  throw std::runtime_error("found no text to train on: /usr/share/common-licenses is missing, and so is README.md");
}

// Small enough for two cores, large enough that a step is work: twelve micro-batches in six virtual replicas, so that
// three pipelines of two stages beat all other shapes of six instances, and one of three stages those of three.
job_specification demo_job(const demo_options& options) {
  job_specification job;
  job.name = "demo";
  job.steps = options.steps;
  job.seed = options.seed;
  job.model.layers = 4;
  job.model.width = 32;
  job.model.heads = 4;
  job.model.sequence = 32;
  job.model.dropout = 0.1;
  job.data.path = text_on_this_machine();
  job.global_batch = 24;
  job.micro_batch = 2;
  job.virtual_replicas = 6;
  job.optimizer.learning_rate = 2e-3;
  job.optimizer.schedule = "cosine";
  job.optimizer.warmup_steps = options.steps / 20;
  job.optimizer.clip_norm = 1;
  job.keeper_every = 5;
  // The trace's intervals are of a minute.
  job.planning_interval_ms = std::max<std::uint64_t>(100, static_cast<std::uint64_t>(60'000 / options.speed));
  job.max_depth = 3;
  return job;
}

// Less than the whole model needs, however many pipelines there are: the usual reason for having stages.
std::uint64_t slot_bytes(const job_specification& job, const demo_options& options) {
  if (options.instances < 3) // of two one is often gone
    return 0;
  const auto layers = facts_of(job).costs;
  const std::uint32_t whole[] = {0, static_cast<std::uint32_t>(layers.size())};
  auto least = memory_of(job, layers, whole, 0, 1, 1).total();
  for (std::uint32_t width = 2; width <= job.virtual_replicas; ++width)
    least = std::min(least, memory_of(job, layers, whole, 0, width, 1).total());
  return least - 1;
}

// One changing line on a terminal, else one line per activity.
class progress_printer {
public:
  void operator()(const demo_progress& x) {
    auto line = fmt::format("step {}/{}  {}×{} on {} workers  loss {}  {}", x.job.steps_done, x.job.steps, x.job.width,
                            x.job.depth, x.workers, loss_of(x.job), x.activity);
    if (terminal_) {
      std::fprintf(stderr, "\r%s\033[K", line.c_str());
      std::fflush(stderr);
    } else if (x.activity != last_) {
      std::fprintf(stderr, "%s\n", line.c_str());
    }
    last_ = x.activity;
  }

  void end() {
    if (terminal_)
      std::fputc('\n', stderr);
  }

private:
  bool terminal_ = isatty(STDERR_FILENO) == 1;
  std::string last_;
};

job_status train_undisturbed(const std::filesystem::path& logs, job_specification job, progress_printer& show) {
  job.max_depth = 1;
  local_cluster cluster(sibling_program(""), logs);
  cluster.start_keeper();
  cluster.start_node("alone");
  auto id = cluster.client().submit(job);
  auto end = cluster.wait_for(
      "the undisturbed job", undisturbed_limit,
      [&](const status_reply& x) {
        const auto& j = job_of(x, id);
        if (j.state == "failed")
          throw cluster_error("the undisturbed job failed: " + j.problem);
        show({"undisturbed", j, 1});
        return j.state == "done";
      },
      {.job = id, .changes_from = UINT64_MAX, .events_from = UINT64_MAX, .decisions_from = UINT64_MAX});
  return job_of(end, id);
}

} // namespace

int run_demo(const demo_options& options) {
  scratch_folder logs("parcae-demo");
  progress_printer show;
  auto job = demo_job(options);
  demo_result result;
  result.seed = options.seed;
  result.samples_per_step = job.global_batch;
  result.policy = job.policy;
  try {
    auto disturbed_logs = logs.path() / "disturbed";
    auto undisturbed_logs = logs.path() / "undisturbed";
    std::filesystem::create_directory(disturbed_logs);
    std::filesystem::create_directory(undisturbed_logs);
    {
      local_cluster cluster(sibling_program(""), disturbed_logs);
      if (options.web)
        std::fprintf(stderr, "watch it at %s until it trains undisturbed\n", cluster.start_web().c_str());
      demo_run run(cluster, options, slot_bytes(job, options), std::ref(show));
      auto start = clock::now();
      result.disturbed = run.run(job);
      result.wall_s = std::chrono::duration<double>(clock::now() - start).count();
      result.tally = run.tally();
      result.possible_steps = run.possible_steps();
    }
    result.undisturbed = train_undisturbed(undisturbed_logs, job, show);
    show.end();
  } catch (const std::exception& e) {
    show.end();
    logs.keep();
    throw std::runtime_error(std::string(e.what()) + "; logs are in " + logs.path().string());
  }
  if (!result.identical())
    logs.keep();
  std::fputs(to_string(result).c_str(), options.json ? stderr : stdout);
  if (options.json)
    std::printf("%s\n", json_of(result).c_str());
  if (!result.identical())
    throw std::runtime_error("the parameters differ; logs are in " + logs.path().string());
  return 0;
}

void add_demo(CLI::App& app) {
  auto command =
      app.add_subcommand("demo", "train on this machine through preemptions, compare with undisturbed training\n"
                                 "Example: parcae demo --instances 6 --seed 2 --json");
  auto x = std::make_shared<demo_options>();
  command->add_option("--instances", x->instances, "workers at most")->check(CLI::Range(1, 64))->capture_default_str();
  command->add_option("--steps", x->steps)->check(CLI::Range(1, 1'000'000))->capture_default_str();
  command
      ->add_option("--trace", x->trace, "lines milliseconds,add|remove,node (default: made up, with aimed preemptions)")
      ->check(CLI::ExistingFile);
  command->add_option("--speed", x->speed, "the trace's time runs this much faster")
      ->check(CLI::Range(0.01, 1e6))
      ->capture_default_str();
  command->add_option("--seed", x->seed)->capture_default_str();
  command->add_flag("--web", x->web, "serve the page of `parcae web` meanwhile, and say where");
  command->add_flag("--json", x->json, "results as the last line of stdout");
  command->callback([=] { run_demo(*x); });
}

} // namespace parcae

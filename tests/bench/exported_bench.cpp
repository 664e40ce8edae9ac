// A model exported from its twin in PyTorch against the built-in gpt of the same shapes, and against the twin itself in
// eager PyTorch: steps at 1×1, in turn within one run, each measurement in a process of its own. Status 77: the
// exported model is not there. Arguments: [rounds = 7] [steps per round = 4].

#include "protocols/model/exported_model.hpp"
#include "runtime/child/process.hpp"
#include "tests/bench/figures.hpp"
#include "tests/bench/measure.hpp"
#include "tests/support/executor_cluster.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace parcae {
namespace {

constexpr const char* measure_option = "--measure";
constexpr const char* kinds[] = {"gpt", "exported", "eager"};
const std::filesystem::path folder = std::filesystem::path(PARCAE_EXPORTED_MODELS) / "twin_for_bench";

/// As tests/python/export_models.py has it: GPT of 3.3 M parameters.
job_specification job_of(const std::string& kind) {
  job_specification job;
  job.steps = 1'000'000;
  job.model = {"gpt", 4, 256, 8, 128, 512, 0, true};
  if (kind == "exported") {
    job.model = {.kind = "exported"};
    job.model.path = folder.string();
    take_exported_model(job.model);
  }
  job.data = {"text", "/usr/share/common-licenses"};
  job.global_batch = 16;
  job.micro_batch = 4;
  job.virtual_replicas = 2;
  job.optimizer.clip_norm = 1;
  job.keeper_every = 1'000'000;
  job.planning_interval_ms = 86'400'000;
  return job;
}

/// Of one step.
struct cost {
  double wall_ms = 0; ///< median
  double cpu_ms = 0;  ///< mean
};

/// The first step warms up.
cost cost_of(const job_specification& job, std::uint32_t steps) {
  executor_cluster cluster(job);
  cluster.add_worker("w");
  std::vector<double> times;
  std::uint64_t seen = 0, first = 0;
  double cpu = 0;
  auto last = steady::now();
  cluster.run_until(
      [&] {
        if (const auto done = cluster.view().steps_done; done > seen) {
          if (seen > 0) {
            times.push_back(since_ms(last) / static_cast<double>(done - seen));
          } else {
            cpu = cpu_ms();
            first = done;
          }
          last = steady::now();
          seen = done;
        }
        return seen > steps;
      },
      milliseconds(300'000));
  return {median(times), (cpu_ms() - cpu) / static_cast<double>(seen - first)};
}

cost measured(const std::string& kind, const std::string& steps) {
  const scratch_folder logs("exported-bench");
  const auto out = logs.path() / "out", err = logs.path() / "err";
  const std::vector<std::string> ours{sibling_program("exported_bench"), measure_option, kind, steps};
  const std::vector<std::string> eager{PARCAE_PYTHON_TESTS "/with_torch", PARCAE_PYTHON_TORCH,
                                       PARCAE_PYTHON_TESTS "/eager_steps.py", steps};
  child_process child({kind == "eager" ? eager : ours, out, err});
  cost x;
  if (child.wait(std::chrono::minutes(5)) != 0 || !(std::ifstream(out) >> x.wall_ms >> x.cpu_ms)) {
    std::cerr << std::ifstream(err).rdbuf();
    throw std::runtime_error("the measurement " + kind + " failed");
  }
  std::cerr << kind << ": " << x.wall_ms << " ms, CPU " << x.cpu_ms << " ms\n";
  return x;
}

} // namespace
} // namespace parcae

int main(int argc, char** argv) {
  using namespace parcae;
  if (argc == 4 && std::string(argv[1]) == measure_option) {
    const auto x = cost_of(job_of(argv[2]), static_cast<std::uint32_t>(std::atoi(argv[3])));
    std::cout << x.wall_ms << ' ' << x.cpu_ms << std::endl;
    return EXIT_SUCCESS;
  }
  if (!std::filesystem::exists(folder / "model.json")) {
    std::cerr << "the exported model is not there: run `ctest --preset release -R export_models` first\n";
    return 77;
  }
  const auto rounds = argc > 1 ? std::atoi(argv[1]) : 7;
  const std::string steps = argc > 2 ? argv[2] : "4";
  const bool has_python = std::filesystem::exists(std::filesystem::path(PARCAE_PYTHON_TORCH) / "complete");
  std::vector<double> over_gpt, over_gpt_cpu, over_eager, over_eager_cpu;
  for (int i = 0; i < rounds; ++i) { // in turn, so that a drift of the machine's speed touches all alike
    std::map<std::string, cost> x;
    for (int k = 0; k < 3; ++k)
      if (const std::string kind = kinds[(i + k) % 3]; kind != "eager" || has_python)
        x[kind] = measured(kind, steps);
    over_gpt.push_back(x["gpt"].wall_ms / x["exported"].wall_ms);
    over_gpt_cpu.push_back(x["gpt"].cpu_ms / x["exported"].cpu_ms);
    over_eager.push_back(x["eager"].wall_ms / x["exported"].wall_ms);
    over_eager_cpu.push_back(x["eager"].cpu_ms / x["exported"].cpu_ms);
  }
  figures out;
  out.at_least("samples/s of a model exported from its twin over those of gpt", median(over_gpt), 0.95);
  out.only_shown("the same by processor time", median(over_gpt_cpu));
  if (has_python) {
    out.at_least("samples/s of an exported model over those of eager PyTorch", median(over_eager), 1);
    out.only_shown("its processor time, of eager PyTorch over ours", median(over_eager_cpu));
  } else {
    std::cerr << "not compared with eager PyTorch: it is not at " PARCAE_PYTHON_TORCH "; run deploy/setup\n";
  }
  return out.status();
}

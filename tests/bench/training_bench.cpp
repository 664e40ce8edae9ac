// What distribution costs, as ratios within one run: executors against plain LibTorch loops over the same layers.
// Each measurement is a process of its own, with the memory allocation that it would have. Prints its figures; fails if
// one is beyond its bound.
// Many short rounds say more than few long ones where the speed of the machine drifts.
// With --against another build makes each measurement, too, at once before or behind this one.
// Of GPT-2 (--model), one device (--device) is compared with one plain loop. With --measure a process does one
// measurement of so many steps and prints its `cost` on one line; tests/gpu/speed.py starts it so, too.

#include "actors/conductor/model_facts.hpp"
#include "gpu/data/dataset.hpp"
#include "gpu/executor/memory_settings.hpp"
#include "gpu/layers/model.hpp"
#include "gpu/training/exact_settings.hpp"
#include "planner/situation/memory.hpp"
#include "runtime/child/process.hpp"
#include "tests/bench/bench_jobs.hpp"
#include "tests/bench/figures.hpp"
#include "tests/bench/measure.hpp"
#include "tests/support/chosen_device.hpp"
#include "tests/support/executor_cluster.hpp"
#include "tests/support/test_authority.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <optional>
#include <regex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace parcae {
namespace {

/// Of one step.
struct cost {
  double wall_ms = 0;  ///< all of the time over all steps: what only some of them wait for counts as well
  double quick_ms = 0; ///< lower quartile of single steps: what else happens on the machine touches it less
  double cpu_ms = 0;   ///< mean, of all who take part
  // Of an executor at 1×1:
  double peak_bytes = 0;      ///< most memory that its tensors took; 0: not known
  double estimated_bytes = 0; ///< what is planned with, without room for a change's arrivals
  double reserved_bytes = 0;  ///< most that LibTorch's library had of a device; 0: not known
  double protected_steps = 0; ///< so much newer is the version that a keeper has than it was at the beginning
};

// The first ones choose algorithms, load kernels and take memory.
constexpr std::uint32_t warm_steps = 3;

/// With nothing but training.
job_specification undisturbed_job(const std::string& model) {
  auto job = bench_job(model);
  if (model == "small")
    job.virtual_replicas = 2;
  job.keeper_every = 1'000'000;
  job.planning_interval_ms = 86'400'000;
  return job;
}

/// The natural loop: one graph per micro-batch, gradients accumulated by autograd, clipping, fused AdamW over all
/// tensors; in bfloat16 matrices are rounded in the graph, as autocast does it.
class plain_loop {
public:
  plain_loop(const job_specification& job, const tensor_device& on) :
      job_(job), on_(on), model_(describe(job.model)), layers_(make_layers(job.model, on)),
      data_(load_dataset(job.data, job.model)), order_(job.seed, data_->size()) {
    for (std::uint32_t i = 0; i < layers_.size(); ++i) {
      flat_.push_back(initial_parameters(model_, i, job.seed, on));
      views_.push_back(views_of(model_.layers[i], flat_.back()));
      for (auto& view : views_.back()) {
        view = view.detach().requires_grad_();
        parameters_.push_back(view);
      }
    }
    if (model_.tied) { // one parameter, as in the natural loop
      auto& second = views_[model_.tied->second_layer][model_.tied->second_tensor];
      std::erase_if(parameters_, [&](const auto& p) { return p.is_same(second); });
      second = views_[model_.tied->first_layer][model_.tied->first_tensor];
    }
    for (const auto& p : parameters_) {
      first_.push_back(at::zeros_like(p));
      second_.push_back(at::zeros_like(p));
      counts_.push_back(at::zeros({}, on_.floats()));
    }
  }

  /// One step over `micro_batches` micro-batches. Returns its loss, so waits for the device.
  double step(std::uint32_t micro_batches) {
    at::Tensor loss;
    for (std::uint32_t m = 0; m < micro_batches; ++m) {
      auto [x, targets] = next_samples();
      for (std::size_t i = 0; i < layers_.size(); ++i)
        x = layers_[i]->forward(operands(i), x, {.position = {job_.seed, steps_, m}, .on = on_});
      loss = loss_of(x, targets);
      torch::autograd::backward({loss / static_cast<double>(micro_batches)}, {});
    }
    const c10::NoGradGuard no_gradient;
    std::vector<at::Tensor> gradients;
    for (const auto& p : parameters_)
      gradients.push_back(p.grad());
    const auto norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients, 2)), 2);
    at::_foreach_mul_(gradients, (job_.optimizer.clip_norm / (norm + 1e-6)).clamp_max(1));
    at::_foreach_add_(counts_, 1);
    at::_fused_adamw_(parameters_, gradients, first_, second_, {}, counts_, job_.optimizer.learning_rate, 0.9, 0.999, 0,
                      1e-8, false, false);
    for (auto& p : parameters_)
      p.mutable_grad() = at::Tensor();
    ++steps_;
    return loss.item<double>();
  }

private:
  /// Inputs and targets; from pinned memory, so that nobody waits for the copy.
  std::pair<at::Tensor, at::Tensor> next_samples() {
    const std::int64_t batch = job_.micro_batch, length = job_.model.sequence;
    const auto wholes = at::TensorOptions(at::kLong).pinned_memory(!on_.of().facts().host);
    auto x = at::empty({batch, length}, wholes), targets = at::empty({batch, length}, wholes);
    for (std::int64_t i = 0; i < batch; ++i)
      data_->read(order_(sample_++), sample_values(x, i), sample_values(targets, i));
    return {x.to(on_.place(), at::kLong, true), targets.to(on_.place(), at::kLong, true)};
  }

  /// What a layer computes with.
  std::vector<at::Tensor> operands(std::size_t layer) const {
    auto result = views_[layer];
    if (job_.in_bfloat16())
      for (std::size_t t = 0; t < result.size(); ++t)
        if (model_.layers[layer].tensors[t].is_matrix)
          result[t] = result[t].to(at::kBFloat16);
    return result;
  }

  job_specification job_;
  tensor_device on_;
  model_description model_;
  std::vector<std::unique_ptr<layer>> layers_;
  std::shared_ptr<const dataset> data_;
  sample_order order_;
  std::vector<at::Tensor> flat_, parameters_, first_, second_, counts_;
  std::vector<std::vector<at::Tensor>> views_;
  std::uint64_t steps_ = 0, sample_ = 0;
};

/// `loops` plain loops side by side, each with its share of the batch. `in_step`: each waits for the others after every
/// step, as any data-parallel training must; on a machine whose cores do not run evenly this alone costs something.
cost plain(const job_specification& job, device* on, std::uint32_t loops, std::uint32_t steps, bool in_step = false) {
  std::barrier together(loops);
  std::vector<std::thread> threads;
  std::vector<std::vector<double>> times(loops);
  std::vector<double> cpu(loops);
  for (std::uint32_t t = 0; t < loops; ++t)
    threads.emplace_back([&, t] {
      at::set_num_threads(1);
      plain_loop loop(job, on ? tensor_device(*on) : processor());
      for (std::uint32_t i = 0; i < (on ? warm_steps : 1); ++i)
        loop.step(on ? job.micro_batches() / loops : 1);
      const auto before = thread_ms();
      for (std::uint32_t i = 0; i < steps; ++i) {
        const auto began = steady::now();
        loop.step(job.micro_batches() / loops);
        if (in_step)
          together.arrive_and_wait();
        times[t].push_back(since_ms(began));
      }
      cpu[t] = thread_ms() - before;
    });
  for (auto& thread : threads)
    thread.join();
  std::vector<double> all;
  for (const auto& x : times)
    all.insert(all.end(), x.begin(), x.end());
  const auto sum = [](const auto& x) { return std::accumulate(x.begin(), x.end(), 0.0); };
  return {sum(all) / static_cast<double>(all.size()), percentile(all, 0.25), sum(cpu) / steps};
}

/// How a cluster differs from the usual one.
struct cluster_kind {
  device* on = nullptr;     ///< all slots
  bool in_tls = false;      ///< what is between them
  bool with_keeper = false; ///< there is one
};

/// Commits at a shape.
cost distributed(const job_specification& job, std::uint32_t width, std::uint32_t depth, std::uint32_t steps,
                 const cluster_kind& kind = {}) {
  std::optional<test_authority> authority;
  executor_cluster cluster(job);
  if (kind.in_tls)
    cluster.bundle = authority.emplace().fleet("w");
  cluster.workers.on = [&kind](std::uint64_t) { return kind.on; };
  if (kind.on)
    cluster.workers.device_bytes = bytes_for_tensors(kind.on->facts().bytes);
  std::vector<double> times;
  cluster.planner = [&](std::uint32_t slots, const std::vector<layer_cost>& costs) {
    configuration c{0, 0, {}, 0, "bench"};
    if (slots < width * depth)
      return c;
    std::vector<double> ms;
    for (const auto& cost : costs)
      ms.push_back(cost.forward_ms + cost.backward_ms);
    return configuration{width, depth, partition_layers(ms, depth), 0, "bench"};
  };
  if (kind.with_keeper)
    cluster.add_keeper("k");
  for (std::uint32_t i = 0; i < width * depth; ++i)
    cluster.add_worker("w-" + std::to_string(i));
  const std::uint64_t warm = kind.on ? warm_steps : 1;
  std::uint64_t seen = 0, protected_before = 0;
  auto last = steady::now(), began = last;
  double cpu = 0;
  std::uint64_t first = 0;
  cluster.run_until(
      [&] {
        if (cluster.view().steps_done > seen) {
          if (seen >= warm) {
            times.push_back(since_ms(last) / static_cast<double>(cluster.view().steps_done - seen));
          } else {
            cpu = cpu_ms();
            first = cluster.view().steps_done;
            began = steady::now();
            protected_before = cluster.view().protected_version.steps;
          }
          last = steady::now();
          seen = cluster.view().steps_done;
        }
        return seen >= warm + steps;
      },
      milliseconds(300'000));
  const auto count = static_cast<double>(seen - first);
  cost result{std::chrono::duration<double, std::milli>(last - began).count() / count, percentile(times, 0.25),
              (cpu_ms() - cpu) / count};
  const auto& view = cluster.view();
  if (width == 1 && depth == 1 && view.peak_bytes.contains(0)) {
    const auto costs = facts_of(job).costs;
    const std::vector<std::uint32_t> all{0, static_cast<std::uint32_t>(costs.size())};
    const auto planned = memory_of(job, costs, all, 0, 1, kind.with_keeper && !kind.on ? 1 : 0);
    result.peak_bytes = static_cast<double>(view.peak_bytes.at(0));
    result.reserved_bytes = static_cast<double>(view.reserved_bytes.at(0));
    result.estimated_bytes = static_cast<double>(planned.total() - planned.arriving);
  }
  result.protected_steps = static_cast<double>(view.protected_version.steps - protected_before);
  return result;
}

/// Short steps are so many times as many.
constexpr std::uint32_t many = 50;

using measurement = std::pair<std::string, std::function<cost(std::uint32_t steps)>>;

/// In turn, so that a drift of the machine's speed touches all alike.
std::vector<measurement> all_measurements(const std::string& model, device* on) {
  const auto job = undisturbed_job(model);
  if (model != "small") {
    auto every_step = job;
    every_step.keeper_every = 1;
    return {
        {"plain", [=](auto steps) { return plain(job, on, 1, steps); }},
        {"plain, exact",
         [=](auto steps) {
           make_libtorch_exact();
           return plain(job, on, 1, steps);
         }},
        {"1x1", [=](auto steps) { return distributed(job, 1, 1, steps, {.on = on}); }},
        {"1x1, snapshots",
         [=](auto steps) { return distributed(every_step, 1, 1, steps, {.on = on, .with_keeper = true}); }},
    };
  }
  auto plain_reduce = job;
  plain_reduce.reproducible = false;
  // Short steps, so that some pass from one snapshot to the next; and many.
  auto short_steps = job;
  short_steps.model = {"gpt", 2, 128, 4, 64, 256, 0, true};
  short_steps.virtual_replicas = 2;
  auto kept = short_steps;
  kept.keeper_every = 0;
  // A pipeline of two stages with M micro-batches is at most 2·M/(M+1) times as fast as one: 1.60 for 4, 1.78 for 8.
  auto eight = job;
  eight.micro_batch = 2;
  return {
      {"plain", [=](auto steps) { return plain(job, on, 1, steps); }},
      {"1x1", [=](auto steps) { return distributed(job, 1, 1, steps, {.on = on}); }},
      {"two plain", [=](auto steps) { return plain(job, on, 2, steps); }},
      {"two plain in step", [=](auto steps) { return plain(job, on, 2, steps, true); }},
      {"2x1", [=](auto steps) { return distributed(job, 2, 1, steps, {.on = on}); }},
      {"2x1 in TLS", [=](auto steps) { return distributed(job, 2, 1, steps, {.on = on, .in_tls = true}); }},
      {"2x1 plain all-reduce", [=](auto steps) { return distributed(plain_reduce, 2, 1, steps, {.on = on}); }},
      {"1x2", [=](auto steps) { return distributed(job, 1, 2, steps, {.on = on}); }},
      {"1x1, 8 micro-batches", [=](auto steps) { return distributed(eight, 1, 1, steps, {.on = on}); }},
      {"1x2, 8 micro-batches", [=](auto steps) { return distributed(eight, 1, 2, steps, {.on = on}); }},
      {"short 1x1", [=](auto steps) { return distributed(short_steps, 1, 1, many * steps, {.on = on}); }},
      {"short 1x1, kept",
       [=](auto steps) { return distributed(kept, 1, 1, many * steps, {.on = on, .with_keeper = true}); }},
      {"short 2x1", [=](auto steps) { return distributed(short_steps, 2, 1, many * steps, {.on = on}); }},
      {"short 2x1, kept",
       [=](auto steps) { return distributed(kept, 2, 1, many * steps, {.on = on, .with_keeper = true}); }},
  };
}

struct arguments {
  int rounds = 20;
  std::uint32_t steps = 3;
  std::string only = ".*";
  std::string device = "cpu";
  std::string model = "small";
  std::string measure; ///< empty: all, each in a process of its own
  std::filesystem::path against;
};

/// In the process of one measurement.
int measure(const arguments& x) {
  auto* on = open_device(x.device); // before LibTorch is called
  at::set_num_threads(1);
  for (const auto& [known, run] : all_measurements(x.model, on))
    if (known == x.measure) {
      const auto y = run(x.steps);
      std::cout.precision(9);
      std::cout << y.wall_ms << ' ' << y.quick_ms << ' ' << y.cpu_ms << ' ' << y.peak_bytes << ' ' << y.estimated_bytes
                << ' ' << y.protected_steps << ' ' << y.reserved_bytes << std::endl;
      return EXIT_SUCCESS;
    }
  std::cerr << "no measurement is called " << x.measure << '\n';
  return EXIT_FAILURE;
}

/// Starts that process.
cost measured(const std::string& name, const arguments& x, const std::filesystem::path& program) {
  const scratch_folder folder("training-bench");
  const auto out = folder.path() / "out", err = folder.path() / "err";
  child_process child(
      {{program, "1", std::to_string(x.steps), "--device", x.device, "--model", x.model, "--measure", name}, out, err});
  cost y;
  std::ifstream file;
  if (child.wait(std::chrono::minutes(10)) == 0)
    file.open(out);
  if (!(file >> y.wall_ms >> y.quick_ms >> y.cpu_ms >> y.peak_bytes >> y.estimated_bytes >> y.protected_steps >>
        y.reserved_bytes)) {
    std::cerr << std::ifstream(err).rdbuf();
    throw std::runtime_error("the measurement " + name + " failed");
  }
  return y;
}

} // namespace
} // namespace parcae

int main(int argc, char** argv) {
  using namespace parcae;
  keep_memory_for_tensors(); // as a node does
  arguments x;
  CLI::App app{"What distribution costs, against plain LibTorch loops.", "training_bench"};
  app.add_option("rounds", x.rounds)->capture_default_str();
  app.add_option("steps", x.steps, "in each measurement of a round")->capture_default_str();
  app.add_option("only", x.only, "these measurements: a regular expression")->capture_default_str();
  app.add_option("--device", x.device, "that all compute on: cpu, or cuda:N")->capture_default_str();
  app.add_option("--model", x.model, "small, gpt2, gpt2-xl, or tiny")->capture_default_str();
  app.add_option("--measure", x.measure, "this one here");
  app.add_option("--against", x.against, "the same program of another build, whose steps these are compared with")
      ->check(CLI::ExistingFile);
  CLI11_PARSE(app, argc, argv);
  if (!x.measure.empty())
    return measure(x);
  const std::regex only(x.only);
  const auto measurements = all_measurements(x.model, nullptr); // for their names
  std::map<std::string, std::vector<cost>> ms, others_ms;
  const auto measure_here = [&](int round, const std::string& name) {
    const auto& y = ms[name].emplace_back(measured(name, x, sibling_program("training_bench")));
    std::cerr << "round " << round + 1 << ' ' << name << ": " << y.wall_ms << " ms, CPU " << y.cpu_ms << " ms\n";
  };
  const auto measure_other = [&](const std::string& name) {
    if (!x.against.empty())
      others_ms[name].push_back(measured(name, x, x.against));
  };
  for (int r = 0; r < x.rounds; ++r)
    for (const auto& [name, run] : measurements)
      if (std::regex_match(name, only)) {
        if (r % 2 == 1)
          measure_other(name);
        measure_here(r, name);
        if (r % 2 == 0)
          measure_other(name);
      }
  auto median_of = [&](const std::string& a, auto&& figure) {
    std::vector<double> all;
    for (std::size_t i = 0; i < ms[a].size(); ++i)
      all.push_back(figure(i));
    return median(all);
  };
  figures out;
  for (const auto& known : ms) {
    const auto& name = known.first;
    const auto& all = known.second;
    out.note(name + ": step, ms", median_of(name, [&](std::size_t i) { return all[i].wall_ms; }));
    out.note(name + ": its processor time, ms", median_of(name, [&](std::size_t i) { return all[i].cpu_ms; }));
  }
  for (const auto& other : others_ms) {
    const auto& name = other.first;
    const auto over = [&](auto of) {
      return median_of(name, [&](auto i) { return ms[name][i].*of / other.second[i].*of; });
    };
    out.note(name + ": quick steps over the other build's", over(&cost::quick_ms));
    out.note(name + ": processor time over the other build's", over(&cost::cpu_ms));
    out.at_most(name + ": step over the other build's", over(&cost::wall_ms), 1.02);
  }
  // By the clock; processor time and the quick steps say where a difference comes from.
  const auto compare = [&](const std::string& a, const std::string& b, auto&& judge) {
    if (!ms.contains(a) || !ms.contains(b))
      return;
    const auto over = [&](auto of) { return median_of(a, [&](auto i) { return ms[a][i].*of / ms[b][i].*of; }); };
    out.note(a + " over " + b + ", quick steps", over(&cost::quick_ms));
    out.note(a + " over " + b + ", processor time", over(&cost::cpu_ms));
    judge(over(&cost::wall_ms));
  };
  compare("1x1", "plain", [&](double x) { out.at_most("step at 1x1 over a plain loop", x, 1.03); });
  compare("1x1, snapshots", "1x1", [&](double x) { out.at_most("a snapshot in each step, over none", x, 1.02); });
  for (const std::string shape : {"1x1", "2x1"}) {
    const auto kept = "short " + shape + ", kept";
    compare(kept, "short " + shape, [&](double ratio) {
      out.at_most("a snapshot whenever none is on its way at " + shape + ", over none", ratio, 1.02);
      out.at_least("steps that a keeper has in the end, of all",
                   median_of(kept, [&](auto i) { return ms[kept][i].protected_steps / (many * x.steps); }), 0.5);
    });
  }
  compare("2x1", "two plain", [&](double x) { out.at_most("step at 2x1 over two plain loops", x, 1.05); });
  compare("2x1 in TLS", "2x1", [&](double x) { out.at_most("step at 2x1, in TLS over plain TCP", x, 1.06); });
  compare("2x1", "two plain in step", [&](double x) { out.only_shown("step at 2x1 over two plain loops in step", x); });
  compare("1x1", "2x1", [&](double x) { out.at_least("speed of 2x1 over 1x1", x, 1.6); });
  compare("1x1", "1x2",
          [&](double x) { out.only_shown("speed of 1x2 over 1x1, 4 micro-batches (1.60 without any loss)", x); });
  compare("1x1, 8 micro-batches", "1x2, 8 micro-batches",
          [&](double x) { out.at_least("speed of 1x2 over 1x1, 8 micro-batches (1.78 without any loss)", x, 1.6); });
  compare("2x1", "2x1 plain all-reduce",
          [&](double x) { out.at_most("step at 2x1, reproducible over plain all-reduce", x, 1.10); });
  return out.status();
}

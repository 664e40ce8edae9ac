// What distribution costs, as ratios within one run: executors against plain LibTorch loops over the same layers.
// Each measurement is a process of its own, with the memory allocation that it would have. Prints one JSON object and
// its figures; fails if one is beyond its bound.
// Many short rounds say more than few long ones where the speed of the machine drifts.
// Arguments: [rounds = 20] [steps per round = 3] [only these measurements, as a regular expression of their names].

#include "gpu/data/dataset.hpp"
#include "gpu/layers/model.hpp"
#include "runtime/child/process.hpp"
#include "tests/bench/figures.hpp"
#include "tests/support/executor_cluster.hpp"
#include "tests/support/test_authority.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <boost/json.hpp>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <regex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace parcae {
namespace {

using steady = std::chrono::steady_clock;

double ms_since(steady::time_point from) {
  return std::chrono::duration<double, std::milli>(steady::now() - from).count();
}

/// CPU time of this process, all threads.
double cpu_ms() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

/// Of one step.
struct cost {
  double wall_ms = 0;  ///< median
  double quick_ms = 0; ///< lower quartile of the same: what else happens on the machine touches it less
  double cpu_ms = 0;   ///< mean, of all who take part
};

double lower_quartile(std::vector<double> x) {
  std::ranges::sort(x);
  return x.empty() ? std::nan("") : x[x.size() / 4];
}

double median(std::vector<double> x) {
  std::ranges::sort(x);
  const auto n = x.size();
  return n == 0 ? std::nan("") : (x[(n - 1) / 2] + x[n / 2]) / 2;
}

/// GPT of 10.0 M parameters.
job_specification ten_million() {
  job_specification job;
  job.steps = 1'000'000;
  job.model = {"gpt", 6, 368, 8, 128, 256, 0, true};
  job.data = {"text", "/usr/share/common-licenses"};
  job.global_batch = 16;
  job.micro_batch = 4;
  job.virtual_replicas = 2;
  job.optimizer.clip_norm = 1;
  job.keeper_every = 1'000'000;
  job.planning_interval_ms = 86'400'000;
  return job;
}

/// The natural loop: one graph per micro-batch, gradients accumulated by autograd, clipping, fused AdamW over all
/// tensors.
class plain_loop {
public:
  explicit plain_loop(const job_specification& job) :
      job_(job), model_(describe(job.model)), layers_(make_layers(job.model)), data_(load_dataset(job.data, job.model)),
      order_(job.seed, data_->size()) {
    for (std::uint32_t i = 0; i < layers_.size(); ++i) {
      flat_.push_back(initial_parameters(model_, i, job.seed));
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
    }
  }

  /// One step over `micro_batches` micro-batches.
  void step(std::uint32_t micro_batches) {
    const std::int64_t batch = job_.micro_batch, length = job_.model.sequence;
    for (std::uint32_t m = 0; m < micro_batches; ++m) {
      auto x = at::empty({batch, length}, at::kLong), targets = at::empty_like(x);
      for (std::int64_t i = 0; i < batch; ++i)
        data_->read(order_(sample_++), {x.data_ptr<std::int64_t>() + i * length, static_cast<std::size_t>(length)},
                    {targets.data_ptr<std::int64_t>() + i * length, static_cast<std::size_t>(length)});
      for (std::size_t i = 0; i < layers_.size(); ++i)
        x = layers_[i]->forward(views_[i], x, {job_.seed, steps_, m});
      torch::autograd::backward({loss_of(x, targets) / static_cast<double>(micro_batches)}, {});
    }
    const c10::NoGradGuard no_gradient;
    std::vector<at::Tensor> gradients, counts;
    double squared = 0;
    for (const auto& p : parameters_) {
      gradients.push_back(p.grad());
      squared += std::pow(at::linalg_vector_norm(p.grad(), 2).item<double>(), 2);
      counts.push_back(at::full({}, static_cast<double>(steps_ + 1), at::kFloat));
    }
    if (const auto norm = std::sqrt(squared); norm > job_.optimizer.clip_norm)
      for (auto& g : gradients)
        g.mul_(job_.optimizer.clip_norm / norm);
    at::_fused_adamw_(parameters_, gradients, first_, second_, {}, counts, job_.optimizer.learning_rate, 0.9, 0.999, 0,
                      1e-8, false, false);
    for (auto& p : parameters_)
      p.mutable_grad() = at::Tensor();
    ++steps_;
  }

private:
  job_specification job_;
  model_description model_;
  std::vector<std::unique_ptr<layer>> layers_;
  std::shared_ptr<const dataset> data_;
  sample_order order_;
  std::vector<at::Tensor> flat_, parameters_, first_, second_;
  std::vector<std::vector<at::Tensor>> views_;
  std::uint64_t steps_ = 0, sample_ = 0;
};

/// `loops` plain loops side by side, each with its share of the batch. `in_step`: each waits for the others after every
/// step, as any data-parallel training must; on a machine whose cores do not run evenly this alone costs something.
cost plain(const job_specification& job, std::uint32_t loops, std::uint32_t steps, bool in_step = false) {
  std::barrier together(loops);
  std::vector<std::thread> threads;
  std::vector<std::vector<double>> times(loops);
  std::vector<double> cpu(loops);
  for (std::uint32_t t = 0; t < loops; ++t)
    threads.emplace_back([&, t] {
      at::set_num_threads(1);
      plain_loop loop(job);
      loop.step(1); // warm-up
      timespec before{}, after{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
      for (std::uint32_t i = 0; i < steps; ++i) {
        const auto began = steady::now();
        loop.step(job.micro_batches() / loops);
        if (in_step)
          together.arrive_and_wait();
        times[t].push_back(ms_since(began));
      }
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
      cpu[t] = static_cast<double>(after.tv_sec - before.tv_sec) * 1e3 +
               static_cast<double>(after.tv_nsec - before.tv_nsec) / 1e6;
    });
  for (auto& thread : threads)
    thread.join();
  std::vector<double> all;
  for (const auto& x : times)
    all.insert(all.end(), x.begin(), x.end());
  double sum = 0;
  for (auto x : cpu)
    sum += x;
  return {median(all), lower_quartile(all), sum / steps};
}

/// Commits at a shape.
cost distributed(const job_specification& job, std::uint32_t width, std::uint32_t depth, std::uint32_t steps,
                 bool in_tls = false) {
  std::optional<test_authority> authority;
  executor_cluster cluster(job);
  if (in_tls)
    cluster.bundle = authority.emplace().bundle(membership::node, "w");
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
  for (std::uint32_t i = 0; i < width * depth; ++i)
    cluster.add_worker("w-" + std::to_string(i));
  std::uint64_t seen = 0;
  auto last = steady::now();
  double cpu = 0;
  std::uint64_t first = 0;
  cluster.run_until(
      [&] {
        if (cluster.view().steps_done > seen) {
          if (seen > 0) { // the first step warms up
            times.push_back(ms_since(last) / static_cast<double>(cluster.view().steps_done - seen));
          } else {
            cpu = cpu_ms();
            first = cluster.view().steps_done;
          }
          last = steady::now();
          seen = cluster.view().steps_done;
        }
        return seen > steps;
      },
      milliseconds(300'000));
  return {median(times), lower_quartile(times), (cpu_ms() - cpu) / static_cast<double>(seen - first)};
}

using measurement = std::pair<std::string, std::function<cost(std::uint32_t steps)>>;

/// In turn, so that a drift of the machine's speed touches all alike.
std::vector<measurement> all_measurements() {
  const auto job = ten_million();
  auto plain_reduce = job;
  plain_reduce.reproducible = false;
  // A pipeline of two stages with M micro-batches is at most 2·M/(M+1) times as fast as one: 1.60 for 4, 1.78 for 8.
  auto eight = job;
  eight.micro_batch = 2;
  return {
      {"plain", [=](auto steps) { return plain(job, 1, steps); }},
      {"1x1", [=](auto steps) { return distributed(job, 1, 1, steps); }},
      {"two plain", [=](auto steps) { return plain(job, 2, steps); }},
      {"two plain in step", [=](auto steps) { return plain(job, 2, steps, true); }},
      {"2x1", [=](auto steps) { return distributed(job, 2, 1, steps); }},
      {"2x1 in TLS", [=](auto steps) { return distributed(job, 2, 1, steps, true); }},
      {"2x1 plain all-reduce", [=](auto steps) { return distributed(plain_reduce, 2, 1, steps); }},
      {"1x2", [=](auto steps) { return distributed(job, 1, 2, steps); }},
      {"1x1, 8 micro-batches", [=](auto steps) { return distributed(eight, 1, 1, steps); }},
      {"1x2, 8 micro-batches", [=](auto steps) { return distributed(eight, 1, 2, steps); }},
  };
}

constexpr const char* measure_option = "--measure";

/// In the process of one measurement.
int measure(const std::string& name, std::uint32_t steps) {
  at::set_num_threads(1);
  for (const auto& [known, run] : all_measurements())
    if (known == name) {
      const auto x = run(steps);
      std::cout.precision(9);
      std::cout << x.wall_ms << ' ' << x.quick_ms << ' ' << x.cpu_ms << std::endl;
      return EXIT_SUCCESS;
    }
  std::cerr << "no measurement is called " << name << '\n';
  return EXIT_FAILURE;
}

/// Starts that process.
cost measured(const std::string& name, std::uint32_t steps) {
  const scratch_folder folder("training-bench");
  const auto out = folder.path() / "out", err = folder.path() / "err";
  child_process child({{sibling_program("training_bench"), measure_option, name, std::to_string(steps)}, out, err});
  cost x;
  std::ifstream file;
  if (child.wait(std::chrono::minutes(10)) == 0)
    file.open(out);
  if (!(file >> x.wall_ms >> x.quick_ms >> x.cpu_ms)) {
    std::cerr << std::ifstream(err).rdbuf();
    throw std::runtime_error("the measurement " + name + " failed");
  }
  return x;
}

} // namespace
} // namespace parcae

int main(int argc, char** argv) {
  using namespace parcae;
  if (argc == 4 && std::string(argv[1]) == measure_option)
    return measure(argv[2], static_cast<std::uint32_t>(std::atoi(argv[3])));
  const auto rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  const auto steps = static_cast<std::uint32_t>(argc > 2 ? std::atoi(argv[2]) : 3);
  const std::regex only(argc > 3 ? argv[3] : ".*");
  const auto measurements = all_measurements();
  std::map<std::string, std::vector<cost>> ms;
  for (int r = 0; r < rounds; ++r)
    for (const auto& [name, run] : measurements)
      if (std::regex_match(name, only)) {
        const auto& x = ms[name].emplace_back(measured(name, steps));
        std::cerr << "round " << r + 1 << ' ' << name << ": " << x.wall_ms << " ms, CPU " << x.cpu_ms << " ms\n";
      }
  auto median_of = [&](const std::string& a, auto&& figure) {
    std::vector<double> all;
    for (std::size_t i = 0; i < ms[a].size(); ++i)
      all.push_back(figure(i));
    return median(all);
  };
  boost::json::object wall, cpu;
  for (const auto& [name, x] : ms) {
    wall[name] = median_of(name, [&](std::size_t i) { return x[i].wall_ms; });
    cpu[name] = median_of(name, [&](std::size_t i) { return x[i].cpu_ms; });
  }
  boost::json::object ratios;
  figures out;
  // By the clock; processor time and the quick steps say where a difference comes from.
  const auto compare = [&](const std::string& a, const std::string& b, auto&& judge) {
    if (!ms.contains(a) || !ms.contains(b))
      return;
    const auto wall_ratio = median_of(a, [&](auto i) { return ms[a][i].wall_ms / ms[b][i].wall_ms; });
    ratios[a + " over " + b] = boost::json::object{
        {"wall", wall_ratio},
        {"wall, quick steps", median_of(a, [&](auto i) { return ms[a][i].quick_ms / ms[b][i].quick_ms; })},
        {"cpu", median_of(a, [&](auto i) { return ms[a][i].cpu_ms / ms[b][i].cpu_ms; })}};
    judge(wall_ratio);
  };
  compare("1x1", "plain", [&](double x) { out.at_most("step at 1x1 over a plain loop", x, 1.03); });
  compare("2x1", "two plain", [&](double x) { out.at_most("step at 2x1 over two plain loops", x, 1.05); });
  compare("2x1 in TLS", "2x1", [&](double x) { out.at_most("step at 2x1, in TLS over plain TCP", x, 1.03); });
  compare("2x1", "two plain in step", [&](double x) { out.only_shown("step at 2x1 over two plain loops in step", x); });
  compare("1x1", "2x1", [&](double x) { out.at_least("speed of 2x1 over 1x1", x, 1.6); });
  compare("1x1", "1x2",
          [&](double x) { out.only_shown("speed of 1x2 over 1x1, 4 micro-batches (1.60 without any loss)", x); });
  compare("1x1, 8 micro-batches", "1x2, 8 micro-batches",
          [&](double x) { out.at_least("speed of 1x2 over 1x1, 8 micro-batches (1.78 without any loss)", x, 1.6); });
  compare("2x1", "2x1 plain all-reduce",
          [&](double x) { out.at_most("step at 2x1, reproducible over plain all-reduce", x, 1.10); });
  std::cout << boost::json::serialize(
                   boost::json::object{{"step_wall_ms", wall}, {"step_cpu_ms", cpu}, {"ratios", ratios}})
            << std::endl;
  return out.status();
}

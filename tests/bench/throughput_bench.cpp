// Whether a profile measured at 1×1 predicts steps elsewhere: profiles jobs of every kind as `parcae profile` does,
// runs each of them in several configurations on clusters of real processes, and prints predicted over measured, one
// JSON object per line; then, per job, the median of each configuration over the rounds, and its figures. For as many
// slots as there are cores measured is by the clock: samples committed per second. Fails where such a prediction is in
// the median off by more than 15 %, or where, for more slots, the measured step (of processor time and bytes: cores are
// short) is in most rounds not in the interval that was stated.
// Arguments: [seconds of each measurement = 5] [jobs = gpt,small,mlp,resnet,bert,vgg] [rounds = 3].

#include "runtime/child/process.hpp"
#include "runtime/job/job_file.hpp"
#include "runtime/lab/profile_report.hpp"
#include "tests/bench/figures.hpp"
#include "tests/bench/measure.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <map>
#include <thread>

namespace parcae {
namespace {

constexpr double allowed = 0.15;
constexpr std::pair<std::uint32_t, std::uint32_t> grids[] = {{1, 1}, {1, 2}, {2, 1}, {2, 2}, {1, 4}, {4, 1}, {3, 2}};

/// GPT of 10.0 M parameters, as in training_bench.
job_specification ten_million() {
  job_specification job;
  job.name = "gpt";
  job.model = {"gpt", 6, 368, 8, 128, 256, 0, true};
  job.data = {"text", "/usr/share/common-licenses"};
  job.global_batch = 16;
  job.micro_batch = 2;
  job.virtual_replicas = 4;
  job.optimizer.clip_norm = 1;
  job.keeper_every = 1'000'000;
  return job;
}

/// GPT of 0.1 M parameters: steps of some 10 ms.
job_specification tenth_of_a_million() {
  job_specification job;
  job.name = "small";
  job.model = {"gpt", 2, 64, 4, 64, 256, 0, true};
  job.data = {"text", "/usr/share/common-licenses"};
  job.global_batch = 16;
  job.micro_batch = 2;
  job.virtual_replicas = 4;
  return job;
}

job_specification example(const std::string& name) {
  return parse_job_file(std::string(PARCAE_SOURCE_DIR) + "/deploy/examples/" + name + ".toml");
}

/// What a forward, a backward pass and an apply of all layers take longer on waking.
double waking_ms(const auto& layers) {
  double sum = 0;
  for (const auto& x : layers)
    for (const auto ms : pass_kinds)
      sum += x.waking.*ms;
  return sum;
}

std::string name_of(std::uint32_t width, std::uint32_t depth) {
  return std::to_string(width) + "x" + std::to_string(depth);
}

/// Whether each of its slots has a core.
bool has_cores(std::uint32_t width, std::uint32_t depth) {
  return width * depth <= std::max(1u, std::thread::hardware_concurrency());
}

/// Of one configuration of a job, a value per round.
struct comparison {
  std::vector<double> ratios; ///< predicted over measured
  std::size_t inside = 0;     ///< rounds in which the stated interval held what was measured
};

/// One round: a profile, then the configurations, so that a drift of the machine's speed touches both.
void compare(const job_specification& job, std::chrono::milliseconds duration,
             std::map<std::pair<std::uint32_t, std::uint32_t>, comparison>& all) {
  profile_options options;
  options.duration = duration;
  options.changes = 0;
  const auto measured = profile_job(job, options, [](const std::string&) {});
  const auto table = predicted_configurations(job, measured, 8, {});
  for (const auto& [width, depth] : grids)
    for (const auto& x : table) {
      if (x.width != width || x.depth != depth)
        continue;
      const auto [status, by_the_clock] = run_configuration(job, width, depth, duration);
      for (const auto& row : status.configurations) {
        if (row.width != width || row.depth != depth)
          continue;
        const bool clock = has_cores(width, depth);
        const double measured_rate = clock ? by_the_clock : row.samples_per_s;
        const double ratio = x.samples_per_s / measured_rate;
        auto& found = all[{width, depth}];
        found.ratios.push_back(ratio);
        found.inside += x.low_samples_per_s <= measured_rate && measured_rate <= x.high_samples_per_s;
        std::cout << boost::json::serialize(
                         boost::json::object{{"job", job.name},
                                             {"configuration", name_of(width, depth)},
                                             {"predicted_samples_per_s", x.samples_per_s},
                                             {"low", x.low_samples_per_s},
                                             {"high", x.high_samples_per_s},
                                             {"measured_samples_per_s", measured_rate},
                                             {"measured_by", clock                 ? "clock"
                                                             : row.measured_by_cpu ? "cpu"
                                                                                   : "reports"},
                                             {"planned_with_samples_per_s", row.samples_per_s},
                                             {"clock_samples_per_s", by_the_clock},
                                             {"steps", row.measured_steps},
                                             {"layers_ms", layers_ms(job, measured.layers)},
                                             {"waking_ms", waking_ms(measured.layers)},
                                             {"crowding", measured.platform.crowding.back()},
                                             {"layers_ms_there", layers_ms(job, status.layer_costs)},
                                             {"waking_ms_there", waking_ms(status.layer_costs)},
                                             {"other_ms", measured.platform.step_ms},
                                             {"other_ms_there", status.other_ms},
                                             {"latency_ms", measured.link.latency_ms},
                                             {"message_ms", measured.link.message_ms},
                                             {"message_ms_per_mib", measured.link.message_ms_per_byte * (1 << 20)},
                                             {"predicted_over_measured", ratio}})
                  << std::endl;
      }
    }
}

void summarize(const job_specification& job, const std::map<std::pair<std::uint32_t, std::uint32_t>, comparison>& all,
               figures& out) {
  double farthest = std::nan(""), farthest_off = -1;
  std::string where = "none";
  int crowded = 0, held = 0;
  for (const auto& [grid, x] : all) {
    const auto name = name_of(grid.first, grid.second);
    const double middle = median(x.ratios);
    std::cout << boost::json::serialize(
                     boost::json::object{{"job", job.name},
                                         {"configuration", name},
                                         {"rounds", x.ratios.size()},
                                         {"predicted_over_measured, median", middle},
                                         {"least", std::ranges::min(x.ratios)},
                                         {"most", std::ranges::max(x.ratios)},
                                         {"rounds_in_the_interval", x.inside},
                                         {"measured_by", has_cores(grid.first, grid.second) ? "clock" : "cpu"}})
              << std::endl;
    const double off = std::isfinite(middle) ? std::abs(middle - 1) : std::numeric_limits<double>::infinity();
    if (!has_cores(grid.first, grid.second)) {
      ++crowded;
      held += 2 * x.inside > x.ratios.size();
    } else if (off > farthest_off) {
      farthest = middle;
      farthest_off = off;
      where = name;
    }
  }
  out.between(job.name + ": predicted over measured by the clock, farthest (" + where + ")", farthest, 1 - allowed,
              1 + allowed);
  out.at_least(job.name + ": configurations of more slots than cores whose step was in its interval, of " +
                   std::to_string(crowded),
               held, crowded);
}

} // namespace
} // namespace parcae

int main(int argc, char** argv) {
  using namespace parcae;
  const std::chrono::milliseconds duration(1000 * (argc > 1 ? std::atoi(argv[1]) : 5));
  const std::string wanted = argc > 2 ? argv[2] : "gpt,small,mlp,resnet,bert,vgg";
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 3;
  figures out;
  for (const auto& job :
       {ten_million(), tenth_of_a_million(), example("mlp"), example("resnet"), example("bert"), example("vgg")}) {
    if (wanted.find(job.name) == std::string::npos)
      continue;
    std::map<std::pair<std::uint32_t, std::uint32_t>, comparison> all;
    for (int i = 0; i < rounds; ++i)
      compare(job, duration, all);
    summarize(job, all, out);
  }
  return out.status();
}

#include "protocols/base/text.hpp"
#include "protocols/choreography/choreography.hpp"
#include "runtime/cli/command_options.hpp"
#include "runtime/process/client.hpp"
#include "runtime/view/step_trace.hpp"

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

namespace parcae {

namespace {

struct trace_options {
  manager_option manager;
  std::uint64_t job = 0;
  std::uint32_t steps = 5;
  std::string output;
};

/// Without a word of any rank for so long it is over.
constexpr std::chrono::minutes silence_limit{2};

std::string about(const trace_reply& x, std::uint32_t steps) {
  std::set<std::uint64_t> traced;
  bool is_cut = false;
  for (const auto& trace : x.traces) {
    traced.insert(trace.step);
    is_cut |= trace.is_cut;
  }
  std::string result = counted(traced.size(), "step") + " of " + counted(x.slots.size(), "slot");
  if (x.traces.size() < std::size_t{steps} * x.slots.size())
    result += ", as training did not go on";
  if (is_cut)
    result += "; some have more spans than are kept";
  return result;
}

trace_reply collect(const trace_options& x) {
  manager_client client(x.manager.access());
  auto all = client.trace({x.job, x.steps, 0});
  if (all.slots.empty())
    throw client_error("job " + std::to_string(x.job) + " does not train just now, so there are no steps to trace");
  auto heard = std::chrono::steady_clock::now();
  while (!all.is_over || all.traces.size() < all.count) {
    if (std::chrono::steady_clock::now() - heard > silence_limit)
      break;
    if (all.traces.size() >= all.count)
      std::this_thread::sleep_for(ask_interval);
    auto more = client.trace({x.job, 0, all.traces.size()});
    if (more.number != all.number || more.generation != all.generation)
      throw client_error("another trace of job " + std::to_string(x.job) +
                         " was asked for, which took this one's place; ask again");
    all.is_over = more.is_over;
    all.count = more.count;
    if (!more.traces.empty())
      heard = std::chrono::steady_clock::now();
    std::ranges::move(more.traces, std::back_inserter(all.traces));
  }
  if (all.traces.empty())
    throw client_error("no slot of job " + std::to_string(x.job) + " told of a step; `parcae status " +
                       std::to_string(x.job) + "` says whether it trains");
  return all;
}

void trace(const trace_options& x) {
  const auto all = collect(x);
  std::ofstream file(x.output, std::ios::binary);
  file << trace_events_of(all);
  file.close();
  if (!file)
    throw std::runtime_error("cannot write " + x.output);
  std::fprintf(stderr, "%s: %s; open it at https://ui.perfetto.dev\n", x.output.c_str(), about(all, x.steps).c_str());
}

} // namespace

void add_trace(CLI::App& app) {
  auto command = app.add_subcommand("trace", "where the time of a job's next steps goes, slot by slot\n"
                                             "Example: parcae trace 1 --steps 5 --output trace.json");
  auto x = add_options(*command, trace);
  command->add_option("JOB", x->job)->required()->check(CLI::Range(1, 1'000'000'000));
  command->add_option("--steps", x->steps, "how many steps")
      ->check(CLI::Range(1u, trace_steps::most))
      ->capture_default_str();
  command->add_option("--output", x->output, "FILE.json in the Trace Event format, which Perfetto opens")->required();
}

} // namespace parcae

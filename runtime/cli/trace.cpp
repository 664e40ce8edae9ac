#include "protocols/base/text.hpp"
#include "runtime/cli/command_options.hpp"
#include "runtime/process/whole_trace.hpp"
#include "runtime/view/step_trace.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <fstream>
#include <set>

namespace parcae {

namespace {

struct trace_options {
  manager_option manager;
  std::uint64_t job = 0;
  std::uint32_t steps = 5;
  std::string output;
};

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

void trace(const trace_options& x) {
  manager_client client(x.manager.access());
  const auto all = whole_trace(client, x.job, x.steps);
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
      ->check(CLI::Range(1u, max_traced_steps))
      ->capture_default_str();
  command->add_option("--output", x->output, "FILE.json in the Trace Event format, which Perfetto opens")->required();
}

} // namespace parcae

#include "runtime/lab/profile_command.hpp"

#include "gpu/device/cuda_library.hpp"
#include "planner/cost/profile.hpp"
#include "runtime/job/job_file.hpp"
#include "runtime/lab/profile_report.hpp"
#include "runtime/lab/stall_runs.hpp"
#include "runtime/process/usage.hpp"

#include <boost/json.hpp>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>

namespace parcae {

namespace {

struct profile_arguments {
  std::string job;
  std::string output;
  profile_options options;
  std::uint32_t slots = 32;
  std::uint64_t slot_bytes = 0;
  bool stalls = false, as_json = false;
  std::uint64_t link_bytes_per_s = 0;

  bool on_processor() const { return options.device == "cpu"; }
};

/// Before nodes are started that could not begin.
void require_device(const profile_arguments& args) {
  if (args.on_processor())
    return;
  const auto which = parse_device_choice(args.options.device);
  const bool one = which.names.empty() ? which.numbers.size() == 1 : which.names.find(',') == std::string::npos;
  if (!one)
    throw std::invalid_argument("--device " + args.options.device + ": say which, cpu or for example cuda:0");
  try {
    chosen_gpus(which);
  } catch (const device_error& e) {
    throw std::runtime_error("--device " + args.options.device + ": " + e.what());
  }
}

void write_profile(const profile_arguments& args) {
  require_device(args);
  const auto job = parse_job_file(args.job);
  const auto folder = std::filesystem::absolute(args.output).parent_path();
  if (access(folder.c_str(), W_OK) != 0) // known before minutes of measuring
    throw std::runtime_error("cannot write the profile to " + args.output + ": its folder " + folder.string() +
                             " is missing or not writable");
  const auto measured =
      profile_job(job, args.options, [](const std::string& x) { std::fprintf(stderr, "measuring %s\n", x.c_str()); });
  const slot_memory memory{args.slot_bytes > 0 ? args.slot_bytes : measured.slot_bytes, !args.on_processor()};
  const auto table = predicted_configurations(job, measured, args.slots, memory);
  if (table.empty())
    throw std::runtime_error("no configuration that " + args.job + " allows fits " + std::to_string(args.slots) +
                             " slots and their memory; raise --slots or --slot-memory");
  std::ofstream file(args.output);
  file << boost::json::serialize(to_json(job, measured, table)) << '\n';
  if (!file.flush())
    throw std::runtime_error("cannot write the profile to " + args.output);
  std::fputs(to_string(measured, table).c_str(), stdout);
}

void write_stalls(const profile_arguments& args) {
  require_device(args);
  const auto job = parse_job_file(args.job);
  const auto measured = measure_stalls(job, {args.options.duration, args.link_bytes_per_s, args.options.device},
                                       [](const std::string& x) { std::fprintf(stderr, "measuring %s\n", x.c_str()); });
  std::fputs(args.as_json ? (boost::json::serialize(to_json(measured)) + "\n").c_str() : to_string(measured).c_str(),
             stdout);
}

void run_profile(const profile_arguments& args) {
  if (!args.stalls && (args.link_bytes_per_s > 0 || args.as_json))
    throw CLI::RequiresError(args.as_json ? "--json" : "--link", "--stalls");
  if (args.stalls && !args.output.empty())
    throw CLI::ExcludesError("--output", "--stalls");
  if (args.stalls)
    return write_stalls(args);
  if (args.output.empty())
    throw CLI::RequiredError("--output or --stalls");
  write_profile(args);
}

void add_stall_options(CLI::App& command, profile_arguments& args) {
  command.add_flag("--stalls", args.stalls,
                   "instead, where steps spend their time with 1, 2 and 4 slots, and what machine, network and disk "
                   "cost");
  add_link_rate(command, "--link", args.link_bytes_per_s,
                "of --stalls: also as if each slot were a host behind such a link, 1Gb/s for example");
  command.add_flag("--json", args.as_json, "of --stalls: one JSON object");
}

} // namespace

void add_profile(CLI::App& app) {
  auto args = std::make_shared<profile_arguments>();
  auto* command =
      app.add_subcommand("profile", "measure a job on this machine and predict its speed at every (D, P)\n"
                                    "Example: parcae profile deploy/examples/gpt.toml --stalls --link 1Gb/s\n"
                                    "Example: parcae profile deploy/examples/gpt.toml --output gpt.json");
  command->add_option("JOB.toml", args->job, "the job file")->required();
  command->add_option("--output", args->output, "the profile to write, JSON; `simulate --profile` reads it")
      ->check(in_a_folder);
  add_stall_options(*command, *args);
  add_duration(*command, "--duration", args->options.duration, "of each measurement of steps (default 5s)");
  command->add_option("--changes", args->options.changes, "changes of generation to measure")->capture_default_str();
  command->add_option("--cores", args->options.cores,
                      "slots of one machine that compute side by side (default: cores)");
  command->add_option("--device", args->options.device, "what slots compute on: cpu, or a GPU, cuda:0 or cuda:GPU-UUID")
      ->capture_default_str();
  command->add_option("--slots", args->slots, "predict configurations of up to this many slots")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command->add_option("--slot-memory", args->slot_bytes, "bytes of a slot (default: what was free for it here)")
      ->transform(CLI::AsSizeValue(false));
  command->callback([args] { run_profile(*args); });
}

} // namespace parcae

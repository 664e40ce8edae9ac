// Runs schedules; prints the seeds that fail, how fast it was, and a digest of all that was sent: two builds with the
// same one ran the same schedules. With --verbose what happens in each is printed: a failing seed is replayed by
// `simulation --seed N --verbose`.

#include "tests/simulation/schedule.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <span>

namespace {

using namespace parcae::simulation;

fault fault_called(const std::string& name, std::span<const named_fault> all) {
  const auto x = std::ranges::find(all, name, &named_fault::name);
  return x == all.end() ? fault::none : x->what;
}

} // namespace

int main(int argc, char** argv) {
  CLI::App app("Schedules of a cluster in virtual time");
  std::uint64_t seed = 1, schedules = 1, failures = 10;
  std::string wrong;
  bool verbose = false, serves = false;
  std::vector<std::string> names;
  for (const auto& all : {all_faults(), all_service_faults()})
    for (const auto& x : all)
      names.emplace_back(x.name);
  app.add_option("--seed", seed, "of the first");
  app.add_option("--schedules", schedules, "so many, with the seeds that follow");
  app.add_option("--failures", failures, "ends after so many");
  app.add_option("--fault", wrong, "put in, to be found")->check(CLI::IsMember(names));
  app.add_flag("--serve", serves, "of a job that serves");
  app.add_flag("--verbose", verbose, "what happens, with the log");
  CLI11_PARSE(app, argc, argv);
  spdlog::set_level(verbose ? spdlog::level::info : spdlog::level::off);
  spdlog::set_pattern("            %^%l%$ %v");

  const auto began = std::chrono::steady_clock::now();
  std::uint64_t done = 0, failed = 0, messages = 0, digest = 0;
  double virtual_s = 0;
  std::size_t generations = 0, harms = 0;
  for (; done < schedules && failed < failures; ++done) {
    const auto x = serves ? run_service_schedule(seed + done, fault_called(wrong, all_service_faults()), verbose)
                          : run_schedule(seed + done, fault_called(wrong, all_faults()), verbose);
    messages += x.messages;
    digest ^= x.digest;
    virtual_s += x.virtual_s;
    generations += x.generations;
    harms += x.harms;
    failed += !x.problems.empty();
    for (const auto& problem : x.problems)
      fmt::print("seed {}: {}\n", seed + done, problem);
    std::fflush(stdout);
  }
  const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  fmt::print("{} schedules, {} failed; {} harms, {} generations, {:.1f} h of virtual time, {} messages in {:.1f} s: "
             "{:.0f} schedules/s; digest {:016x}\n",
             done, failed, harms, generations, virtual_s / 3600, messages, seconds, static_cast<double>(done) / seconds,
             digest);
  return failed > 0 ? 1 : 0;
}

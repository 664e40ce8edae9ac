// Trains job after job on a cluster of real processes, each on a host of its own where that is permitted, while a
// random generator kills, freezes and announces the end of them, cuts and slows down their links, fills and slows down
// their disks, the manager's among them, and fails if
// * the parameters of a job differ from those of an undisturbed run, or a job fails, or nothing goes on for long;
// * committed steps were computed again though each stage had a holder that nothing had been done to;
// * an instance was declared lost that nothing had been done to, as a manager does that was itself away;
// * a program ended by itself, or what it holds (memory, descriptors, threads) grows and grows;
// * an hour or more of it did less harm than it should.
// With --serve a model answers clients meanwhile (service_chaos.hpp).
// What happens is drawn from the seed; when it happens to the job is a matter of real time.

#include "runtime/child/process.hpp"
#include "tests/chaos/chaos.hpp"
#include "tests/chaos/service_chaos.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>

namespace parcae {
namespace {

int run(const options& x) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(x.seed));
  std::fflush(stdout);
  scratch_folder logs("parcae-chaos");
  std::filesystem::create_directory(logs.path() / "undisturbed");
  std::filesystem::create_directory(logs.path() / "disturbed");
  bool good = false;
  std::string why;
  try {
    if (x.serve) {
      good = serves_through_faults(x, logs.path() / "disturbed");
    } else {
      const auto expected = undisturbed(x, logs.path() / "undisturbed");
      good = !expected.empty() && trains_through_faults(x, logs.path() / "disturbed", expected);
    }
  } catch (const std::exception& e) {
    why = e.what();
  }
  if (!good) {
    logs.keep();
    std::printf("failed with seed %llu%s%s; logs are in %s\n", static_cast<unsigned long long>(x.seed),
                why.empty() ? "" : ": ", why.c_str(), logs.path().c_str());
  }
  return good ? 0 : 1;
}

} // namespace
} // namespace parcae

int main(int argc, char** argv) {
  CLI::App app{"Trains through random faults and compares with undisturbed training.", "chaos"};
  parcae::options x;
  app.add_option("--minutes", x.minutes, "how long there are faults")->capture_default_str();
  app.add_option("--seed", x.seed, "default: a random one");
  app.add_option("--steps", x.steps, "of each job")->capture_default_str();
  app.add_option("--nodes", x.nodes, "workers; each third has two slots")->capture_default_str();
  app.add_option("--device", x.device, "of the workers: cpu, or cuda:N, which they share")->capture_default_str();
  app.add_flag("--serve", x.serve, "a model that answers clients, instead of jobs that train");
  app.add_flag("--feed", x.feed, "a larger model, layers go ahead of changes, and much harm is done while they do");
  app.add_flag("!--spare-manager", x.disturb_manager, "leave the manager alone");
  CLI11_PARSE(app, argc, argv);
  return parcae::run(x);
}

// parcae: the manager and the commands for people. Links no LibTorch.

#include "protocols/base/printable.hpp"
#include "protocols/choreography/build.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/lab/demo.hpp"
#include "runtime/lab/profile_command.hpp"
#include "runtime/process/standard_streams.hpp"
#include "runtime/process/usage.hpp"
#include "runtime/simulate/simulate.hpp"
#include "runtime/web/web.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>

extern const char* const parcae_revision; // see revision.cmake

int main(int argc, char** argv) {
  parcae::hold_standard_streams();
  parcae::name_this_build(PARCAE_VERSION, parcae_revision);
  CLI::App app{"Parcae trains neural networks on preemptible instances.\n"
               "Example: parcae manager & parcae-node --name a & parcae submit JOB.toml --wait",
               "parcae"};
  app.failure_message(parcae::usage_error);
  try {
    parcae::add_manager(app);
    parcae::add_submit(app);
    parcae::add_status(app);
    parcae::add_watch(app);
    parcae::add_preempt(app);
    parcae::add_cancel(app);
    parcae::add_export(app);
    parcae::add_checkpoints(app);
    parcae::add_logs(app);
    parcae::add_job_keys(app);
    parcae::add_trace(app);
    parcae::add_init(app);
    parcae::add_web(app);
    parcae::add_demo(app);
    parcae::add_profile(app);
    parcae::add_simulate(app);
    parcae::add_forecast(app);
    parcae::add_advise(app);
    app.set_version_flag("--version", "parcae " + parcae::this_build());
    parcae::refuse_misspelt_command(app, argc, argv);
    app.parse(argc, argv);
    if (app.get_subcommands().empty())
      throw CLI::RequiredError("a command");
    if (std::fflush(stdout) != 0 || std::ferror(stdout))
      throw std::runtime_error("what was to be printed could not be written");
    return 0;
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  } catch (const std::invalid_argument& e) {
    std::fprintf(stderr, "parcae: %s\n", parcae::printable(e.what()).c_str());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "parcae: %s\n", parcae::printable(e.what()).c_str());
    return 1;
  }
}

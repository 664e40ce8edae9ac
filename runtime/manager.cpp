#include "runtime/manager.hpp"

#include "actors/registry.hpp"
#include "runtime/system.hpp"
#include "runtime/termination.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <spdlog/spdlog.h>

#include <cstdio>
#include <random>
#include <stdexcept>

namespace parcae {

namespace {

std::uint64_t random_word() {
  std::random_device source;
  return std::uint64_t{source()} << 32 | source();
}

registry_config configuration_of(const liveness_limits& limits) {
  registry_config result;
  result.lease = limits.lease;
  result.conductor.request_limit = limits.control_request;
  result.conductor.prepare_limit = limits.prepare;
  result.manager_life = random_word();
  result.secret = random_secret();
  return result;
}

} // namespace

int run_manager(const address& listen, log_format log) {
  log_to_stderr("manager", log);
  termination end;
  system_config config;
  if (auto problem = config.problem(); !problem.empty())
    throw std::runtime_error("cannot run: " + problem);
  caf::actor_system system(config);
  auto front = system.spawn(registry, configuration_of({}));
  auto port = system.middleman().publish(manager_actor{front}, listen.port, listen.host.c_str(),
                                         true); // also where connections to the manager before linger
  if (!port) {
    caf::anon_send_exit(front, caf::exit_reason::user_shutdown);
    throw std::runtime_error("cannot listen on " + to_string(listen) + " (" + render(port.error()) +
                             "): is another manager running?");
  }
  std::printf("listening on %s\n", to_string(address{listen.host, *port}).c_str());
  std::fflush(stdout);
  spdlog::info("listening on {}:{}", listen.host, *port);
  end.wait([&] { end.stop(); });
  spdlog::info("ending");
  limit_shutdown(5);
  system.middleman().unpublish(manager_actor{front}, *port);
  caf::anon_send_exit(front, caf::exit_reason::user_shutdown);
  return 0;
}

} // namespace parcae

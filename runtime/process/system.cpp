#include "runtime/process/system.hpp"

#include "protocols/base/crash_stack.hpp"
#include "protocols/choreography/build.hpp"
#include "protocols/wire/type_ids.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <stdexcept>
#include <thread>

namespace parcae {

std::string problem_of(const liveness_limits& x) {
  if (x.heartbeat.count() <= 0 || x.heartbeat >= x.declared_lost)
    return "heartbeats must be more frequent than the silence that declares a peer lost";
  if (x.declared_lost >= x.lease)
    return "the lease must be longer than the silence that declares a peer lost";
  if (x.control_request >= x.prepare)
    return "PREPARE must be given more time than a control request";
  return {};
}

std::string problem_of_addresses(std::uint64_t bytes, std::uint64_t stack_bytes, unsigned cores) {
  constexpr std::uint64_t mib = 1 << 20, all_else = 512 * mib;
  constexpr unsigned other_threads = 12; // beside one for each core, of which CAF takes four at least
  const auto needed = all_else + (std::max(cores, 4u) + other_threads) * stack_bytes;
  return bytes >= needed ? ""
                         : "only " + std::to_string(bytes / mib) + " MiB of addresses are allowed, and threads take " +
                               std::to_string(needed / mib) + " MiB: raise `ulimit -v`";
}

namespace {

// Each thread of the actors has a stack for its last words.
class crash_stacks : public caf::thread_hook {
public:
  void init(caf::actor_system&) override {}
  void thread_started() override { use_crash_stack(); }
  void thread_terminates() override {}
};

} // namespace

system_config::system_config() {
  liveness_limits limits;
  add_thread_hook<crash_stacks>();
  parcae::add_message_types(*this);
  load<caf::io::middleman>();
  set("scheduler.policy", caf::atom("sharing"));
  set("middleman.app-identifiers", application_identifiers());
  set("middleman.heartbeat-interval", caf::timespan(limits.heartbeat));
  set("middleman.connection-timeout", caf::timespan(limits.declared_lost));
}

std::string system_config::problem() const {
  liveness_limits limits;
  limits.heartbeat = std::chrono::duration_cast<std::chrono::milliseconds>(
      caf::get_or(*this, "middleman.heartbeat-interval", caf::timespan{0}));
  limits.declared_lost = std::chrono::duration_cast<std::chrono::milliseconds>(
      caf::get_or(*this, "middleman.connection-timeout", caf::timespan{0}));
  if (caf::get_or(*this, "scheduler.policy", caf::atom("")) != caf::atom("sharing"))
    return "the scheduler's policy is not \"sharing\"";
  auto identifiers = caf::get_or(*this, "middleman.app-identifiers", std::vector<std::string>{});
  if (identifiers != application_identifiers())
    return "the application identifiers are not " + application_identifiers().back();
  return problem_of(limits);
}

namespace {

caf::actor_system_config& sound(system_config& x) {
  auto problem = x.problem();
  ::rlimit addresses{}, stack{};
  if (problem.empty() && ::getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY) {
    constexpr std::uint64_t usual_stack = 8 << 20;
    const bool known = ::getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur != RLIM_INFINITY;
    problem = problem_of_addresses(addresses.rlim_cur, known ? stack.rlim_cur : usual_stack,
                                   std::thread::hardware_concurrency());
  }
  if (!problem.empty())
    throw std::runtime_error("cannot run: " + problem);
  return x;
}

} // namespace

control_plane::control_plane(const link_options& options) :
    network_((sound(config_), options)), system_(config_), end_(system_, network_) {}

void control_plane::read_bundle_again() {
  if (!network_.peers())
    return;
  if (const auto problem = network_.read_bundle_again(); problem.empty())
    spdlog::info("certificates are read again");
  else
    spdlog::error("{}: what was read before stays in use", problem);
}

} // namespace parcae

#include "runtime/cli/manager.hpp"

#include "actors/manager/front.hpp"
#include "actors/manager/registry.hpp"
#include "actors/node/instance.hpp"
#include "protocols/base/locks.hpp"
#include "protocols/trust/credentials.hpp"
#include "runtime/process/system.hpp"
#include "runtime/process/termination.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <spdlog/spdlog.h>

#include <cstdio>
#include <random>
#include <stdexcept>
#include <thread>

namespace parcae {

namespace {

std::uint64_t random_word() {
  std::random_device source;
  return std::uint64_t{source()} << 32 | source();
}

// After a standstill of this process its losses show within one heartbeat. A node is back after at most two attempts to
// dial, since one may fail by meeting a heartbeat (see instance.cpp).
registry_config configuration_of(const liveness_limits& limits) {
  registry_config result;
  result.lease = limits.lease;
  result.beat = limits.heartbeat;
  result.standstill = limits.declared_lost - limits.heartbeat;
  result.return_window = 2 * (dial_limits{}.longest_pause + limits.heartbeat);
  result.conductor.request_limit = limits.control_request;
  result.conductor.prepare_limit = limits.prepare;
  result.manager_life = random_word();
  result.secret = random_secret();
  return result;
}

// What must not die, and why it did. Told on the dying actor's thread.
class vital_actors {
public:
  explicit vital_actors(termination& end) : end_(end) {}

  template <class Handle>
  void watch(const Handle& x, std::string name) {
    caf::actor_cast<caf::abstract_actor*>(x)->attach_functor([this, name = std::move(name)](const caf::error& why) {
      const lock held(mutex_);
      if (problem_.empty())
        problem_ = "its " + name + " died (" + render(why) + ")";
      end_.stop();
    });
  }

  std::string problem() const {
    const lock held(mutex_);
    return problem_;
  }

private:
  termination& end_;
  mutable mutex mutex_;
  std::string problem_ GUARDED_BY(mutex_);
};

caf::expected<std::uint16_t> publish(control_plane& plane, const manager_actor& what, const address& where) {
  caf::expected<std::uint16_t> port{caf::sec::cannot_open_port};
  caf::scoped_actor self(plane.system());
  self->request(plane.middleman(), liveness_limits{}.control_request, caf::publish_atom_v, where.port,
                caf::actor_cast<caf::strong_actor_ptr>(what), plane.system().message_types(what), where.host, true)
      .receive([&](std::uint16_t x) { port = x; }, [&](caf::error& e) { port = std::move(e); });
  return port;
}

// After a vital actor died: what its children send on their own end, CHECKPOINT above all, has to leave this process.
constexpr std::chrono::seconds last_messages{1};

} // namespace

int run_manager(const manager_access& access, log_format log) {
  const auto& listen = access.where;
  log_to_stderr("manager", log);
  termination end;
  vital_actors vital(end); // told until the actors are gone
  if (!access.bundle.empty())
    if (const auto who = credentials(access.bundle).self(); who.role != membership::manager)
      throw std::runtime_error("cannot listen with the bundle " + access.bundle.string() + ": it is for " +
                               to_string(who) + ", not for a manager");
  control_plane plane({.bundle = access.bundle});
  auto& system = plane.system();
  auto registry_settings = configuration_of({});
  registry_settings.ended = [&] { end.stop(); };
  auto core = system.spawn(registry, std::move(registry_settings));
  auto published = system.spawn(front, manager_actor{core}, plane.peers());
  const auto end_actors = [&] {
    caf::anon_send_exit(published, caf::exit_reason::kill); // it ignores all others
    caf::anon_send_exit(core, caf::exit_reason::user_shutdown);
  };
  const auto port = publish(plane, published, listen);
  if (!port) {
    end_actors();
    throw std::runtime_error("cannot listen on " + to_string(listen) + " (" + render(port.error()) +
                             "): is another manager running?");
  }
  const auto where = to_string(address{listen.host, *port});
  std::printf("listening on %s\n", where.c_str());
  std::fflush(stdout);
  spdlog::info("listening on {}", where);
  vital.watch(core, "registry");
  vital.watch(published, "front");
  bool signalled = false;
  const auto on_end = [&] {
    if (std::exchange(signalled, true))
      end.stop();
    spdlog::info("ending");
    caf::anon_send(core, end_atom_v);
  };
  end.wait(on_end, [&] { plane.read_bundle_again(); });
  const auto problem = vital.problem();
  limit_shutdown(5);
  caf::anon_send(plane.middleman(), caf::unpublish_atom_v, published.address(), *port);
  end_actors();
  if (problem.empty())
    return 0;
  std::this_thread::sleep_for(last_messages);
  throw std::runtime_error(
      "the manager ends: " + problem +
      "; what the keepers held goes to their folders: start it again, and go on with `parcae submit "
      "--resume`");
}

} // namespace parcae

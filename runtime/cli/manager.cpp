#include "runtime/cli/manager.hpp"

#include "actors/manager/front.hpp"
#include "actors/manager/journal.hpp"
#include "actors/manager/registry.hpp"
#include "actors/node/instance.hpp"
#include "protocols/base/locks.hpp"
#include "protocols/trust/credentials.hpp"
#include "runtime/journal/sqlite_journal.hpp"
#include "runtime/process/system.hpp"
#include "runtime/process/termination.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
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
registry_config configuration_of(const liveness_limits& limits, const cluster_identity& cluster) {
  registry_config result;
  result.lease = limits.lease;
  result.beat = limits.heartbeat;
  result.standstill = limits.declared_lost - limits.heartbeat;
  result.return_window = 2 * (dial_limits{}.longest_pause + limits.heartbeat);
  result.conductor.request_limit = limits.control_request;
  result.conductor.prepare_limit = limits.prepare;
  result.conductor.return_limit = result.return_window;
  result.manager_life = cluster.life;
  std::ranges::copy(cluster.secret, result.secret.words.begin());
  return result;
}

// Of the managers before; the first one makes it.
cluster_identity identity_in(journal_store& store, const recovered_state& known) {
  if (known.cluster && known.cluster->life != 0 && known.cluster->secret.size() == secret_key{}.words.size())
    return *known.cluster;
  if (known.cluster)
    throw std::runtime_error("the journal has no usable key");
  const auto secret = random_secret();
  cluster_identity result{random_word(), {secret.words.begin(), secret.words.end()}};
  store.write({entry_of(result)});
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

int run_manager(const manager_access& access, const std::filesystem::path& state, log_format log) {
  const auto& listen = access.where;
  log_to_stderr("manager", log);
  termination end;
  vital_actors vital(end); // told until the actors are gone
  if (!access.bundle.empty())
    if (const auto who = credentials(access.bundle).self(); who.role != membership::manager)
      throw std::runtime_error("cannot listen with the bundle " + access.bundle.string() + ": it is for " +
                               to_string(who) + ", not for a manager");
  const std::shared_ptr<journal_store> store = open_journal(std::filesystem::absolute(state));
  auto known = recovered_from(store->read());
  control_plane plane({.bundle = access.bundle});
  auto& system = plane.system();
  auto keeping = system.spawn<caf::detached>(journal, store);
  vital.watch(keeping, "journal");
  auto registry_settings = configuration_of({}, identity_in(*store, known));
  registry_settings.journal = keeping;
  registry_settings.beyond_loopback = !access.bundle.empty();
  registry_settings.jobs = std::move(known.jobs);
  registry_settings.ended = [&] { end.stop(); };
  auto core = system.spawn(registry, std::move(registry_settings));
  auto published = system.spawn(front, manager_actor{core}, plane.peers());
  const auto end_actors = [&] {
    caf::anon_send_exit(published, caf::exit_reason::kill); // it ignores all others
    caf::anon_send_exit(core, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(keeping, caf::exit_reason::user_shutdown);
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
  throw std::runtime_error("the manager ends: " + problem +
                           "; training goes on: start it again, with the same --state");
}

} // namespace parcae

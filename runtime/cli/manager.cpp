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
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <thread>

namespace parcae {

namespace {

// How many managers are remembered: a node does not stay away for that long.
constexpr std::ptrdiff_t max_managers = 10'000;

std::uint64_t random_word() {
  std::random_device source;
  return std::uint64_t{source()} << 32 | source();
}

// After a standstill of this process its losses show within one heartbeat. A node is back after at most two attempts to
// dial, since one may fail by meeting a heartbeat (see instance.cpp).
registry_config configuration_of(const liveness_limits& limits, const cluster_record& cluster, const renting& market) {
  registry_config result;
  result.pools_that_wait = market.pools_that_wait();
  result.kinds = market.kinds();
  result.lease = limits.lease;
  result.beat = limits.heartbeat;
  result.standstill = limits.declared_lost - limits.heartbeat;
  result.return_window = 2 * (dial_limits{}.longest_pause + limits.heartbeat);
  result.conductor.request_limit = limits.control_request;
  result.conductor.prepare_limit = limits.prepare;
  result.conductor.return_limit = result.return_window;
  result.manager_life = cluster.life;
  result.manager = cluster.managers.back();
  result.managers.insert(cluster.managers.begin(), cluster.managers.end());
  std::ranges::copy(cluster.secret, result.secret.words.begin());
  return result;
}

// Of the managers before, which the first one made; with this one as the last.
cluster_record identity_in(journal_store& store, const recovered_state& known) {
  cluster_record result;
  if (known.cluster) {
    result = *known.cluster;
    if (result.life == 0 || result.secret.size() != secret_key{}.words.size())
      throw std::runtime_error("the journal has no usable key");
  } else {
    const auto secret = random_secret();
    result = {random_word(), {secret.words.begin(), secret.words.end()}, {}};
  }
  auto& all = result.managers;
  all.push_back(random_word());
  if (all.size() > max_managers)
    all.erase(all.begin(), all.end() - max_managers);
  store.write({entry_of(result)});
  return result;
}

// What the manager cannot do without, and why it failed. From any thread.
class vital_parts {
public:
  explicit vital_parts(termination& end) : end_(end) {}

  template <class Handle>
  void watch(const Handle& x, std::string name) {
    caf::actor_cast<caf::abstract_actor*>(x)->attach_functor([this, name = std::move(name)](const caf::error& why) {
      failed("its " + name + " died (" + render(why) + ")");
    });
  }

  void failed(std::string why) {
    const lock held(mutex_);
    if (problem_.empty())
      problem_ = std::move(why);
    end_.stop();
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

std::string text_of_this_host() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

// Null: a signal came first.
std::unique_ptr<etcd_leadership> lead(const journal_place& kept, const address& where, termination& end,
                                      vital_parts& vital) {
  std::atomic<bool> leads = false;
  const auto& place = *kept.store;
  const auto name = to_string(place);
  if (!place.tls && !std::ranges::all_of(place.members, [](const address& x) { return is_loopback(x.host); }))
    spdlog::warn("{} is asked without TLS: whoever hears that has the cluster's key; etcds:// has TLS", name);
  if (kept.standby)
    spdlog::info("standing by until no other manager leads in {}", name);
  auto result = std::make_unique<etcd_leadership>(
      place, to_string(where) + " on " + text_of_this_host(), kept.standby,
      lead_listener{.leads =
                        [&] {
                          leads = true;
                          end.stop();
                        },
                    .failed = [&](std::string why) { vital.failed(std::move(why)); },
                    .waits = [](const std::string& why) { spdlog::warn("cannot lead yet: {}", why); }});
  end.wait([&] { end.stop(); });
  if (const auto problem = vital.problem(); !problem.empty())
    throw std::runtime_error("cannot lead in " + name + ": " + problem);
  if (!leads)
    return nullptr;
  spdlog::info("leads in {}", name);
  return result;
}

caf::expected<std::uint16_t> publish(control_plane& plane, const manager_actor& what, const address& where) {
  caf::expected<std::uint16_t> port{caf::sec::cannot_open_port};
  caf::scoped_actor self(plane.system());
  self->request(plane.middleman(), liveness_limits{}.control_request, caf::publish_atom_v, where.port,
                caf::actor_cast<caf::strong_actor_ptr>(what), plane.system().message_types(what), where.host, true)
      .receive([&](std::uint16_t x) { port = x; }, [&](caf::error& e) { port = std::move(e); });
  return port;
}

void check_is_managers(const std::filesystem::path& bundle) {
  if (!bundle.empty())
    if (const auto who = credentials(bundle).self(); who.role != membership::manager)
      throw std::runtime_error("cannot listen with the bundle " + bundle.string() + ": it is for " + to_string(who) +
                               ", not for a manager");
}

// After a vital actor died: what its children send on their own end, CHECKPOINT above all, has to leave this process.
constexpr std::chrono::seconds last_messages{1};

} // namespace

int run_manager(const address& listen, const std::filesystem::path& bundle, const journal_place& kept,
                const renting_options& rents, log_format log) {
  log_to_stderr("manager", log);
  termination end;
  vital_parts vital(end); // told until the actors are gone
  check_is_managers(bundle);
  const bool alone = !kept.store;
  const auto leadership = alone ? nullptr : lead(kept, listen, end, vital);
  if (!alone && !leadership)
    return 0;
  const std::shared_ptr<journal_store> store =
      alone ? open_journal(std::filesystem::absolute(kept.state)) : leadership->journal();
  auto known = recovered_from(store->read());
  control_plane plane({.bundle = bundle});
  renting market(rents); // ends before the plane
  auto keeping = plane.system().spawn<caf::detached>(journal, store);
  vital.watch(keeping, "journal");
  auto registry_settings = configuration_of({}, identity_in(*store, known), market);
  registry_settings.journal = keeping;
  registry_settings.beyond_loopback = !bundle.empty();
  registry_settings.jobs = std::move(known.jobs);
  registry_settings.ended = [&] { end.stop(); };
  registry_settings.own_warning = [&] { return plane.certificate_problem(); };
  auto core = plane.system().spawn(registry, std::move(registry_settings));
  auto published = plane.system().spawn(front, core, plane.peers());
  const auto end_actors = [&] {
    caf::anon_send_exit(published, caf::exit_reason::kill); // it ignores all others
    caf::anon_send_exit(core, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(keeping, caf::exit_reason::user_shutdown);
  };
  const auto port = publish(plane, published, listen);
  if (!port) {
    end_actors();
    throw std::runtime_error("cannot listen on " + to_string(listen) + ": " + render(port.error()));
  }
  const auto where = to_string(address{listen.host, *port});
  std::printf("listening on %s\n", where.c_str());
  std::fflush(stdout);
  spdlog::info("listening on {}", where);
  vital.watch(core, "registry");
  vital.watch(published, "front");
  market.begin(plane.system(), where, core, keeping, std::move(known.ledger));
  bool signalled = false;
  const auto on_end = [&] {
    spdlog::info("ending");
    if (!alone || std::exchange(signalled, true))
      end.stop();
    else
      caf::anon_send(core, end_atom_v);
  };
  end.wait(on_end, [&] { plane.read_bundle_again(); });
  const auto problem = vital.problem();
  if (!problem.empty()) // now, as the end may be cut short
    spdlog::error("{}: ending", problem);
  limit_shutdown(5);
  caf::anon_send(plane.middleman(), caf::unpublish_atom_v, published.address(), *port);
  end_actors();
  if (problem.empty())
    return 0;
  std::this_thread::sleep_for(last_messages);
  throw std::runtime_error("the manager ends: " + problem + "; training goes on: start it again, with the same " +
                           (alone ? "--state" : "--store"));
}

} // namespace parcae

// A control connection as it is, with certificates and without, against CAF's own connection, in one run on loopback:
// round trips of 64 bytes and of 900 kB, alternating. Prints the medians and their ratios; fails if one is beyond its
// bound.

#include "protocols/trust/authority.hpp"
#include "protocols/wire/type_ids.hpp"
#include "runtime/child/process.hpp"
#include "runtime/process/system.hpp"
#include "tests/bench/figures.hpp"
#include "tests/bench/measure.hpp"
#include "tests/support/dial.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

using namespace parcae;

namespace {

constexpr int rounds = 5;
constexpr double max_small = 4; // of CAF's own: two more threads wake each way
constexpr double max_large = 6; // copied four times more, read twice, encrypted; control messages are a few KiB

service_actor::behavior_type echo(service_actor::pointer) {
  return {[](const client_request& x) { return client_reply{x.bytes}; }};
}

/// Milliseconds of each round trip.
std::vector<double> round_trips(caf::actor_system& from, const service_actor& to, std::size_t bytes, int count) {
  caf::scoped_actor self(from);
  const client_request x{std::vector<char>(bytes, 'x')};
  std::vector<double> result;
  for (int i = 0; i < count; ++i) {
    const auto begin = steady::now();
    self->request(to, std::chrono::seconds(20), x)
        .receive([](const client_reply&) {}, [](const caf::error& e) { throw std::runtime_error(render(e)); });
    result.push_back(since_ms(begin));
  }
  return result;
}

/// What answers, and what asks: over CAF's own sockets.
struct bare {
  system_config server_config, client_config;
  caf::actor_system server{server_config}, client{client_config};
  service_actor service = server.spawn(echo);
  service_actor far;

  bare() {
    const auto port = server.middleman().publish(service, 0, "127.0.0.1");
    if (!port)
      throw std::runtime_error(render(port.error()));
    far = *client.middleman().remote_actor<service_actor>("127.0.0.1", *port);
  }
  ~bare() { caf::anon_send_exit(service, caf::exit_reason::user_shutdown); }
  caf::actor_system& asks() { return client; }
};

/// The same through the gate.
struct guarded {
  control_plane server, client;
  service_actor service = server.system().spawn(echo);
  service_actor far;

  guarded(const link_options& here, const link_options& there) : server(here), client(there) {
    caf::scoped_actor self(server.system());
    std::uint16_t port = 0;
    self->request(server.middleman(), std::chrono::seconds(20), caf::publish_atom_v, std::uint16_t{0},
                  caf::actor_cast<caf::strong_actor_ptr>(service), server.system().message_types(service),
                  std::string("127.0.0.1"), true)
        .receive([&](std::uint16_t x) { port = x; }, [](const caf::error& e) { throw std::runtime_error(render(e)); });
    auto reached = dial<service_actor>(client.system(), client.middleman(), {"127.0.0.1", port});
    if (!reached)
      throw std::runtime_error(render(reached.error()));
    far = *reached;
  }
  ~guarded() { caf::anon_send_exit(service, caf::exit_reason::user_shutdown); }
  caf::actor_system& asks() { return client.system(); }
};

} // namespace

int main() {
  spdlog::set_level(spdlog::level::err); // stdout is for figures
  const scratch_folder folder("parcae-link-bench");
  make_authority(folder.path() / "a", std::chrono::days(1));
  const auto manager = issue_bundle(folder.path() / "a", membership::manager, "manager", std::chrono::days(1));
  const auto node = issue_bundle(folder.path() / "a", membership::node, "node", std::chrono::days(1));
  bare own;
  constexpr double unlimited = 1e9; // questions a second
  guarded plain({.questions = unlimited}, {}), tls({.bundle = manager, .questions = unlimited}, {.bundle = node});
  figures result;
  for (const auto& [name, bytes, count, bound] :
       {std::tuple{"64 bytes", std::size_t{64}, 400, max_small}, {"900 kB", std::size_t{900'000}, 20, max_large}}) {
    std::vector<double> bare_ms, plain_ms, tls_ms;
    for (int i = 0; i < rounds; ++i) {
      bare_ms.push_back(median(round_trips(own.asks(), own.far, bytes, count)));
      plain_ms.push_back(median(round_trips(plain.asks(), plain.far, bytes, count)));
      tls_ms.push_back(median(round_trips(tls.asks(), tls.far, bytes, count)));
    }
    const auto base = median(bare_ms);
    result.only_shown(std::string("round trip of ") + name + ", CAF alone, ms", base);
    result.only_shown(std::string("round trip of ") + name + ", gate, ms", median(plain_ms));
    result.only_shown(std::string("round trip of ") + name + ", gate and TLS, ms", median(tls_ms));
    result.at_most(std::string("round trip of ") + name + ", gate over CAF alone", median(plain_ms) / base, bound);
    result.at_most(std::string("round trip of ") + name + ", gate and TLS over CAF alone", median(tls_ms) / base,
                   bound);
  }
  return result.status();
}

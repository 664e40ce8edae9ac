#include "runtime/client.hpp"

#include "protocols/type_ids.hpp"
#include "runtime/system.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

namespace parcae {

struct manager_client::implementation {
  system_config config;
  caf::actor_system system{config};
  caf::scoped_actor self{system};
  service_actor manager;
  std::chrono::milliseconds limit;
  address where;
};

namespace {

// A handshake that meets a heartbeat tick fails with connection_timeout although the peer is healthy (CAF 0.17).
constexpr int dial_attempts = 3;

template <class Reply>
Reply expect(reply&& x) {
  if (auto good = std::get_if<Reply>(&x))
    return std::move(*good);
  if (auto bad = std::get_if<error_reply>(&x))
    throw client_error(bad->text);
  throw client_error("the manager answered something else than was asked");
}

} // namespace

manager_client::manager_client(const address& manager, std::chrono::milliseconds limit) :
    implementation_(std::make_unique<implementation>()) {
  auto& c = *implementation_;
  c.limit = limit;
  c.where = manager;
  caf::error problem;
  for (int i = 0; i < dial_attempts && !c.manager; ++i)
    c.self->request(c.system.middleman().actor_handle(), limit, caf::connect_atom_v, manager.host, manager.port)
        .receive(
            [&](const caf::node_id&, caf::strong_actor_ptr& to, const std::set<std::string>& interface) {
              if (to && c.system.assignable<service_actor>(interface))
                c.manager = caf::actor_cast<service_actor>(to);
              else
                problem = caf::make_error(parcae_error::wrong_protocol, std::string("not a manager of this build"));
            },
            [&](caf::error& e) { problem = std::move(e); });
  if (!c.manager)
    throw client_error("no manager at " + to_string(manager) + " (" +
                       (problem == caf::sec::cannot_connect_to_node ? "nobody listens there" : render(problem)) +
                       "); start one with `parcae manager`, or name it with --manager");
}

manager_client::~manager_client() = default;

reply manager_client::ask(const request& x) {
  auto& c = *implementation_;
  std::vector<char> bytes;
  c.self->request(c.manager, c.limit, client_request{encode(x)})
      .receive([&](client_reply& answer) { bytes = std::move(answer.bytes); },
               [&](const caf::error& e) {
                 throw client_error("the manager at " + to_string(c.where) + " does not answer (" + render(e) + ")");
               });
  try {
    return decode_reply(bytes);
  } catch (const std::runtime_error& e) {
    throw client_error(e.what());
  }
}

std::uint64_t manager_client::submit(const job_specification& job) {
  return expect<submitted_reply>(ask(submit_request{job})).job;
}

status_reply manager_client::status(const status_request& wanted) {
  return expect<status_reply>(ask(wanted));
}

std::vector<std::string> manager_client::preempt(const preempt_request& x) {
  return expect<preempted_reply>(ask(x)).names;
}

void manager_client::cancel(std::uint64_t job) {
  expect<cancelled_reply>(ask(cancel_request{job}));
}

void manager_client::checkpoint(std::uint64_t job) {
  expect<checkpointing_reply>(ask(checkpoint_request{job}));
}

} // namespace parcae

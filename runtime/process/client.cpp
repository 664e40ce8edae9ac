#include "runtime/process/client.hpp"

#include "protocols/wire/type_ids.hpp"
#include "runtime/process/system.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

namespace parcae {

struct manager_client::implementation {
  ~implementation() { caf::anon_send_exit(follower, caf::exit_reason::user_shutdown); }

  explicit implementation(const link_options& options) : plane(options) {}

  control_plane plane;
  caf::scoped_actor self{plane.system()};
  service_actor manager;
  std::chrono::milliseconds limit;
  address where;       ///< of the manager
  caf::error problem;  ///< why it was not reached
  caf::actor follower; ///< null: none
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

struct follower_state {
  service_actor manager;
  status_request wanted;
};

/// Asks the manager again and again. Timer atoms are its only messages; it ends with the first problem.
caf::behavior follower(caf::stateful_actor<follower_state>* self, service_actor manager, const address& where,
                       std::chrono::milliseconds limit, status_request first, std::chrono::milliseconds interval,
                       std::function<status_request(status_reply)> heard, std::function<void(std::string)> lost) {
  const auto end = [=](const std::string& why) {
    lost(why);
    self->quit();
  };
  self->state.manager = std::move(manager);
  self->state.wanted = first;
  self->set_down_handler([=](const caf::down_msg&) { end("the manager at " + to_string(where) + " is gone"); });
  self->monitor(self->state.manager);
  self->send(self, timer_atom_v);
  return {[=](timer_atom) {
    auto& s = self->state;
    self->request(s.manager, limit, client_request{encode(request{s.wanted})})
        .then(
            [=](const client_reply& answer) {
              try {
                self->state.wanted = heard(expect<status_reply>(decode_reply(answer.bytes)));
                self->delayed_send(self, interval, timer_atom_v);
              } catch (const std::runtime_error& e) {
                end(e.what());
              }
            },
            [=](const caf::error& e) {
              end("the manager at " + to_string(where) + " does not answer (" + render(e) + ")");
            });
  }};
}

} // namespace

void manager_client::dial(const address& manager) {
  auto& c = *implementation_;
  c.where = manager;
  c.problem = {};
  const auto deadline = std::chrono::steady_clock::now() + c.limit;
  const auto may_be_worth_it = [&] {
    return !c.manager && (!c.problem || c.problem == caf::sec::connection_timeout) &&
           std::chrono::steady_clock::now() < deadline;
  };
  for (int i = 0; i < dial_attempts && may_be_worth_it(); ++i)
    c.self->request(c.plane.middleman(), 2 * c.limit, caf::connect_atom_v, manager.host, manager.port)
        .receive(
            [&](const caf::node_id&, caf::strong_actor_ptr& to, const std::set<std::string>& interface) {
              if (to && c.plane.system().assignable<service_actor>(interface))
                c.manager = caf::actor_cast<service_actor>(to);
              else
                c.problem = caf::make_error(parcae_error::wrong_protocol, std::string("not a manager of this build"));
            },
            [&](caf::error& e) { c.problem = std::move(e); });
}

manager_client::manager_client(const manager_access& to, std::chrono::milliseconds limit) :
    implementation_(std::make_unique<implementation>(link_options{.bundle = to.bundle, .dial = limit})) {
  auto& c = *implementation_;
  c.limit = limit;
  for (auto x = to.managers.begin(); x != to.managers.end() && !c.manager; ++x)
    dial(*x);
  if (!c.manager)
    throw client_error("no manager at " + text_of(to.managers) + " (" + render(c.problem) +
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

std::uint64_t manager_client::submit(const job_specification& job, std::int32_t priority) {
  return expect<submitted_reply>(ask(submit_request{job, priority})).job;
}

checked_reply manager_client::check(const job_specification& job, std::int32_t priority) {
  return expect<checked_reply>(ask(check_request{job, priority}));
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

void manager_client::report(const report_request& x) {
  expect<reported_reply>(ask(x));
}

void manager_client::follow(status_request first, std::chrono::milliseconds interval,
                            std::function<status_request(status_reply)> heard, std::function<void(std::string)> lost) {
  auto& c = *implementation_;
  c.follower =
      c.plane.system().spawn(follower, c.manager, c.where, c.limit, first, interval, std::move(heard), std::move(lost));
}

void manager_client::checkpoint(std::uint64_t job) {
  expect<checkpointing_reply>(ask(checkpoint_request{job}));
}

} // namespace parcae

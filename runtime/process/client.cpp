#include "runtime/process/client.hpp"

#include "protocols/client/pages.hpp"
#include "protocols/trust/secure_socket.hpp"
#include "protocols/wire/type_ids.hpp"
#include "runtime/process/system.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <algorithm>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace parcae {

struct manager_client::implementation {
  ~implementation() { caf::anon_send_exit(follower, caf::exit_reason::user_shutdown); }

  explicit implementation(const link_options& options) : plane(options) {}

  control_plane plane;
  caf::scoped_actor self{plane.system()};
  service_actor manager;
  std::chrono::milliseconds limit;
  std::vector<address> all; ///< managers, of which one leads
  std::size_t turn = 0;     ///< of the one that answers
  caf::error problem;       ///< why it was not reached
  caf::actor follower;      ///< null: none
};

namespace {

// A handshake that meets a heartbeat tick fails with connection_timeout although the peer is healthy (CAF 0.17).
constexpr int dial_attempts = 3;

template <class Reply>
Reply expect(reply&& x) {
  if (auto good = std::get_if<Reply>(&x))
    return std::move(*good);
  if (auto bad = std::get_if<error_reply>(&x))
    throw refused_request(bad->text, bad->code);
  throw client_error("the manager answered something else than was asked");
}

loss_block block_in(const losses_reply& x, std::uint64_t from) {
  try {
    return x.block.empty() ? loss_block{from, 0, {}} : decode_loss_block(x.block);
  } catch (const std::runtime_error& e) {
    throw client_error(e.what());
  }
}

// What to do about a manager that was not reached.
std::string advice_on(const caf::error& problem) {
  if (is_ours(problem))
    return {}; // it says so itself
  if (problem == caf::sec::cannot_connect_to_node && render(problem) != nobody_listens)
    return "; check --manager";
  return "; start one with `parcae manager`, or name it with --manager";
}

// Of a manager that goes on for ever.
constexpr int max_pages = 1'000;

/// The manager that a dial has found, or why there is none.
caf::expected<service_actor> manager_in(caf::actor_system& system, const caf::strong_actor_ptr& to,
                                        const std::set<std::string>& interface) {
  if (to && system.assignable<service_actor>(interface))
    return caf::actor_cast<service_actor>(to);
  return caf::make_error(parcae_error::wrong_protocol, std::string("not a manager of this build"));
}

enum class connection_end : std::uint8_t {
  before,   ///< it was not asked
  meanwhile ///< it may have done what was asked
};

using outcome_of_question = std::variant<std::vector<char>, caf::error, connection_end>;

/// Of requests to a node whose connection ends only the limit tells (CAF 0.17), so its end is watched. A connection
/// that has ended already is told before the message that the question waits for.
caf::behavior asker(caf::event_based_actor* self, const service_actor& manager, std::chrono::milliseconds limit,
                    const client_request& question, const std::shared_ptr<std::promise<outcome_of_question>>& told) {
  const auto end = [=](outcome_of_question x) {
    told->set_value(std::move(x));
    self->quit();
  };
  self->set_down_handler([=](const caf::down_msg&) { end(connection_end::before); });
  self->monitor(manager);
  self->send(self, timer_atom_v);
  return {[=](timer_atom) {
    self->set_down_handler([=](const caf::down_msg&) { end(connection_end::meanwhile); });
    self->request(manager, limit, question)
        .then([=](const client_reply& x) { end(x.bytes); }, [=](const caf::error& e) { end(e); });
  }};
}

outcome_of_question ask_once(caf::actor_system& system, const service_actor& manager, std::chrono::milliseconds limit,
                             client_request question) {
  const auto told = std::make_shared<std::promise<outcome_of_question>>();
  auto answer = told->get_future();
  system.spawn(asker, manager, limit, std::move(question), told);
  return answer.get();
}

bool changes_nothing(const request& x) {
  return std::holds_alternative<status_request>(x) || std::holds_alternative<check_request>(x) ||
         std::holds_alternative<trace_request>(x) || std::holds_alternative<losses_request>(x);
}

struct follower_config {
  std::vector<address> all;
  std::size_t turn = 0; ///< of the one that is asked first
  service_actor manager;
  caf::io::middleman_actor middleman;
  std::chrono::milliseconds limit, interval, patience;
  manager_client::listener told;
};

struct follower_state {
  follower_config config;
  status_request wanted;
  /// Of questions and dials. What a former one comes to is ignored.
  std::uint64_t attempt = 0;
  std::optional<caf::actor_clock::time_point> away_since;
  std::optional<status_reply> heard;  ///< the pages so far
  std::optional<status_request> page; ///< the next one, behind these
  int pages = 0;

  const address& where() const { return config.all[config.turn % config.all.size()]; }
};

using follower_pointer = caf::stateful_actor<follower_state>*;

void ask(follower_pointer self);
void dial(follower_pointer self);

void end(follower_pointer self, const std::string& why) {
  self->state.config.told.lost(why);
  self->quit();
}

void be_away(follower_pointer self, const std::string& why) {
  auto& s = self->state;
  const auto now = self->clock().now();
  if (!s.away_since) {
    s.away_since = now;
    s.config.told.away(why);
  } else if (now - *s.away_since > s.config.patience) {
    return end(self, why);
  }
  s.config.manager = nullptr;
  s.heard.reset(); // what follows would be of another status
  s.page.reset();
  s.pages = 0;
  ++s.config.turn; // another may lead by now
  self->delayed_send(self, s.config.interval, dial_atom_v, ++s.attempt);
}

void heard(follower_pointer self, const client_reply& answer) {
  auto& s = self->state;
  try {
    auto page = expect<status_reply>(decode_reply(answer.bytes));
    s.away_since.reset();
    s.page = ++s.pages < max_pages ? rest_of(s.page.value_or(s.wanted), page) : std::nullopt;
    if (s.heard)
      add_page(*s.heard, std::move(page));
    else
      s.heard = std::move(page);
    if (s.page)
      return ask(self);
    s.pages = 0;
    s.wanted = s.config.told.heard(*std::exchange(s.heard, {}));
    self->delayed_send(self, s.config.interval, timer_atom_v, ++s.attempt);
  } catch (const std::runtime_error& e) {
    end(self, e.what());
  }
}

void ask(follower_pointer self) {
  auto& s = self->state;
  const auto still = [=, number = ++s.attempt] { return self->state.attempt == number; };
  self->request(s.config.manager, s.config.limit, client_request{encode(request{s.page.value_or(s.wanted)})})
      .then(
          [=](const client_reply& answer) {
            if (still())
              heard(self, answer);
          },
          [=](const caf::error& e) {
            if (still())
              be_away(self,
                      "the manager at " + to_string(self->state.where()) + " does not answer (" + render(e) + ")");
          });
}

void dial(follower_pointer self) {
  auto& s = self->state;
  const auto still = [=, number = ++s.attempt] { return self->state.attempt == number; };
  const auto failed = [=](const caf::error& e) {
    be_away(self, "no manager at " + to_string(self->state.config.all) + " (" + render(e) + ")");
  };
  self->request(s.config.middleman, 2 * s.config.limit, caf::connect_atom_v, s.where().host, s.where().port)
      .then(
          [=](const caf::node_id&, const caf::strong_actor_ptr& to, const std::set<std::string>& interface) {
            if (!still())
              return;
            auto found = manager_in(self->system(), to, interface);
            if (!found)
              return failed(found.error());
            self->state.config.manager = *found;
            self->monitor(*found);
            ask(self);
          },
          [=](const caf::error& e) {
            if (still())
              failed(e);
          });
}

/// Asks the manager again and again. It ends when there is none for too long, or with a refused_request.
caf::behavior follower(follower_pointer self, follower_config config, status_request first) {
  auto& s = self->state;
  s.config = std::move(config);
  s.wanted = first;
  self->set_default_handler(caf::drop);
  self->set_down_handler([=](const caf::down_msg& x) {
    if (auto& s = self->state; s.config.manager && x.source == s.config.manager.address())
      be_away(self, "the manager at " + to_string(s.where()) + " is gone");
  });
  self->monitor(s.config.manager);
  self->send(self, timer_atom_v, s.attempt);
  return {[=](timer_atom, std::uint64_t number) {
            if (number == self->state.attempt)
              ask(self);
          },
          [=](dial_atom, std::uint64_t number) {
            if (number == self->state.attempt)
              dial(self);
          }};
}

} // namespace

void manager_client::dial() {
  auto& c = *implementation_;
  const auto& manager = c.all[c.turn];
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
              if (auto found = manager_in(c.plane.system(), to, interface))
                c.manager = *found;
              else
                c.problem = found.error();
            },
            [&](caf::error& e) {
              c.problem = e == caf::sec::incompatible_application_ids
                              ? caf::make_error(parcae_error::wrong_protocol, c.plane.other_build())
                              : std::move(e);
            });
}

manager_client::manager_client(const manager_access& to, std::chrono::milliseconds limit) :
    implementation_(std::make_unique<implementation>(link_options{.bundle = to.bundle, .dial = limit})) {
  implementation_->limit = limit;
  implementation_->all = to.managers;
  find_manager();
}

void manager_client::find_manager() {
  auto& c = *implementation_;
  c.manager = nullptr;
  for (c.turn = 0, dial(); !c.manager && c.turn + 1 < c.all.size(); dial())
    ++c.turn;
  if (!c.manager)
    throw client_error((is_ours(c.problem) ? "no way to the manager at " : "no manager at ") + to_string(c.all) + " (" +
                       render(c.problem) + ")" + advice_on(c.problem));
}

manager_client::~manager_client() = default;

void manager_client::wait_for_answers(std::chrono::milliseconds limit) {
  implementation_->limit = limit;
}

reply manager_client::ask(const request& x) {
  auto& c = *implementation_;
  const auto where = [&] { return "the manager at " + to_string(c.all[c.turn]); };
  if (!c.manager) // it was away when it was dialled last
    find_manager();
  for (bool again = true;; again = false) {
    auto outcome = ask_once(c.plane.system(), c.manager, c.limit, client_request{encode(x)});
    if (const auto* bytes = std::get_if<std::vector<char>>(&outcome)) {
      try {
        return decode_reply(*bytes);
      } catch (const std::runtime_error& e) {
        throw client_error(e.what());
      }
    }
    if (const auto* problem = std::get_if<caf::error>(&outcome))
      throw client_error(where() + " does not answer (" + render(*problem) + ")");
    if (std::get<connection_end>(outcome) == connection_end::meanwhile && !changes_nothing(x))
      throw client_error("the connection to " + where() +
                         " ended before it answered; `parcae status` says what it did");
    if (!again)
      throw client_error("the connection to " + where() + " ended twice");
    find_manager();
  }
}

std::uint64_t manager_client::submit(const job_specification& job, std::int32_t priority) {
  return expect<submitted_reply>(ask(submit_request{job, priority})).job;
}

checked_reply manager_client::check(const job_specification& job, std::int32_t priority) {
  return expect<checked_reply>(ask(check_request{job, priority}));
}

status_reply manager_client::status(const status_request& wanted) {
  auto result = expect<status_reply>(ask(wanted));
  auto rest = rest_of(wanted, result);
  for (int pages = 1; rest && pages < max_pages; ++pages) {
    auto page = expect<status_reply>(ask(*rest));
    rest = rest_of(*rest, page);
    add_page(result, std::move(page));
  }
  return result;
}

std::string manager_client::certificate_problem() const {
  return implementation_->plane.certificate_problem();
}

std::vector<std::string> manager_client::preempt(const preempt_request& x) {
  return expect<preempted_reply>(ask(x)).names;
}

void manager_client::cancel(std::uint64_t job) {
  expect<cancelled_reply>(ask(cancel_request{job}));
}

trace_reply manager_client::trace(const trace_request& x) {
  return expect<trace_reply>(ask(x));
}

void manager_client::report(const report_request& x) {
  expect<reported_reply>(ask(x));
}

loss_block manager_client::losses(std::uint64_t job, std::uint64_t from) {
  return block_in(expect<losses_reply>(ask(losses_request{job, from, 0})), from);
}

manager_client::thinned_losses manager_client::curve(std::uint64_t job, std::uint64_t points) {
  auto x = expect<losses_reply>(ask(losses_request{job, 0, std::max<std::uint64_t>(points, 1)}));
  return {x.every, block_in(x, 0), std::move(x.validation_losses)};
}

void manager_client::follow(status_request first, std::chrono::milliseconds interval, listener told,
                            std::chrono::milliseconds patience) {
  auto& c = *implementation_;
  c.follower = c.plane.system().spawn(
      follower,
      follower_config{c.all, c.turn, c.manager, c.plane.middleman(), c.limit, interval, patience, std::move(told)},
      first);
}

void manager_client::checkpoint(std::uint64_t job) {
  expect<checkpointing_reply>(ask(checkpoint_request{job}));
}

} // namespace parcae

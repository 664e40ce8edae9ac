#include "actors/manager/front.hpp"

#include "protocols/wire/type_ids.hpp"

#include <caf/exit_reason.hpp>
#include <caf/response_promise.hpp>

#include <chrono>

namespace parcae {

namespace {

constexpr std::chrono::seconds answer_limit{5};

// Not delegated: the answer would come from the registry, which would then be known out there.
template <class Answer, class... Arguments>
caf::result<Answer> pass_on(manager_actor::pointer self, const manager_actor& registry, const Arguments&... arguments) {
  auto promise = self->make_response_promise<Answer>();
  self->request(registry, answer_limit, arguments...)
      .then([promise](const Answer& x) mutable { promise.deliver(x); },
            [promise](caf::error& e) mutable { promise.deliver(std::move(e)); });
  return promise;
}

} // namespace

manager_actor::behavior_type front(manager_actor::pointer self, manager_actor registry) {
  // CAF lets nobody ignore `kill`. All others would end whoever has no handler, links included.
  self->set_exit_handler([](const caf::exit_msg&) {});
  self->set_down_handler([](const caf::down_msg&) {});
  self->set_error_handler([](const caf::error&) {});
  return {
      [=](const client_request& x) { return pass_on<client_reply>(self, registry, x); },
      [=](const hello& x, const instance_actor& handle, const std::vector<slot_actor>& slots) {
        return pass_on<welcome>(self, registry, x, handle, slots);
      },
      [=](const leaving_notice& x) { self->send(registry, x); },
  };
}

} // namespace parcae

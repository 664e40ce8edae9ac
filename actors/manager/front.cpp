#include "actors/manager/front.hpp"

#include "protocols/base/printable.hpp"
#include "protocols/client/client.hpp"
#include "protocols/wire/type_ids.hpp"

#include <caf/exit_reason.hpp>
#include <caf/response_promise.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <variant>

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

using peer_lookup = std::function<std::optional<identity>(const caf::node_id&)>;

/// Where the message comes from that is being handled; none: from nobody who could be told.
caf::node_id sender_of(manager_actor::pointer self) {
  const auto& sender = self->current_sender();
  return sender ? sender->node() : caf::node_id();
}

caf::error not_permitted(const std::string& why) {
  spdlog::warn("not permitted: {}", why);
  return caf::make_error(parcae_error::not_permitted, why);
}

/// The certificate behind the message allows it.
bool may(manager_actor::pointer self, const peer_lookup& peers, const std::function<bool(const identity&)>& rule) {
  if (!peers)
    return true;
  const auto who = peers(sender_of(self));
  return who && rule(*who);
}

std::string name_of(manager_actor::pointer self, const peer_lookup& peers) {
  const auto who = peers(sender_of(self));
  return who ? to_string(*who) : "nobody that is connected";
}

/// What nodes ask for like clients.
bool is_report(const client_request& x) {
  try {
    return std::holds_alternative<report_request>(decode_request(x.bytes));
  } catch (const std::runtime_error&) {
    return false;
  }
}

/// Handles that come with HELLO are of the node that says it: else the manager would give commands to others' actors.
bool all_of_sender(manager_actor::pointer self, const instance_actor& handle, const std::vector<slot_actor>& slots) {
  const auto node = sender_of(self);
  return (!handle || handle.node() == node) &&
         std::ranges::all_of(slots, [&](const auto& x) { return !x || x.node() == node; });
}

} // namespace

manager_actor::behavior_type front(manager_actor::pointer self, manager_actor registry, peer_lookup peers) {
  // CAF lets nobody ignore `kill`. All others would end whoever has no handler, links included.
  self->set_exit_handler([](const caf::exit_msg&) {});
  self->set_down_handler([](const caf::down_msg&) {});
  self->set_error_handler([](const caf::error&) {});
  return {
      [=](const client_request& x) -> caf::result<client_reply> {
        if (!may(self, peers, [&](const identity& who) {
              return who.role == membership::client || (who.role == membership::node && is_report(x));
            }))
          return not_permitted(name_of(self, peers) + " is no client");
        return pass_on<client_reply>(self, registry, x);
      },
      [=](const hello& x, const instance_actor& handle, const std::vector<slot_actor>& slots) -> caf::result<welcome> {
        if (!may(self, peers, [&](const identity& who) { return may_join_as(who, x.name); }))
          return not_permitted(name_of(self, peers) + " may not join as " + printable(x.name));
        if (!all_of_sender(self, handle, slots))
          return caf::make_error(parcae_error::malformed_request, "HELLO with handles of another node");
        return pass_on<welcome>(self, registry, x, handle, slots);
      },
      [=](const leaving_notice& x) {
        if (may(self, peers, [&](const identity& who) { return may_join_as(who, x.name); }))
          self->send(registry, x);
        else
          not_permitted(name_of(self, peers) + " may not announce the end of " + printable(x.name));
      },
  };
}

} // namespace parcae

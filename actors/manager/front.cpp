#include "actors/manager/front.hpp"

#include "protocols/base/line_limit.hpp"
#include "protocols/base/printable.hpp"
#include "protocols/client/client.hpp"
#include "protocols/wire/type_ids.hpp"

#include <caf/exit_reason.hpp>
#include <caf/response_promise.hpp>
#include <caf/send.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>

namespace parcae {

namespace {

constexpr std::chrono::seconds answer_limit{5};

// Not delegated: the answer would come from the registry, which would then be known out there.
template <class Answer, class... Arguments>
caf::result<Answer> pass_on(manager_actor::pointer self, const registry_actor& registry,
                            const Arguments&... arguments) {
  auto promise = self->make_response_promise<Answer>();
  self->request(registry, answer_limit, arguments...)
      .then([promise](const Answer& x) mutable { promise.deliver(x); },
            [promise](caf::error& e) mutable { promise.deliver(std::move(e)); });
  return promise;
}

using peer_lookup = std::function<std::optional<identity>(const caf::node_id&)>;

/// The node that sent the message in hand; none: nobody is there who could be answered.
caf::node_id sender_of(manager_actor::pointer self) {
  const auto& sender = self->current_sender();
  return sender ? sender->node() : caf::node_id();
}

caf::error not_permitted(line_limit& lines, const std::string& why) {
  if (const auto left_out = lines.admit(std::chrono::steady_clock::now()))
    spdlog::warn("not permitted: {}{}", why, *left_out);
  return caf::make_error(parcae_error::not_permitted, why);
}

/// Why who has that certificate may not say it.
std::string problem_of(const hello& x, const std::optional<identity>& who) {
  const auto why =
      who ? problem_of_joining(*who, x.name, x.role == role::keeper) : std::string("nobody that is connected says so");
  return why.empty() ? why : "to join as the " + to_string(x.role) + " " + printable(x.name) + ": " + why;
}

requester sender_as_requester(manager_actor::pointer self, const peer_lookup& peers) {
  if (!peers)
    return {.node = sender_of(self)};
  const auto who = peers(sender_of(self)).value_or(identity{}); // it may have left since it was let in
  return {who.name, uri_of(who), who.role == membership::operator_, sender_of(self)};
}

/// Why who has that certificate may not ask for it: failures are reported by who may have them, under its own names;
/// all else is for commands.
std::string problem_of(const client_request& x, const std::optional<identity>& who) {
  if (!who)
    return "nobody that is connected asks";
  try {
    const auto what = decode_request(x.bytes);
    if (const auto* report = std::get_if<report_request>(&what))
      return may_join_as(*who, report->instance)
                 ? ""
                 : to_string(*who) + " may not report a failure of " + printable(report->instance);
  } catch (const std::runtime_error&) { // the registry says what is wrong with it
  }
  return commands(who->role) ? "" : to_string(*who) + " is no client";
}

/// Handles that come with HELLO are of the node that says it: else the manager would give commands to others' actors.
bool all_of_sender(manager_actor::pointer self, const instance_actor& handle, const std::vector<slot_actor>& slots) {
  const auto node = sender_of(self);
  return (!handle || handle.node() == node) &&
         std::ranges::all_of(slots, [&](const auto& x) { return !x || x.node() == node; });
}

} // namespace

manager_actor::behavior_type front(manager_actor::pointer self, registry_actor registry, peer_lookup peers) {
  // CAF lets nobody ignore `kill`. All other exits, of links too, would end an actor that has no handler for them.
  self->set_exit_handler([](const caf::exit_msg&) {});
  self->set_down_handler([](const caf::down_msg&) {});
  self->set_error_handler([](const caf::error&) {});
  self->set_default_handler(caf::drop);
  const auto lines = std::make_shared<line_limit>();
  return {
      [=](const client_request& x) -> caf::result<client_reply> {
        if (peers)
          if (const auto problem = problem_of(x, peers(sender_of(self))); !problem.empty())
            return not_permitted(*lines, problem);
        return pass_on<client_reply>(self, registry, sender_as_requester(self, peers), x);
      },
      [=](const hello& x, const instance_actor& handle, const std::vector<slot_actor>& slots) -> caf::result<welcome> {
        if (peers)
          if (const auto problem = problem_of(x, peers(sender_of(self))); !problem.empty())
            return not_permitted(*lines, problem);
        if (!all_of_sender(self, handle, slots))
          return caf::make_error(parcae_error::malformed_request, "HELLO with handles of another node");
        return pass_on<welcome>(self, registry, sender_as_requester(self, peers), x, handle, slots);
      },
      [=](const leaving_notice& x) {
        const auto who = peers ? peers(sender_of(self)) : std::nullopt;
        if (!peers || (who && may_join_as(*who, x.name)))
          caf::send_as(caf::actor_cast<caf::actor>(self->current_sender()), registry, x); // it asks who says so
        else
          not_permitted(*lines, (who ? to_string(*who) : "nobody that is connected") + " may not announce the end of " +
                                    printable(x.name));
      },
  };
}

} // namespace parcae

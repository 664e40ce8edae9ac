#include "protocols/wire/type_ids.hpp"

#include <caf/all.hpp>

namespace parcae {

void add_message_types(caf::actor_system_config& config) {
  config.add_message_types<caf::id_block::parcae_protocol>();
  config.add_error_category(caf::atom("parcae"), [](std::uint8_t code, caf::atom_value, const caf::message& context) {
    std::string details;
    if (context.match_elements<std::string>())
      details = context.get_as<std::string>(0);
    return render(static_cast<parcae_error>(code), details);
  });
}

namespace {

// CAF's own errors, in words for people. One without words is an error in this program: its numbers are for repairs.
std::string render_caf(const caf::error& x) {
  // What runtime/link knows of it is more than its code says.
  if ((x == caf::sec::cannot_connect_to_node || x == caf::sec::cannot_open_port) &&
      x.context().match_elements<std::string>() && !x.context().get_as<std::string>(0).empty())
    return x.context().get_as<std::string>(0);
  if (x.category() == caf::atom("system"))
    switch (static_cast<caf::sec>(x.code())) {
    case caf::sec::request_timeout:
    case caf::sec::connection_timeout:
      return "no answer in time";
    case caf::sec::request_receiver_down: // also one that stands still for so long that its connection was closed
    case caf::sec::remote_linking_failed:
      return "it has ended, or its connection has";
    case caf::sec::cannot_connect_to_node:
      return "nobody listens there";
    case caf::sec::disconnect_during_handshake:
    case caf::sec::no_route_to_receiving_node:
    case caf::sec::socket_disconnected:
    case caf::sec::end_of_stream:
      return "the connection ended";
    case caf::sec::cannot_open_port:
    case caf::sec::network_syscall_failed:
      return "the port cannot be opened";
    case caf::sec::incompatible_application_ids:
    case caf::sec::incompatible_versions:
    case caf::sec::unexpected_actor_messaging_interface:
      return "it is another program, or another build";
    case caf::sec::malformed_basp_message:
    case caf::sec::unexpected_message:
    case caf::sec::unknown_type:
      return "it says what this build does not understand";
    case caf::sec::no_actor_published_at_port:
      return "no manager there";
    case caf::sec::runtime_error:
      return "it failed; its log says how";
    default:
      break;
    }
  if (x.category() == caf::atom("exit"))
    switch (static_cast<caf::exit_reason>(x.code())) {
    case caf::exit_reason::normal:
    case caf::exit_reason::user_shutdown:
      return "ended normally";
    case caf::exit_reason::kill:
      return "it was ended";
    case caf::exit_reason::remote_link_unreachable:
      return "its connection ended or fell silent";
    case caf::exit_reason::out_of_workers:
    case caf::exit_reason::unknown:
      return "it has ended";
    case caf::exit_reason::unhandled_exception:
      return "it failed; its log says how";
    case caf::exit_reason::unreachable:
      return "nobody needed it any more";
    default:
      break;
    }
  return "internal error " + std::to_string(x.code());
}

} // namespace

bool is_ours(const caf::error& x) {
  // The empty error (an actor that ended normally) has no category, and CAF 0.17 crashes when asked for it.
  return x && x.category() == caf::atom("parcae");
}

std::string details_of(const caf::error& x) {
  if (is_ours(x) && x.context().match_elements<std::string>())
    return x.context().get_as<std::string>(0);
  return {};
}

std::string render(const caf::error& x) {
  if (!x)
    return "ended normally";
  if (is_ours(x))
    return render(static_cast<parcae_error>(x.code()), details_of(x));
  return render_caf(x);
}

} // namespace parcae

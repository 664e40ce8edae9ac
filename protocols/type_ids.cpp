#include "protocols/type_ids.hpp"

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
  return caf::actor_system_config::render(x);
}

} // namespace parcae

#include "protocols/choreography/messages.hpp"

#include "protocols/base/enum_text.hpp"

namespace parcae {

BOOST_DESCRIBE_ENUM(role, worker, keeper, gateway)

std::string to_string(role x) {
  return std::string(enum_name(x));
}

std::optional<role> parse_role(std::string_view text) {
  return parse_enum<role>(text);
}

} // namespace parcae

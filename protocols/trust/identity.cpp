#include "protocols/trust/identity.hpp"

#include <algorithm>
#include <array>

namespace parcae {

namespace {

constexpr std::array<std::string_view, 3> roles{"manager", "node", "client"};
constexpr std::string_view scheme = "parcae://";
constexpr std::size_t most_characters = 60; // a subject's common name takes 64

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

} // namespace

std::string_view to_string(membership x) {
  return roles.at(static_cast<std::size_t>(x));
}

std::optional<membership> parse_membership(std::string_view text) {
  const auto at = std::ranges::find(roles, text);
  if (at == roles.end())
    return std::nullopt;
  return static_cast<membership>(at - roles.begin());
}

std::string to_string(const identity& x) {
  return std::string(to_string(x.role)) + " " + x.name;
}

std::string problem_of_name(std::string_view name) {
  if (name.empty() || name.size() > most_characters)
    return "a name has 1 to " + std::to_string(most_characters) + " characters";
  if (!is_letter_or_digit(name.front()) ||
      !std::ranges::all_of(name, [](char c) { return is_letter_or_digit(c) || c == '.' || c == '_' || c == '-'; }))
    return "a name is of letters, digits, and . _ - behind the first";
  return {};
}

std::string uri_of(const identity& x) {
  return std::string(scheme) + std::string(to_string(x.role)) + "/" + x.name;
}

std::optional<identity> parse_identity_uri(std::string_view uri) {
  if (!uri.starts_with(scheme))
    return std::nullopt;
  uri.remove_prefix(scheme.size());
  const auto slash = uri.find('/');
  if (slash == std::string_view::npos)
    return std::nullopt;
  const auto role = parse_membership(uri.substr(0, slash));
  const auto name = uri.substr(slash + 1);
  if (!role || !problem_of_name(name).empty())
    return std::nullopt;
  return identity{*role, std::string(name), {}};
}

bool may_join_as(const identity& x, std::string_view instance) {
  return x.role == membership::node && instance.starts_with(x.name) &&
         (instance.size() == x.name.size() || instance[x.name.size()] == '-');
}

} // namespace parcae

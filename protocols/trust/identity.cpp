#include "protocols/trust/identity.hpp"

#include "protocols/base/enum_text.hpp"

#include <algorithm>
#include <array>
#include <ctime>

namespace parcae {

namespace {

constexpr std::string_view scheme = "parcae://";
constexpr std::string_view of_fleet = "-*";
constexpr std::size_t max_characters = 60; // a subject's common name takes 64
constexpr std::chrono::days renewal{14};

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

} // namespace

BOOST_DESCRIBE_ENUM(membership, manager, node, keeper, client, operator_)

std::string_view to_string(membership x) {
  return enum_name(x);
}

std::optional<membership> parse_membership(std::string_view text) {
  return parse_enum<membership>(text);
}

std::string to_string(const identity& x) {
  const std::string role(to_string(x.role));
  if (x.name == role && !x.fleet) // "client client" says no more
    return (role.starts_with('o') ? "an " : "a ") + role;
  return role + " " + x.name + std::string(x.fleet ? of_fleet : "");
}

std::string problem_of_name(std::string_view name) {
  if (name.empty() || name.size() > max_characters)
    return "a name has 1 to " + std::to_string(max_characters) + " characters";
  if (!is_letter_or_digit(name.front()) ||
      !std::ranges::all_of(name, [](char c) { return is_letter_or_digit(c) || c == '.' || c == '_' || c == '-'; }))
    return "a name is of letters, digits, and . _ - behind the first";
  return {};
}

std::string uri_of(const identity& x) {
  return std::string(scheme) + std::string(to_string(x.role)) + "/" + x.name + std::string(x.fleet ? of_fleet : "");
}

std::optional<identity> parse_identity_uri(std::string_view uri) {
  if (!uri.starts_with(scheme))
    return std::nullopt;
  uri.remove_prefix(scheme.size());
  const auto slash = uri.find('/');
  if (slash == std::string_view::npos)
    return std::nullopt;
  const auto role = parse_membership(uri.substr(0, slash));
  auto name = uri.substr(slash + 1);
  const bool fleet = role == membership::node && name.ends_with(of_fleet);
  if (fleet)
    name.remove_suffix(of_fleet.size());
  if (!role || !problem_of_name(name).empty())
    return std::nullopt;
  return identity{*role, std::string(name), {}, fleet};
}

bool may_join_as(const identity& x, std::string_view instance) {
  if (!joins(x.role) || !instance.starts_with(x.name))
    return false;
  const auto more = instance.substr(x.name.size());
  return x.fleet ? more.size() > 1 && more.front() == '-' : more.empty();
}

std::string problem_of_joining(const identity& x, std::string_view instance, bool as_keeper) {
  const auto wanted = as_keeper ? membership::keeper : membership::node;
  if (x.role != wanted)
    return "the certificate is for " + to_string(x) + ": a " + (as_keeper ? "keeper" : "worker") +
           " needs one made with `parcae init DIR --add NAME --role " + std::string(to_string(wanted)) + "`";
  if (may_join_as(x, instance))
    return {};
  if (x.fleet)
    return "the certificate is for " + x.name + "-MORE: use such a name";
  return "the certificate is for " + x.name + " alone" +
         (as_keeper ? std::string(": use that name")
                    : "; `parcae init DIR --fleet " + x.name + "` makes one for " + x.name + "-MORE");
}

bool overlap(const identity& x, const identity& other) {
  if (x.name == other.name)
    return x.role != other.role;
  const auto takes = [](const identity& fleet, const identity& y) {
    return fleet.fleet && joins(y.role) && y.name.starts_with(fleet.name + "-");
  };
  return takes(x, other) || takes(other, x);
}

bool has_ended(const identity& x) {
  return x.ends <= std::chrono::system_clock::from_time_t(std::time(nullptr));
}

std::string problem_of_end(const identity& x, std::chrono::system_clock::time_point now) {
  if (x.ends - now > renewal)
    return {};
  const auto seconds = std::chrono::system_clock::to_time_t(x.ends);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  std::array<char, 32> day{};
  std::strftime(day.data(), day.size(), "%Y-%m-%d", &utc);
  return "the certificate of " + to_string(x) + (x.ends <= now ? " ended on " : " ends on ") + day.data() +
         ": make another with `parcae init DIR " +
         (x.fleet ? "--fleet " + x.name : "--add " + x.name + " --role " + std::string(to_string(x.role))) +
         "`, and put it in its place" + (commands(x.role) ? "" : ", with SIGHUP");
}

} // namespace parcae

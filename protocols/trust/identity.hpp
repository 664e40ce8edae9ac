#pragma once

// Who a process is to the others of its cluster, as its certificate says.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace parcae {

/// What a process may do in a cluster.
enum class membership : std::uint8_t {
  manager,  ///< is dialled by all others
  node,     ///< joins as a worker
  keeper,   ///< joins as a keeper
  client,   ///< asks, submits, and ends what is its own
  operator_ ///< may do all that commands can
};

/// In which order they are made, and listed.
inline constexpr membership all_memberships[] = {membership::manager, membership::keeper, membership::node,
                                                 membership::client, membership::operator_};

constexpr bool joins(membership x) {
  return x == membership::node || x == membership::keeper;
}

constexpr bool commands(membership x) {
  return x == membership::client || x == membership::operator_;
}

/// Which end of a connection a process has.
enum class link_side : std::uint8_t { accepted, dialled };

std::string_view to_string(membership x);
std::optional<membership> parse_membership(std::string_view text);

struct identity {
  membership role = membership::client;
  std::string name;                ///< see problem_of_name
  std::string serial;              ///< the certificate's, in hexadecimal
  bool fleet = false;              ///< for any number of workers, NAME-MORE each
  std::chrono::sys_seconds ends{}; ///< the certificate

  friend bool operator==(const identity&, const identity&) = default;
};

/// "node a", "node spot-*", or "a node" if that is its name; for people.
std::string to_string(const identity& x);

/// Empty if a certificate may have that name, else one line: 1 to 60 letters, digits, and . _ - behind the first.
std::string problem_of_name(std::string_view name);

/// What a certificate says in its subject's alternative name, as an URI: parcae://ROLE/NAME, a fleet's
/// parcae://node/NAME-*.
std::string uri_of(const identity& x);
/// Without serial and end. Empty if it is not one of ours.
std::optional<identity> parse_identity_uri(std::string_view uri);

/// Whether a worker or keeper with this certificate may have that name: the certificate's, a fleet's NAME-MORE.
bool may_join_as(const identity& x, std::string_view instance);
/// The same for a role: why it may not, and what to do, in one line; empty: it may.
std::string problem_of_joining(const identity& x, std::string_view instance, bool as_keeper);

/// Whether both could join under one name, or have one bundle: an authority makes only one of them.
bool overlap(const identity& x, const identity& other);

/// By the clock that OpenSSL goes by, which is some milliseconds behind system_clock: who is closed for it is not let
/// in again.
bool has_ended(const identity& x);

/// What is to be done about a certificate that ends within 14 days, or has ended, in one line; empty: nothing yet.
std::string problem_of_end(const identity& x, std::chrono::system_clock::time_point now);

} // namespace parcae

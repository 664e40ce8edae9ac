#pragma once

// Who a process is to the others of its cluster, as its certificate says.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace parcae {

/// What a process may do in a cluster.
enum class membership : std::uint8_t {
  manager, ///< is dialled by all others
  node,    ///< joins, as worker or keeper
  client,  ///< asks and commands: submit, status, …
};

/// Which end of a connection a process has.
enum class link_side : std::uint8_t { accepted, dialled };

std::string_view to_string(membership x);
std::optional<membership> parse_membership(std::string_view text);

struct identity {
  membership role = membership::client;
  std::string name;   ///< see problem_of_name
  std::string serial; ///< the certificate's, in hexadecimal

  friend bool operator==(const identity&, const identity&) = default;
};

/// "node a", for people.
std::string to_string(const identity& x);

/// Empty if a certificate may have that name, else one line: 1 to 60 letters, digits, and . _ - inside.
std::string problem_of_name(std::string_view name);

/// What a certificate says in its subject's alternative name, as an URI: parcae://ROLE/NAME.
std::string uri_of(const identity& x);
/// Without the serial. Empty if it is not one of ours.
std::optional<identity> parse_identity_uri(std::string_view uri);

/// Whether a node with this certificate may join as `instance`: under the certificate's name, or that and more behind a
/// "-": so one certificate serves a fleet, under names that others cannot take.
bool may_join_as(const identity& x, std::string_view instance);

} // namespace parcae

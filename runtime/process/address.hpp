#pragma once

#include "protocols/base/text.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

struct address {
  std::string host;
  std::uint16_t port = 0;
};

inline std::string to_string(const address& x) {
  return with_port(x.host, x.port);
}

/// "HOST:PORT"; an IPv6 address in brackets. Throws std::invalid_argument with one line on what is wrong.
address parse_address(std::string_view text);

/// "HOST" or "HOST:PORT", port 0 if it is not said; an IPv6 address in brackets. Throws likewise, and without a bundle
/// unless it is on loopback.
address parse_place(std::string_view text, const std::string& bundle);

/// By which address of this machine its way begins to the first of them that there is a way to. Throws
/// std::runtime_error with one line.
std::string address_towards(const std::vector<address>& any);

/// Whether it stands for all addresses of a machine: one can listen there, and nobody can dial it.
bool is_everywhere(const std::string& host);

/// A numeric loopback address, or "localhost".
bool is_loopback(const std::string& host);

/// Of a manager, to listen on or to dial without certificates. Throws std::invalid_argument unless it is a numeric
/// loopback address or "localhost": nothing goes beyond loopback without TLS.
address parse_local_address(std::string_view text);

/// "HOST:PORT" of a manager; without a bundle as parse_local_address.
address parse_manager_address(std::string_view text, const std::string& bundle);

/// The managers, and what this process shows there.
struct manager_access {
  manager_access() = default;
  manager_access(address x, std::filesystem::path shown = {}) : managers{std::move(x)}, bundle(std::move(shown)) {}

  std::vector<address> managers; ///< at least one; of several one leads, and the others may not listen
  std::filesystem::path bundle;  ///< empty: nothing, on loopback
};

/// What --manager, addresses with commas between them, and --bundle say. Throws as parse_manager_address.
manager_access parse_access(std::string_view managers, const std::string& bundle);

/// As --manager says it.
std::string to_string(const std::vector<address>& managers);

} // namespace parcae

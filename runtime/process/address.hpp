#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace parcae {

struct address {
  std::string host;
  std::uint16_t port = 0;
};

inline std::string to_string(const address& x) {
  return x.host + ":" + std::to_string(x.port);
}

/// "HOST:PORT". Throws std::invalid_argument with one line on what is wrong.
address parse_address(std::string_view text);

/// Of a manager, to listen on or to dial. Throws std::invalid_argument unless it is a numeric loopback address or
/// "localhost": nothing goes beyond loopback without TLS.
address parse_local_address(std::string_view text);

} // namespace parcae

#pragma once

// Text for people.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace parcae {

/// The beginning of a UTF-8 text, `max_bytes` at most, without half a character at the end.
inline std::string_view clipped(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes)
    return text;
  auto end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;
  return text.substr(0, end);
}

/// "1 step", "2 steps". The noun's plural takes an s.
inline std::string counted(std::uint64_t n, std::string_view noun) {
  return std::to_string(n) + ' ' + std::string(noun) + (n == 1 ? "" : "s");
}

/// "HOST", IPv6 in brackets.
inline std::string bracketed(const std::string& host) {
  return host.find(':') == std::string::npos ? host : '[' + host + ']';
}

/// "HOST:PORT", IPv6 in brackets.
inline std::string with_port(const std::string& host, std::uint16_t port) {
  return bracketed(host) + ':' + std::to_string(port);
}

/// The same taken apart.
struct host_and_port {
  std::string host;                  ///< without brackets, not empty
  std::optional<std::uint16_t> port; ///< none: there was neither colon nor port
};

/// "HOST" or "HOST:PORT", IPv6 in brackets; none: it is neither.
std::optional<host_and_port> parse_host_and_port(std::string_view text);

/// A duration as people write it: "0s", "350ms", "1.5s", "30s", "2m", "2m05s", "1h02m", "3d04h".
std::string text_of_duration(std::chrono::milliseconds x);

/// The same of a measured number of milliseconds.
std::string text_of_ms(double x);

/// A number of things with three digits or a few more: "0.25", "7.5", "950", "8600", "86 k", "1.2 M", "3 G".
std::string text_of_quantity(double x);

} // namespace parcae

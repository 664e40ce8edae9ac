#pragma once

// What is said over HTTP, as plain values: servers, requests, answers, and the limits of waiting for them.

#include <tl/expected.hpp>

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace parcae {

struct http_server {
  bool tls = true;
  std::string host; ///< a name or an address; IPv6 without brackets
  std::uint16_t port = 443;
  std::string numeric{}; ///< where it is dialled, if the name is looked up already
  /// Not dialled if it is this machine, or on its link only, where a cloud's metadata are: whatever its name says.
  bool elsewhere = false;

  std::string authority() const; ///< for the header Host: without the port if it is the scheme's own
  std::string text() const;      ///< "https://minio.example:9000"

  friend auto operator<=>(const http_server&, const http_server&) = default;
};

struct http_url {
  http_server server;
  std::string target = "/"; ///< path and query, encoded as they are sent
};

/// "http://HOST[:PORT][/PATH][?QUERY]" or "https://…"; what is behind a # is left out. Nothing else is taken: no user
/// names, no spaces, no control characters, at most 8 KiB. Else one line that says what is wrong, without the URL.
tl::expected<http_url, std::string> parse_http_url(std::string_view text);

/// RFC 3986, as AWS's signatures want it: letters, digits and -._~ stay, and / if it is said so.
std::string percent_encoded(std::string_view text, bool keep_slashes = false);

struct http_request {
  std::string method = "GET";
  std::string target = "/";                                   ///< path and query, encoded
  std::vector<std::pair<std::string, std::string>> headers{}; ///< but Host, Content-Length and User-Agent
  std::span<const std::byte> body{};                          ///< must live until there is an answer
};

/// An answer is waited for as long as bytes move, and not longer than all of it may take.
struct http_limits {
  std::chrono::milliseconds connect{10'000}; ///< looking the name up, dialling, TLS
  std::chrono::milliseconds idle{30'000};    ///< without a byte either way
  std::chrono::milliseconds whole{60'000};   ///< from the beginning to the end of the answer
  std::uint64_t body_bytes = 1 << 20;        ///< of an answer
};

struct http_answer {
  unsigned status = 0;
  std::vector<std::pair<std::string, std::string>> headers{};
  std::string body{};           ///< empty if it went elsewhere
  std::uint64_t body_bytes = 0; ///< of the body, wherever it went

  std::string_view header(std::string_view name) const; ///< the first of that name; empty: there is none
};

/// "Mon, 19 Sep 2016 18:29:47 GMT" or "2016-09-19T18:29:47Z", with parts of a second too; nothing if it is neither.
std::optional<std::chrono::sys_seconds> parse_web_time(const std::string& text);

} // namespace parcae

#include "protocols/http/http.hpp"

#include "protocols/base/text.hpp"

#include <algorithm>
#include <cctype>
#include <ctime>
#include <utility>

namespace parcae {

namespace {

constexpr std::size_t max_url = 8 * 1024;

std::uint16_t usual_port(bool tls) {
  return tls ? 443 : 80;
}

bool is_host_character(unsigned char x) {
  return std::isalnum(x) || x == '-' || x == '.' || x == '_';
}

bool same_word(std::string_view a, std::string_view b) {
  const auto lower = [](unsigned char c) { return std::tolower(c); };
  return std::ranges::equal(a, b, {}, lower, lower);
}

} // namespace

std::string http_server::authority() const {
  return port == usual_port(tls) ? bracketed(host) : with_port(host, port);
}

std::string http_server::text() const {
  return (tls ? "https://" : "http://") + authority();
}

tl::expected<http_url, std::string> parse_http_url(std::string_view text) {
  const auto fail = [](const char* why) { return tl::unexpected(std::string(why)); };
  if (text.size() > max_url)
    return fail("is longer than 8 KiB");
  if (std::ranges::any_of(text, [](unsigned char c) { return c <= 0x20 || c >= 0x7f; }))
    return fail("has a character that must be encoded");
  http_url result;
  const auto scheme = text.substr(0, text.find("://"));
  if (scheme.size() == text.size() || !(same_word(scheme, "http") || same_word(scheme, "https")))
    return fail("must begin with https:// or http://");
  result.server.tls = same_word(scheme, "https");
  text.remove_prefix(scheme.size() + 3);
  text = text.substr(0, text.find('#'));
  const auto place = text.substr(0, text.find_first_of("/?"));
  if (const auto target = text.substr(place.size()); !target.empty())
    result.target = (target.front() == '?' ? "/" : "") + std::string(target);
  auto found = parse_host_and_port(place);
  if (!found || found->port == 0 || found->host.size() > 253)
    return fail("has neither HOST nor HOST:PORT, IPv6 in brackets, where one belongs");
  const bool is_ip6 = place.starts_with('[');
  const auto is_of_ip6 = [](unsigned char c) { return std::isxdigit(c) || c == ':' || c == '.'; };
  if (is_ip6 && !std::ranges::all_of(found->host, is_of_ip6))
    return fail("has an address in brackets that is none");
  if (!is_ip6 && !std::ranges::all_of(found->host, is_host_character))
    return fail("has a host with characters that no name has");
  result.server.port = found->port.value_or(usual_port(result.server.tls));
  result.server.host = std::move(found->host);
  return result;
}

std::string percent_encoded(std::string_view text, bool keep_slashes) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string result;
  for (const unsigned char c : text)
    if ((c < 0x80 && std::isalnum(c)) ||
        std::string_view("-._~").find(static_cast<char>(c)) != std::string_view::npos || (keep_slashes && c == '/'))
      result += static_cast<char>(c);
    else
      result += {'%', digits[c >> 4], digits[c & 15]};
  return result;
}

std::string_view http_answer::header(std::string_view name) const {
  const auto found = std::ranges::find_if(headers, [&](const auto& x) { return same_word(x.first, name); });
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

std::optional<std::chrono::sys_seconds> parse_web_time(const std::string& text) {
  std::tm parts{};
  const auto* end = text.c_str() + text.size();
  const auto done = [&] { return std::chrono::sys_seconds(std::chrono::seconds(timegm(&parts))); };
  if (strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts) == end)
    return done();
  parts = {};
  const auto* rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (!rest)
    return std::nullopt;
  if (*rest == '.')
    do
      ++rest;
    while (std::isdigit(static_cast<unsigned char>(*rest)));
  if (rest + 1 == end && *rest == 'Z')
    return done();
  return std::nullopt;
}

} // namespace parcae

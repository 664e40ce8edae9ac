#include "protocols/http/http.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <ctime>

namespace parcae {

namespace {

constexpr std::size_t most_url = 8 * 1024;

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
  const auto name = host.find(':') == host.npos ? host : "[" + host + "]";
  return port == usual_port(tls) ? name : name + ":" + std::to_string(port);
}

std::string http_server::text() const {
  return (tls ? "https://" : "http://") + authority();
}

tl::expected<http_url, std::string> parse_http_url(std::string_view text) {
  const auto fail = [](const char* why) { return tl::unexpected(std::string(why)); };
  if (text.size() > most_url)
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
  auto place = text.substr(0, text.find_first_of("/?"));
  if (const auto target = text.substr(place.size()); !target.empty())
    result.target = (target.front() == '?' ? "/" : "") + std::string(target);
  result.server.port = usual_port(result.server.tls);
  const auto bracket = place.starts_with('[') ? place.find(']') : 0;
  if (bracket == place.npos)
    return fail("has a [ without a ]");
  if (const auto colon = place.find(':', bracket); colon != place.npos) {
    const auto digits = place.substr(colon + 1);
    const auto [end, bad] = std::from_chars(digits.data(), digits.data() + digits.size(), result.server.port);
    if (bad != std::errc{} || end != digits.data() + digits.size() || result.server.port == 0)
      return fail("has a port that is none");
    place = place.substr(0, colon);
  }
  if (bracket > 0) {
    if (place.size() != bracket + 1)
      return fail("has something between ] and the port");
    place = place.substr(1, bracket - 1);
    if (!std::ranges::all_of(place, [](unsigned char c) { return std::isxdigit(c) || c == ':' || c == '.'; }))
      return fail("has an address in brackets that is none");
  } else if (!std::ranges::all_of(place, is_host_character)) {
    return fail("has a host with characters that no name has");
  }
  if (place.empty() || place.size() > 253)
    return fail("has no host");
  result.server.host = place;
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

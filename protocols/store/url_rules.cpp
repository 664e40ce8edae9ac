#include "protocols/store/url_rules.hpp"

#include "protocols/base/printable.hpp"
#include "protocols/http/http.hpp"
#include "protocols/store/aws_credentials.hpp"
#include "protocols/store/store.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>

namespace parcae {

namespace {

/// Without its query, which may have a secret.
std::string shown(const std::string& url) {
  return printable(url.substr(0, url.find('?')), 300);
}

/// With each %2e as a dot, also where that was encoded once more.
std::string decoded(std::string text) {
  for (std::size_t at = 0; (at = text.find('%', at)) != text.npos;) {
    unsigned byte = 0;
    const auto* digits = text.data() + at + 1;
    const bool is_code = at + 2 < text.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    if (is_code)
      text.replace(at, 3, 1, static_cast<char>(byte));
    else
      ++at;
  }
  return text;
}

bool leads_out(const std::string& url) {
  const auto path = decoded(url.substr(0, url.find_first_of("?#")));
  for (std::size_t begin = 0; begin <= path.size();) {
    const auto end = std::min(path.find_first_of("/\\", begin), path.size());
    const auto part = std::string_view(path).substr(begin, end - begin);
    if (part == "." || part == "..")
      return true;
    begin = end + 1;
  }
  return false;
}

} // namespace

bool is_named(const std::string& server, const std::vector<std::filesystem::path>& places) {
  const auto names_it = [&](const std::string& text) {
    const auto url = parse_http_url(text);
    return url && url->server.text() == server;
  };
  return places.empty() || names_it(environment("AWS_ENDPOINT_URL_S3")) || names_it(environment("AWS_ENDPOINT_URL")) ||
         std::ranges::any_of(places, [&](const auto& x) { return names_it(x.string()); });
}

bool require_allowed(const std::string& url, const std::vector<std::filesystem::path>& places) {
  if (places.empty())
    return true;
  const bool astray = leads_out(url);
  bool of_scheme = false;
  std::string allowed;
  for (const auto& x : places) {
    auto place = x.string();
    const bool is_scheme = place.ends_with("://");
    while (!is_scheme && place.size() > 1 && place.ends_with('/'))
      place.pop_back();
    allowed += (allowed.empty() ? "" : ", ") + place;
    if (!is_url(place) || astray)
      continue;
    if (!is_scheme && (url == place || url.starts_with(place + "/")))
      return true;
    of_scheme = of_scheme || (is_scheme && url.starts_with(place));
  }
  if (of_scheme)
    return false;
  throw store_error(store_trouble::unreachable,
                    shown(url) + " is not below what this node lets jobs use: --data " + allowed);
}

} // namespace parcae

#include "runtime/market/web_place.hpp"

#include "protocols/base/printable.hpp"

#include <span>
#include <stdexcept>

namespace parcae {

web_place::web_place(const std::string& url, const std::filesystem::path& authorities) {
  const auto parsed = parse_http_url(url);
  if (!parsed)
    throw std::runtime_error(shown_url(url) + " is no URL: it " + parsed.error());
  url_ = *parsed;
  if (url_.server.tls)
    trust_ = make_http_trust(authorities);
}

tl::expected<std::string, std::string> web_place::ask(const std::string& body, const http_limits& limits,
                                                      const std::stop_token& stop) {
  if (!client_)
    client_ = std::make_unique<http_client>(url_.server, trust_);
  http_request request{"GET", url_.target, {}, {}};
  if (!body.empty())
    request = {"POST", url_.target, {{"Content-Type", "application/json"}}, std::as_bytes(std::span(body))};
  auto answer = client_->ask(request, limits, stop);
  if (!answer) {
    client_.reset();
    return tl::unexpected(answer.error());
  }
  if (answer->status != 200)
    return tl::unexpected("it was answered with HTTP status " + std::to_string(answer->status) +
                          (answer->status / 100 == 3 ? "; redirections are not followed" : ""));
  return std::move(answer->body);
}

std::string shown_url(const std::string& url) {
  return printable(url.substr(0, url.find('?')), 200);
}

} // namespace parcae

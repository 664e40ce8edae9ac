#pragma once

// A connection to an HTTP server, for those who have an io_context; the others take http_client.

#include "protocols/http/http.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <filesystem>
#include <memory>

namespace boost::asio::ssl {
class context;
}

namespace parcae {

/// What the certificates of HTTPS servers are checked against.
using http_trust = std::shared_ptr<boost::asio::ssl::context>;

/// The system's authorities, or those in a PEM file; `identity`, another with a certificate and its key, for servers
/// that want one. TLS 1.2 or newer. Throws std::runtime_error: a file cannot be read.
http_trust make_http_trust(const std::filesystem::path& authorities = {}, const std::filesystem::path& identity = {});

/// Dials when it is asked something, and stays connected as long as the server likes. Over TLS if the server says so;
/// then its certificate must be of the server's name and of somebody who is trusted.
class http_connection {
public:
  http_connection(boost::asio::any_io_executor executor, http_server server, http_trust trust = nullptr);
  ~http_connection();
  http_connection(const http_connection&) = delete;
  http_connection& operator=(const http_connection&) = delete;

  /// Within the limits there is an answer, of any status, or one line that says why there is none: nobody listens,
  /// silence, no HTTP, a certificate that is not trusted, too many bytes, an end too early. Redirections are answers.
  /// The body of a 200 or 206 goes to `into` if that is not empty, which it must fit into. One question after the
  /// other. What the server did with a request that failed is unknown; one that it can be asked twice (GET, HEAD, PUT,
  /// DELETE) is sent again, once, if it was lost with a connection that had been idle.
  boost::asio::awaitable<tl::expected<http_answer, std::string>>
  ask(const http_request& request, const http_limits& limits, std::span<std::byte> into = {});

private:
  class implementation;
  std::unique_ptr<implementation> implementation_;
};

} // namespace parcae

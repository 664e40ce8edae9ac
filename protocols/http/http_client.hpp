#pragma once

// HTTP for threads that may wait.

#include "protocols/http/http_connection.hpp"

#include <stop_token>

namespace parcae {

/// One server, one question after the other, on the calling thread; the connection stays. Not thread-safe.
class http_client {
public:
  explicit http_client(http_server server, http_trust trust = nullptr);
  ~http_client();
  http_client(const http_client&) = delete;
  http_client& operator=(const http_client&) = delete;

  /// As http_connection::ask; a stop ends it within milliseconds, and this client with it.
  tl::expected<http_answer, std::string> ask(const http_request& request, const http_limits& limits,
                                             const std::stop_token& stop, std::span<std::byte> into = {});

private:
  class implementation;
  std::unique_ptr<implementation> implementation_;
};

} // namespace parcae

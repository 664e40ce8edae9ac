#pragma once

// Who answers what protocols/http's service is asked: routes at once, the manager on threads that may wait, events as
// they happen.

#include "protocols/http/http_service.hpp"
#include "runtime/web/routes.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <memory>

namespace parcae {

/// Of the server; another for tests.
struct web_limits {
  std::uint32_t header_bytes = 8 * 1024;
  std::uint64_t body_bytes = 1 << 20;
  std::size_t connections = 64;
  std::size_t of_one_address = 8;
  std::size_t behind_bytes = 1 << 20; ///< of a reader of events
  std::size_t at_work = 4;            ///< questions that wait for a cluster's manager
  std::chrono::milliseconds idle{30'000};
};

class web_server {
public:
  /// Listens; throws std::runtime_error with one line. All else happens on the context's thread, but what waits.
  web_server(boost::asio::io_context& context, const boost::asio::ip::tcp::endpoint& where,
             const http_identity& identity, web_routes& routes, web_limits limits = {});
  ~web_server();
  web_server(const web_server&) = delete;
  web_server& operator=(const web_server&) = delete;

  std::uint16_t port() const;
  /// Whether the certificate that browsers see ends within that time, or has ended; never without TLS. Any thread.
  bool certificate_ends_within(std::chrono::seconds time) const;

  class implementation;

private:
  std::unique_ptr<implementation> implementation_;
};

} // namespace parcae

#pragma once

// HTTP/1.1 for who asks, with TLS and without: connections and their limits, answers at once or piece by piece. All on
// one thread, that of the io_context.

#include "protocols/http/http_answerer.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

namespace parcae {

struct http_service_limits {
  std::uint32_t header_bytes = 8 * 1024;
  std::uint64_t body_bytes = 1 << 20;
  std::size_t connections = 64;
  std::size_t of_one_address = 8;
  /// Until a request is there, then until its body is, then without a byte of its answer being taken: the end.
  std::chrono::milliseconds idle{30'000};
  /// From the first byte of a header to its last: 408, and the end. Zero: it has what `idle` leaves, and no answer.
  std::chrono::milliseconds header{0};
};

/// PEM files; empty: plain HTTP.
struct http_identity {
  std::filesystem::path certificate, key;
};

class http_service {
public:
  /// Listens; throws std::runtime_error with one line. What is under way when the io_context stops goes with that.
  http_service(boost::asio::io_context& context, const boost::asio::ip::tcp::endpoint& where,
               const http_identity& identity, http_answerer& answerer, const http_service_limits& limits);
  /// Listens no more.
  ~http_service();
  http_service(const http_service&) = delete;
  http_service& operator=(const http_service&) = delete;

  std::uint16_t port() const;
  /// Whether the certificate that clients see ends within that time, or has ended; never without TLS. Any thread.
  bool certificate_ends_within(std::chrono::seconds time) const;

private:
  class implementation;

  std::shared_ptr<implementation> implementation_;
};

} // namespace parcae

#pragma once

// Where clients of a served model ask: OpenAI's API over HTTP, before a gateway.

#include "gpu/gateway/gateway.hpp"
#include "protocols/http/http_service.hpp"
#include "runtime/gateway/api_keys.hpp"

#include <boost/asio/ip/tcp.hpp>

#include <chrono>
#include <cstdint>
#include <memory>

namespace parcae {

struct endpoint_limits {
  std::uint64_t body_bytes = 4 << 20;
  std::uint64_t short_body_bytes = 64 << 10; ///< is read before 429, too, so that its connection stays
  std::size_t connections = 4096;
  std::size_t of_one_address = 4096; ///< as many may be behind one proxy
  std::chrono::milliseconds idle{60'000};
  std::chrono::milliseconds header{10'000};
};

/// A thread of its own. All methods are for any thread.
class endpoint {
public:
  /// Listens; throws std::runtime_error with one line. It answers 503 until it is given a gateway.
  endpoint(const boost::asio::ip::tcp::endpoint& where, const http_identity& identity, api_keys keys,
           endpoint_limits limits = {});
  ~endpoint();
  endpoint(const endpoint&) = delete;

  std::uint16_t port() const;

  /// Asks this one from now on, until it is let go.
  void ask(gateway& x);
  /// It is not called any more when this returns; its clients are told. Nothing if another one is asked by now.
  void let_go(const gateway& x);
  /// Takes no more requests (503); what it has goes on.
  void close_doors();

private:
  class implementation;
  std::unique_ptr<implementation> implementation_;
};

/// A gateway's executor whom clients ask by `x`, as long as it lives. Both outlive it.
std::unique_ptr<executor> make_asked_gateway(executor_options options, data_port& port, endpoint& x);

} // namespace parcae

#pragma once

// An HTTP proxy on loopback that stands before a server, counts requests, and lets each fare as a test says.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace parcae {

/// What becomes of a request.
enum class fate : std::uint8_t {
  pass,
  hang_up,     ///< the server sees nothing of it
  cut_request, ///< the server sees half of its body, then nothing more
  half,        ///< the server sees half of its body; then `lost` is called, and that is all
  lose_answer, ///< the server does it, and nobody hears
  cut_answer,  ///< half of the answer's body
  unavailable, ///< 503, SlowDown
  expired,     ///< 403, ExpiredToken
  skewed,      ///< 403, RequestTimeTooSkewed; with a Date one hour ahead
  silence,     ///< no answer, ever
};

struct seen_request {
  unsigned number; ///< from 1
  std::string method;
  std::string target;
};

/// Listens on a port of its own from construction to destruction; a thread of its own does the work, and calls back.
class request_proxy {
public:
  using decision = std::function<fate(const seen_request&)>;
  using news = std::function<void(const seen_request&)>;

  /// Before 127.0.0.1:`target`. `lost`: the server has done a request whose answer is to be lost, or half of one.
  request_proxy(
      std::uint16_t target, decision decide, news lost = [](const seen_request&) {});
  ~request_proxy();

  std::string endpoint() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::vector<std::string> requests() const; ///< "PUT /bucket/name?query"

private:
  using socket = boost::asio::ip::tcp::socket;

  boost::asio::awaitable<void> accept();
  boost::asio::awaitable<void> serve(socket client);

  const std::uint16_t target_;
  const decision decide_;
  const news lost_;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  boost::asio::io_context io_{1};
  boost::asio::ip::tcp::acceptor acceptor_;
  std::uint16_t port_;
  std::thread thread_;
};

} // namespace parcae

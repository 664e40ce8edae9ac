#pragma once

// A TCP relay on loopback that passes each connection on at a given rate, and may damage what it passes: a bad link.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <cstdint>
#include <memory>
#include <thread>

namespace parcae {

/// Listens on a port of its own from construction to destruction; a thread of its own does the work.
class slow_relay {
public:
  /// To `target` on loopback, `bytes_per_second` on each connection towards it, as fast as it goes back. `damaged`: of
  /// the first connection with so many bytes back the last of them is another one; 0: of none.
  slow_relay(std::uint16_t target, std::uint64_t bytes_per_second, std::uint64_t damaged = 0);
  ~slow_relay();

  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

private:
  using socket_ptr = std::shared_ptr<boost::asio::ip::tcp::socket>;

  boost::asio::awaitable<void> accept();
  /// bytes_per_second: 0: as fast as it goes, and what is to be damaged is.
  boost::asio::awaitable<void> pass(socket_ptr from, socket_ptr to, std::uint64_t bytes_per_second);

  const std::uint16_t target_;
  const std::uint64_t bytes_per_second_;
  std::uint64_t damaged_; ///< 0: none, or it was
  boost::asio::io_context io_{1};
  boost::asio::ip::tcp::acceptor acceptor_;
  std::thread thread_;
};

} // namespace parcae

#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <cstdint>
#include <random>

namespace parcae {

/// Nobody listens there on loopback, now; and no connection, and nobody who asks for any port, gets it by chance before
/// somebody listens, or while who did is dead, as Linux takes 32768 and above for those.
inline std::uint16_t free_port() {
  constexpr std::uint16_t first = 16'384, count = 16'384;
  static auto next = std::random_device{}() % count;
  boost::asio::io_context context;
  boost::asio::ip::tcp::acceptor acceptor(context, boost::asio::ip::tcp::v4());
  for (;;) {
    const auto port = static_cast<std::uint16_t>(first + next++ % count);
    boost::system::error_code taken;
    if (!acceptor.bind({boost::asio::ip::address_v4::loopback(), port}, taken))
      return port;
  }
}

} // namespace parcae

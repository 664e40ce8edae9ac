#include "tests/support/slow_relay.hpp"

#include "protocols/base/as_result.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace parcae {

namespace {

using boost::asio::awaitable;
using boost::asio::ip::tcp;
using boost::system::error_code;

tcp::endpoint loopback(std::uint16_t port) {
  return {boost::asio::ip::address_v4::loopback(), port};
}

} // namespace

slow_relay::slow_relay(std::uint16_t target, std::uint64_t bytes_per_second, std::uint64_t damaged) :
    target_(target), bytes_per_second_(bytes_per_second), damaged_(damaged), acceptor_(io_, loopback(0)) {
  boost::asio::co_spawn(io_, accept(), boost::asio::detached);
  thread_ = std::thread([this] { io_.run(); });
}

slow_relay::~slow_relay() {
  io_.stop();
  thread_.join();
}

awaitable<void> slow_relay::accept() {
  for (;;) {
    auto in = std::make_shared<tcp::socket>(io_), out = std::make_shared<tcp::socket>(io_);
    if (auto [failure] = co_await acceptor_.async_accept(*in, as_result); failure)
      co_return;
    if (auto [failure] = co_await out->async_connect(loopback(target_), as_result); failure)
      continue;
    boost::asio::co_spawn(io_, pass(in, out, bytes_per_second_), boost::asio::detached);
    boost::asio::co_spawn(io_, pass(out, in, 0), boost::asio::detached);
  }
}

awaitable<void> slow_relay::pass(socket_ptr from, socket_ptr to, std::uint64_t bytes_per_second) {
  std::array<char, 16384> piece;
  boost::asio::steady_timer pause(io_);
  auto free_at = std::chrono::steady_clock::now(); // when the link has passed on what it was given
  std::uint64_t passed = 0;
  for (;;) {
    const auto [failed, size] = co_await from->async_read_some(boost::asio::buffer(piece), as_result);
    if (failed)
      break;
    if (bytes_per_second > 0) {
      free_at = std::max(free_at, std::chrono::steady_clock::now()) +
                std::chrono::nanoseconds(size * 1'000'000'000 / bytes_per_second);
      pause.expires_at(free_at);
      co_await pause.async_wait(as_result);
    } else if (damaged_ > passed && damaged_ <= passed + size) {
      piece[std::exchange(damaged_, 0) - passed - 1] ^= 1;
    }
    passed += size;
    const auto [refused, moved] = co_await boost::asio::async_write(*to, boost::asio::buffer(piece, size), as_result);
    if (refused)
      break;
  }
  error_code ignored;
  from->close(ignored);
  to->close(ignored);
}

} // namespace parcae

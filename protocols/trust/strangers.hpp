#pragma once

// Connections that came in, until it is known who is at the other end. What control and data connections have in
// common.

#include "protocols/base/as_result.hpp"
#include "protocols/trust/secure_socket.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>

namespace parcae {

inline constexpr std::size_t max_strangers = 256;
/// Within which a stranger is to say who it is.
inline constexpr std::chrono::milliseconds stranger_limit{5'000};

/// Opens it there. Throws boost::system::system_error.
void listen_on(boost::asio::ip::tcp::acceptor& x, const boost::asio::ip::tcp::endpoint& where);

/// Of an attempt to accept: descriptors or memory are used up.
bool is_exhausted(const boost::system::error_code& x);

/// Their number is bounded. A peer greets within milliseconds and one that floods stays, so the oldest goes. Connection
/// is a secure_socket. All on one thread.
template <class Connection>
class strangers {
public:
  using pointer = std::shared_ptr<Connection>;

  struct listener {
    std::function<void(const pointer&)> too_old;           ///< it is none of them any more, and is to be closed
    std::function<void(const std::string&)> none_comes_in; ///< for a while, and why
  };

  strangers(std::size_t max, listener told) : max_(max), told_(std::move(told)) {}

  /// Gives `arrived` each socket that comes in, until the acceptor is closed, which must stay until then.
  template <class Arrived>
  boost::asio::awaitable<void> accept(boost::asio::ip::tcp::acceptor& from, Arrived arrived) {
    while (from.is_open()) {
      auto [failure, socket] = co_await from.async_accept(as_result);
      if (!failure) {
        arrived(std::move(socket));
      } else if (is_exhausted(failure) && !drop_oldest()) {
        told_.none_comes_in(failure.message());
        boost::asio::steady_timer pause(from.get_executor(), std::chrono::milliseconds(100));
        co_await pause.async_wait(as_result);
      }
    }
  }

  void add(pointer x) {
    if (all_.size() >= max_)
      drop_oldest();
    all_.push_back(std::move(x));
  }

  /// For want of something that each of them takes; `but` stays. Whether there was another one.
  bool drop_oldest(const Connection* but = nullptr) {
    const auto oldest = std::ranges::find_if(all_, [&](const auto& x) { return x.get() != but; });
    if (oldest == all_.end())
      return false;
    const auto x = *oldest;
    all_.erase(oldest);
    told_.too_old(x);
    return true;
  }

  /// It is known now, or closed. Whether it was one of them.
  bool remove(const Connection& x) {
    return std::erase_if(all_, [&](const auto& y) { return y.get() == &x; }) > 0;
  }

  const std::list<pointer>& all() const { return all_; } ///< oldest first

private:
  const std::size_t max_;
  const listener told_;
  std::list<pointer> all_;
};

} // namespace parcae

#pragma once

// Speaks HTTP with a server on loopback as a test says, also badly.

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace parcae {

struct web_question {
  std::string method = "GET", target = "/api/v1/status";
  std::map<std::string, std::string> headers{};
  std::string body{};

  std::string text(std::uint16_t port) const {
    auto all = headers;
    all.emplace("Host", "127.0.0.1:" + std::to_string(port));
    if (!body.empty())
      all.emplace("Content-Length", std::to_string(body.size()));
    std::string result = method + " " + target + " HTTP/1.1\r\n";
    for (const auto& [name, value] : all)
      result += name + ": " + value + "\r\n";
    return result + "\r\n" + body;
  }
};

struct web_reply {
  unsigned status = 0; ///< 0: it hung up
  std::string body;
  std::map<std::string, std::string> headers;
};

class web_client {
public:
  explicit web_client(std::uint16_t port, const char* from = "127.0.0.1", int receive_bytes = 0) :
      port_(port), socket_(context(), tcp::v4()) {
    ::fcntl(descriptor(), F_SETFD, FD_CLOEXEC); // would stay open in nodes that a test starts
    const timeval limit{30, 0};
    ::setsockopt(descriptor(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(descriptor(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (receive_bytes > 0)
      socket_.set_option(tcp::socket::receive_buffer_size(receive_bytes));
    socket_.bind({boost::asio::ip::make_address(from), 0});
    socket_.connect({boost::asio::ip::address_v4::loopback(), port});
  }

  int descriptor() { return socket_.native_handle(); }

  /// As it is; stops where the server hangs up.
  void send(std::string_view text) {
    while (!text.empty()) {
      const auto n = ::send(descriptor(), text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0)
        return;
      text.remove_prefix(static_cast<std::size_t>(n));
    }
  }

  /// What comes next; empty: the server hung up. Throws when nothing comes for long.
  std::string receive_some() {
    std::array<char, 64 * 1024> text{};
    const auto n = ::recv(descriptor(), text.data(), text.size(), 0);
    if (n < 0 && errno != ECONNRESET)
      throw std::runtime_error("the server says nothing");
    return {text.data(), static_cast<std::size_t>(n < 0 ? 0 : n)};
  }

  /// Until `end` has come, or the server hangs up.
  std::string receive_until(std::string_view end) {
    auto result = std::exchange(rest_, {});
    for (std::string some; result.find(end) == result.npos && !(some = receive_some()).empty();)
      result += some;
    return result;
  }

  /// Until the server hangs up.
  std::string receive_all() {
    auto result = std::exchange(rest_, {});
    for (std::string some; !(some = receive_some()).empty();)
      result += some;
    return result;
  }

  web_reply receive(bool head_only = false) {
    boost::beast::http::response_parser<boost::beast::http::string_body> parser;
    parser.body_limit(1 << 28);
    parser.skip(head_only);
    parser.eager(true);
    boost::beast::error_code bad;
    for (;;) {
      if (!rest_.empty())
        rest_.erase(0, parser.put(boost::asio::buffer(rest_), bad));
      if (bad && bad != boost::beast::http::error::need_more)
        throw std::runtime_error("no HTTP: " + bad.message());
      if (parser.is_done())
        break;
      const auto some = receive_some();
      if (some.empty())
        return {};
      rest_ += some;
    }
    web_reply result{parser.get().result_int(), parser.get().body(), {}};
    for (const auto& x : parser.get())
      result.headers.emplace(std::string(x.name_string()), std::string(x.value()));
    return result;
  }

  web_reply ask(const web_question& x) {
    send(x.text(port_));
    return receive(x.method == "HEAD");
  }

private:
  using tcp = boost::asio::ip::tcp;

  static boost::asio::io_context& context() {
    static boost::asio::io_context result;
    return result;
  }

  std::uint16_t port_;
  tcp::socket socket_;
  std::string rest_; ///< that came behind an answer
};

} // namespace parcae

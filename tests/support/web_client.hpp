#pragma once

// Speaks HTTP with a server on loopback as a test says, also badly.

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
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
      port_(port), socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval limit{30, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (receive_bytes > 0)
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    auto address = address_of(from, 0);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    if (::bind(socket_, any, sizeof address) != 0)
      throw std::system_error(errno, std::generic_category(), from);
    address = address_of("127.0.0.1", port);
    if (::connect(socket_, any, sizeof address) != 0)
      throw std::system_error(errno, std::generic_category(), "the server");
  }
  web_client(web_client&& x) noexcept :
      port_(x.port_), socket_(std::exchange(x.socket_, -1)), rest_(std::move(x.rest_)) {}
  ~web_client() {
    if (socket_ >= 0)
      ::close(socket_);
  }

  int descriptor() const { return socket_; }

  /// As it is; stops where the server hangs up.
  void send(std::string_view text) {
    while (!text.empty()) {
      const auto n = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0)
        return;
      text.remove_prefix(static_cast<std::size_t>(n));
    }
  }

  /// What comes next; empty: the server hung up. Throws when nothing comes for long.
  std::string receive_some() {
    std::array<char, 64 * 1024> text{};
    const auto n = ::recv(socket_, text.data(), text.size(), 0);
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
  static sockaddr_in address_of(const char* host, std::uint16_t port) {
    sockaddr_in result{};
    result.sin_family = AF_INET;
    result.sin_port = htons(port);
    ::inet_pton(AF_INET, host, &result.sin_addr);
    return result;
  }

  std::uint16_t port_;
  int socket_;
  std::string rest_; ///< that came behind an answer
};

} // namespace parcae

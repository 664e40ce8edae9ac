#pragma once

// A web server on loopback whose answers a test makes; over TLS if it is given a certificate.

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include <fcntl.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace parcae {

/// Makes `base`.pem: a certificate for `names` (such as "DNS:localhost") that vouches for itself, and its key. Returns
/// that path; `base`.key is made too.
inline std::string make_certificate(const std::string& base, const std::string& names) {
  const auto command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=test "
                       "-addext subjectAltName=" +
                       names + " -keyout " + base + ".key -out " + base + ".pem 2>/dev/null && cat " + base +
                       ".key >> " + base + ".pem";
  if (std::system(command.c_str()) != 0)
    throw std::runtime_error("openssl makes no certificate");
  return base + ".pem";
}

class web_double {
public:
  using request = boost::beast::http::request<boost::beast::http::string_body>;
  using response = boost::beast::http::response<boost::beast::http::string_body>;
  using handler = std::function<response(const request&)>;
  /// Returns whether it had the connection instead, which is over then.
  using rudeness = std::function<bool(const request&, boost::asio::ip::tcp::socket&)>;

  /// `identity`: a PEM file with certificate and key; empty: no TLS. The functions are called on the server's threads.
  explicit web_double(handler answer, const std::string& identity = {}, rudeness rude = {}) :
      answer_(std::move(answer)), rude_(std::move(rude)) {
    if (!identity.empty()) {
      tls_.emplace(boost::asio::ssl::context::tls_server);
      tls_->use_certificate_chain_file(identity);
      tls_->use_private_key_file(identity, boost::asio::ssl::context::pem);
    }
    ::fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC); // would stay open in nodes that a test starts
    thread_ = std::thread([this] { accept(); });
  }

  ~web_double() {
    over_ = true;
    boost::system::error_code ignored;
    boost::asio::ip::tcp::socket knock(io_);
    knock.connect(acceptor_.local_endpoint(), ignored);
    thread_.join();
  }

  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }
  std::string url(const std::string& host = "localhost") const {
    return (tls_ ? "https://" : "http://") + host + ":" + std::to_string(port());
  }
  unsigned connections() const { return connections_; }

  /// What a server of files answers: the range that was asked for of `body`, or that there is no such range.
  static response make_range(const request& x, const std::string& body, const std::string& tag) {
    const std::string range(x["Range"]);
    const auto first = std::stoull(range.substr(range.find('=') + 1)),
               last = std::stoull(range.substr(range.find('-') + 1));
    if (first >= body.size())
      return make(416);
    auto part = body.substr(first, last - first + 1);
    const auto where = "bytes " + std::to_string(first) + "-" + std::to_string(first + part.size() - 1) + "/" +
                       std::to_string(body.size());
    auto answer = make(206, std::move(part));
    answer.set("Content-Range", where);
    answer.set("ETag", tag);
    return answer;
  }

  static response make(unsigned status, std::string body = {}) {
    response result(static_cast<boost::beast::http::status>(status), 11);
    result.body() = std::move(body);
    result.prepare_payload();
    return result;
  }

private:
  void accept() {
    std::vector<std::jthread> clients;
    for (;;) {
      boost::asio::ip::tcp::socket client(io_);
      acceptor_.accept(client);
      if (over_)
        return;
      ++connections_;
      clients.emplace_back([this, socket = std::move(client)]() mutable {
        try {
          if (!tls_)
            return serve(socket, socket);
          boost::asio::ssl::stream<boost::asio::ip::tcp::socket&> stream(socket, *tls_);
          stream.handshake(boost::asio::ssl::stream_base::server);
          serve(stream, socket);
        } catch (const std::exception&) { // it hung up
        }
      });
    }
  }

  template <class Stream>
  void serve(Stream& stream, boost::asio::ip::tcp::socket& socket) {
    boost::beast::flat_buffer buffer;
    for (bool goes_on = true; goes_on;) {
      request x;
      boost::beast::http::read(stream, buffer, x);
      if (rude_ && rude_(x, socket))
        return;
      auto y = answer_(x);
      boost::beast::http::write(stream, y);
      goes_on = y.keep_alive();
    }
  }

  const handler answer_;
  const rudeness rude_;
  std::optional<boost::asio::ssl::context> tls_;
  boost::asio::io_context io_;
  boost::asio::ip::tcp::acceptor acceptor_{io_, {boost::asio::ip::address_v4::loopback(), 0}};
  std::atomic<bool> over_ = false;
  std::atomic<unsigned> connections_ = 0;
  std::thread thread_;
};

} // namespace parcae

#pragma once

// The bytes of a connection, and HTTP's messages in them. For the sources of this room.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <variant>

namespace parcae {

/// A connection, plain or in TLS: one type, so that what waits for bytes is compiled once. A coroutine reads, and one
/// writes, at a time; the limits of waiting are those of `lowest`.
class byte_stream {
public:
  using error_code = boost::beast::error_code;
  using parts = std::array<boost::asio::const_buffer, 3>; ///< sent one behind the other; any may be empty

  struct outcome {
    error_code bad{};
    std::size_t bytes = 0;
  };

  explicit byte_stream(boost::beast::tcp_stream plain);
  /// In TLS, once hands are shaken. `tls` must outlive it.
  byte_stream(boost::beast::tcp_stream plain, boost::asio::ssl::context& tls);

  boost::beast::tcp_stream& lowest();
  /// In TLS: the certificate must be of that host, which is told whom it is asked for.
  void verify_host(const std::string& host);

  boost::asio::awaitable<error_code> shake_hands(boost::asio::ssl::stream_base::handshake_type as);
  boost::asio::awaitable<outcome> read_some(boost::asio::mutable_buffer to);
  boost::asio::awaitable<outcome> write_some(const parts& from);

private:
  using secure = boost::beast::ssl_stream<boost::beast::tcp_stream>;

  std::variant<boost::beast::tcp_stream, secure> stream_;
};

/// What is left of them when the first bytes were sent.
byte_stream::parts behind(byte_stream::parts x, std::size_t sent);

/// Whether a message's header is enough, or all of it is wanted.
enum class read_until { header, end };

/// Reads through `buffer` until the parser has that, or fails: the errors of Beast's async_read, and none beside.
template <bool IsRequest>
boost::asio::awaitable<boost::beast::error_code> read_message(byte_stream& from, boost::beast::flat_buffer& buffer,
                                                              boost::beast::http::basic_parser<IsRequest>& parser,
                                                              read_until until);

/// As it is sent, with the empty line behind it.
std::string text_of(const boost::beast::http::request_header<>& x);
std::string text_of(const boost::beast::http::response_header<>& x);

} // namespace parcae

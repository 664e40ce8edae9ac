#pragma once

// A connection to an http_service, from its first request to its end. For the sources of this room.

#include "protocols/http/byte_stream.hpp"
#include "protocols/http/http_service.hpp"

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>

namespace parcae::conversing {

/// A connection that waits for a request.
struct waiting_connection {
  boost::asio::ip::address from;
  boost::beast::tcp_stream* stream; ///< null: it has given its place to another
};
using waiting_list = std::list<waiting_connection>; ///< the longest first

/// How a request and its answer end.
enum class ending {
  next,    ///< another may follow
  goodbye, ///< nothing follows
  gone     ///< the connection is broken, or given up
};

/// The head of an answer with a body that long.
std::string head_of(const http_reply& reply, std::uint64_t body_bytes, bool goes_on);

/// A connection, until it ends.
class conversation {
public:
  /// All of these must outlive it. `local`: the numeric address that was dialled.
  conversation(http_answerer& answerer, const http_service_limits& limits, waiting_list& waiting, byte_stream& stream,
               const boost::asio::ip::address& from, std::string local);

  /// Requests one after the other.
  boost::asio::awaitable<void> hold();

private:
  using error_code = boost::beast::error_code;
  using request_parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  template <class T>
  using awaitable = boost::asio::awaitable<T>;

  awaitable<ending> one();
  awaitable<bool> read(request_parser& parser, std::optional<http_reply>& reply);
  awaitable<error_code> read_head(request_parser& parser, bool& is_late);
  http_reply error_of(const error_code& e);
  awaitable<bool> send(boost::asio::const_buffer head, boost::asio::const_buffer body = {},
                       boost::asio::const_buffer tail = {});
  awaitable<bool> send_file(const http_reply& reply, bool head_only, bool goes_on);
  awaitable<bool> send_body(const http_reply& reply, bool head_only, bool goes_on);
  awaitable<bool> send_stream(const http_reply& reply, bool head_only, bool chunked, bool goes_on);
  awaitable<bool> send_pieces(http_stream& stream, bool chunked);
  awaitable<bool> send_piece(const std::string& text, bool chunked);
  awaitable<void> watch(std::shared_ptr<http_stream> stream);
  awaitable<void> say_goodbye();

  http_answerer& answerer_;
  const http_service_limits& limits_;
  waiting_list& waiting_;
  byte_stream& stream_;
  boost::beast::tcp_stream& lowest_;
  const boost::asio::ip::address& from_;
  const std::string local_;
  boost::beast::flat_buffer buffer_;
};

} // namespace parcae::conversing

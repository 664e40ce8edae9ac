#pragma once

// A connection to an http_service, from its first request to its end. For the sources of this room.

#include "protocols/base/as_result.hpp"
#include "protocols/http/http_service.hpp"

#include <boost/asio/write.hpp>
#include <boost/beast/core/file_posix.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/chunk_encode.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/file_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/serializer.hpp>
#include <boost/beast/http/span_body.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <list>

namespace parcae::conversing {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using request_parser = http::request_parser<http::string_body>;

inline constexpr std::chrono::seconds pause_before_sign_of_life{15};
inline constexpr std::chrono::seconds goodbye_limit{1};
inline constexpr std::size_t waiting_bytes = 64 * 1024; ///< of requests behind one that is being answered
inline constexpr int stream_buffer_bytes = 64 * 1024;   ///< of the system: a reader who reads nothing is soon noticed

inline std::string size_text(std::uint64_t bytes) {
  return bytes % (1 << 20) == 0 ? std::to_string(bytes >> 20) + " MiB" : std::to_string(bytes >> 10) + " KiB";
}

inline http_head head_of(const http::request<http::string_body>& x, const std::string& local) {
  http_head result{std::string(x.method_string()), std::string(x.target()), {}, local};
  for (const auto& field : x)
    result.headers.emplace_back(field.name_string(), field.value());
  return result;
}

template <class Body>
http::response<Body> response_of(const http_reply& x, bool goes_on) {
  http::response<Body> result(static_cast<http::status>(x.status), 11);
  for (const auto& [name, value] : x.headers)
    result.set(name, value);
  result.keep_alive(goes_on);
  return result;
}

/// A connection that waits for a request.
struct waiting_connection {
  asio::ip::address from;
  beast::tcp_stream* stream; ///< null: it has given its place to another
};
using waiting_list = std::list<waiting_connection>; ///< the longest first

/// Of a header that comes in time.
struct header_limit {
  bool is_on = true;
  bool passed = false;
};

/// How a request and its answer end.
enum class ending {
  next,    ///< another may follow
  goodbye, ///< nothing follows
  gone     ///< the connection is broken, or given up
};

/// A connection, until it ends.
template <class Stream>
class conversation {
public:
  /// All of these must outlive it.
  conversation(http_answerer& answerer, const http_service_limits& limits, waiting_list& waiting, Stream& stream,
               const asio::ip::address& from, std::string local) :
      answerer_(answerer),
      limits_(limits), waiting_(waiting), stream_(stream), lowest_(beast::get_lowest_layer(stream)), from_(from),
      local_(std::move(local)), buffer_(limits_.header_bytes + waiting_bytes) {}

  /// Requests one after the other.
  asio::awaitable<void> hold() {
    auto end = ending::next;
    while (end == ending::next)
      end = co_await one();
    if (end == ending::goodbye)
      co_await say_goodbye();
  }

private:
  asio::awaitable<ending> one() {
    request_parser parser;
    parser.header_limit(limits_.header_bytes);
    parser.body_limit(limits_.body_bytes);
    std::optional<http_reply> reply;
    const bool is_read = co_await read(parser, reply);
    if (!reply)
      co_return ending::gone;
    const auto& request = parser.get();
    const bool head_only = request.method() == http::verb::head;
    const bool chunked = reply->stream && request.version() >= 11 && !reply->is_last;
    const bool goes_on = is_read && request.keep_alive() && !reply->is_last && (chunked || !reply->stream);
    bool sent = false;
    if (reply->stream)
      sent = co_await send_stream(*reply, head_only, chunked, goes_on);
    else if (reply->file)
      sent = co_await send_file(*reply, head_only, goes_on);
    else
      sent = co_await send_body(*reply, head_only, goes_on);
    if (!sent)
      co_return ending::gone;
    co_return goes_on ? ending::next : ending::goodbye;
  }

  /// A request, and its answer; none: it hung up, or was too slow. Whether all of the request was read.
  asio::awaitable<bool> read(request_parser& parser, std::optional<http_reply>& reply) {
    bool is_late = false;
    if (const auto bad = co_await read_head(parser, is_late); bad) {
      if (is_late)
        reply = answerer_.error(408, "the header came too slowly");
      else if (bad.category() == http::make_error_code(http::error::bad_version).category() &&
               bad != http::error::end_of_stream && bad != http::error::partial_message)
        reply = error_of(bad);
      co_return false;
    }
    auto head = head_of(parser.get(), local_);
    reply = answerer_.refusal(head);
    if (reply)
      co_return parser.is_done();
    if (parser.get()[http::field::expect] == "100-continue") {
      constexpr std::string_view go_on = "HTTP/1.1 100 Continue\r\n\r\n";
      co_await asio::async_write(stream_, asio::buffer(go_on), as_result);
    }
    lowest_.expires_after(limits_.idle);
    const auto [bad, bytes] = co_await http::async_read(stream_, buffer_, parser, as_result);
    if (bad) {
      if (bad == http::error::body_limit)
        reply = error_of(bad);
      co_return false;
    }
    head.has_left = [&socket = lowest_.socket()] {
      pollfd x{socket.native_handle(), POLLRDHUP, 0}; // whatever it sent before that, and TLS's own goodbye
      return ::poll(&x, 1, 0) > 0;
    };
    reply = co_await answerer_.answer(head, std::move(parser.get().body()));
    co_return true;
  }

  asio::awaitable<beast::error_code> read_head(request_parser& parser, bool& is_late) {
    const auto place = waiting_.insert(waiting_.end(), {from_, &lowest_});
    lowest_.expires_after(limits_.idle);
    beast::error_code result;
    const auto limit = std::make_shared<header_limit>();
    asio::steady_timer timer(stream_.get_executor());
    if (limits_.header.count() > 0) {
      if (buffer_.size() == 0) {
        const auto [bad, bytes] = co_await stream_.async_read_some(buffer_.prepare(limits_.header_bytes), as_result);
        buffer_.commit(bytes);
        result = bad;
      }
      lowest_.expires_never(); // that limit would leave no connection to answer on
      timer.expires_after(limits_.header);
      timer.async_wait([limit, &lowest = lowest_](beast::error_code stopped) {
        if (stopped || !limit->is_on)
          return;
        limit->passed = true;
        lowest.cancel();
      });
    }
    if (!result) {
      const auto [bad, bytes] = co_await http::async_read_header(stream_, buffer_, parser, as_result);
      result = bad;
    }
    limit->is_on = false;
    waiting_.erase(place);
    is_late = limit->passed;
    co_return result;
  }

  http_reply error_of(const beast::error_code& e) {
    if (e == http::error::header_limit)
      return answerer_.error(431, "the header is larger than " + size_text(limits_.header_bytes));
    if (e == http::error::body_limit)
      return answerer_.error(413, "the body is larger than " + size_text(limits_.body_bytes));
    return answerer_.error(400, "this is no HTTP: " + e.message());
  }

  asio::awaitable<bool> send_file(const http_reply& reply, bool head_only, bool goes_on) {
    auto response = response_of<http::file_body>(reply, goes_on);
    beast::file_posix file;
    file.native_handle(::dup(reply.file->descriptor));
    beast::error_code bad;
    response.body().reset(std::move(file), bad);
    if (bad)
      co_return false;
    response.content_length(response.body().size());
    co_return co_await send(response, head_only);
  }

  asio::awaitable<bool> send_body(const http_reply& reply, bool head_only, bool goes_on) {
    auto response = response_of<http::span_body<const char>>(reply, goes_on);
    response.content_length(reply.body->size());
    response.body() = {reply.body->data(), head_only ? 0 : reply.body->size()};
    co_return co_await send(response, head_only);
  }

  template <class Body>
  asio::awaitable<bool> send(http::response<Body>& response, bool head_only) {
    http::response_serializer<Body> rest(response);
    rest.split(head_only);
    while (head_only ? !rest.is_header_done() : !rest.is_done()) {
      lowest_.expires_after(limits_.idle);
      const auto [bad, sent] = co_await http::async_write_some(stream_, rest, as_result);
      if (bad)
        co_return false;
    }
    co_return true;
  }

  asio::awaitable<bool> send_stream(const http_reply& reply, bool head_only, bool chunked, bool goes_on) {
    beast::error_code ignored;
    lowest_.socket().set_option(asio::socket_base::send_buffer_size(stream_buffer_bytes), ignored);
    auto head = response_of<http::empty_body>(reply, goes_on);
    if (chunked)
      head.chunked(true);
    http::response_serializer<http::empty_body> serializer(head);
    lowest_.expires_after(limits_.idle);
    if (const auto [bad, sent] = co_await http::async_write_header(stream_, serializer, as_result); bad)
      co_return false;
    if (head_only)
      co_return true;
    watch(reply.stream);
    auto& stream = *reply.stream;
    stream.cut_off_ = [&lowest = lowest_] { lowest.cancel(); };
    const bool all = co_await send_pieces(stream, chunked);
    stream.over_ = true; // whatever is added from now on
    stream.cut_off_ = nullptr;
    lowest_.cancel();
    while (stream.is_watched_) {
      stream.bell_.expires_at(asio::steady_timer::time_point::max());
      co_await stream.bell_.async_wait(as_result);
    }
    co_return all;
  }

  /// Reads what comes meanwhile, requests perhaps, as else nobody would see that the reader hung up.
  void watch(const std::shared_ptr<http_stream>& stream) {
    stream->is_watched_ = true;
    lowest_.expires_never();
    stream_.async_read_some(buffer_.prepare(waiting_bytes - std::min(waiting_bytes, buffer_.size())),
                            [this, stream](beast::error_code bad, std::size_t bytes) {
                              buffer_.commit(bytes);
                              if (!bad && bytes > 0 && !stream->over_)
                                return watch(stream);
                              stream->is_watched_ = false;
                              stream->over_ = stream->over_ || bad;
                              stream->bell_.cancel();
                            });
  }

  /// Whether all were sent.
  asio::awaitable<bool> send_pieces(http_stream& stream, bool chunked) {
    while (!stream.over_) {
      auto piece = stream.next();
      if (!piece && stream.ended_)
        co_return co_await send_end(chunked);
      if (!piece) {
        stream.bell_.expires_after(pause_before_sign_of_life);
        const auto [rung] = co_await stream.bell_.async_wait(as_result);
        if (rung || stream.sign_of_life_->empty())
          continue;
        piece = stream.sign_of_life_;
      }
      if (!co_await send_piece(*piece, chunked))
        co_return false;
    }
    co_return false;
  }

  asio::awaitable<bool> send_piece(const std::string& text, bool chunked) {
    lowest_.expires_after(limits_.idle);
    if (!chunked) {
      const auto [bad, sent] = co_await asio::async_write(stream_, asio::buffer(text), as_result);
      co_return !bad;
    }
    const auto [bad, sent] = co_await asio::async_write(stream_, http::make_chunk(asio::buffer(text)), as_result);
    co_return !bad;
  }

  asio::awaitable<bool> send_end(bool chunked) {
    if (!chunked)
      co_return true;
    lowest_.expires_after(limits_.idle);
    const auto [bad, sent] = co_await asio::async_write(stream_, http::make_chunk_last(), as_result);
    co_return !bad;
  }

  /// What was sent is read before the end is seen, also by who still sends.
  asio::awaitable<void> say_goodbye() {
    beast::error_code ignored;
    lowest_.socket().shutdown(asio::socket_base::shutdown_send, ignored);
    lowest_.expires_after(goodbye_limit);
    std::array<char, 16 * 1024> waste{};
    for (;;) {
      const auto [bad, got] = co_await lowest_.async_read_some(asio::buffer(waste), as_result);
      if (bad)
        co_return;
    }
  }

  http_answerer& answerer_;
  const http_service_limits& limits_;
  waiting_list& waiting_;
  Stream& stream_;
  beast::tcp_stream& lowest_;
  const asio::ip::address& from_;
  const std::string local_; ///< the numeric address that was dialled
  beast::flat_buffer buffer_;
};

} // namespace parcae::conversing

#include "protocols/http/http_conversation.hpp"

#include "protocols/base/as_result.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/beast/http/empty_body.hpp>

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

namespace parcae::conversing {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

namespace {

constexpr std::chrono::seconds pause_before_sign_of_life{15};
constexpr std::chrono::seconds goodbye_limit{1};
constexpr std::size_t waiting_bytes = 64 * 1024; // of requests behind one that is being answered
constexpr std::size_t file_turn_bytes = 64 * 1024;
constexpr int stream_buffer_bytes = 64 * 1024; // of the system: a reader who reads nothing is soon noticed

std::string size_text(std::uint64_t bytes) {
  return bytes % (1 << 20) == 0 ? std::to_string(bytes >> 20) + " MiB" : std::to_string(bytes >> 10) + " KiB";
}

/// What was sent is wrong, and who sent it is there to hear so.
bool is_told(const beast::error_code& x) {
  return x.category() == http::make_error_code(http::error::bad_version).category() &&
         x != http::error::end_of_stream && x != http::error::partial_message;
}

http_head head_of(const http::request<http::string_body>& x, const std::string& local) {
  http_head result{std::string(x.method_string()), std::string(x.target()), {}, local};
  for (const auto& field : x)
    result.headers.emplace_back(field.name_string(), field.value());
  return result;
}

http::response<http::empty_body> response_of(const http_reply& x, bool goes_on) {
  http::response<http::empty_body> result(static_cast<http::status>(x.status), 11);
  for (const auto& [name, value] : x.headers)
    result.set(name, value);
  result.keep_alive(goes_on);
  return result;
}

std::string chunk_head(std::size_t bytes) {
  std::array<char, 20> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), bytes, 16).ptr;
  return std::string(digits.data(), end) + "\r\n";
}

/// Of a header that comes in time.
struct header_limit {
  bool is_on = true;
  bool passed = false;
};

} // namespace

std::string head_of(const http_reply& reply, std::uint64_t body_bytes, bool goes_on) {
  auto response = response_of(reply, goes_on);
  response.content_length(body_bytes);
  return text_of(response);
}

conversation::conversation(http_answerer& answerer, const http_service_limits& limits, waiting_list& waiting,
                           byte_stream& stream, const asio::ip::address& from, std::string local) :
    answerer_(answerer),
    limits_(limits), waiting_(waiting), stream_(stream), lowest_(stream.lowest()), from_(from),
    local_(std::move(local)), buffer_(limits_.header_bytes + waiting_bytes) {}

asio::awaitable<void> conversation::hold() {
  auto end = ending::next;
  while (end == ending::next)
    end = co_await one();
  if (end == ending::goodbye)
    co_await say_goodbye();
}

asio::awaitable<ending> conversation::one() {
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
asio::awaitable<bool> conversation::read(request_parser& parser, std::optional<http_reply>& reply) {
  bool is_late = false;
  if (const auto bad = co_await read_head(parser, is_late); bad) {
    if (is_late)
      reply = answerer_.error(408, "the header came too slowly");
    else if (is_told(bad))
      reply = error_of(bad);
    co_return false;
  }
  auto head = head_of(parser.get(), local_);
  reply = answerer_.refusal(head);
  if (reply)
    co_return parser.is_done();
  if (parser.get()[http::field::expect] == "100-continue")
    co_await send(asio::buffer(std::string_view("HTTP/1.1 100 Continue\r\n\r\n")));
  lowest_.expires_after(limits_.idle);
  if (const auto bad = co_await read_message(stream_, buffer_, parser, read_until::end); bad) {
    if (is_told(bad))
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

asio::awaitable<beast::error_code> conversation::read_head(request_parser& parser, bool& is_late) {
  const auto place = waiting_.insert(waiting_.end(), {from_, &lowest_});
  lowest_.expires_after(limits_.idle);
  beast::error_code result;
  const auto limit = std::make_shared<header_limit>();
  asio::steady_timer timer(lowest_.get_executor());
  if (limits_.header.count() > 0) {
    if (buffer_.size() == 0) {
      const auto got = co_await stream_.read_some(buffer_.prepare(limits_.header_bytes));
      buffer_.commit(got.bytes);
      result = got.bad;
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
  if (!result)
    result = co_await read_message(stream_, buffer_, parser, read_until::header);
  limit->is_on = false;
  waiting_.erase(place);
  is_late = limit->passed;
  co_return result;
}

http_reply conversation::error_of(const beast::error_code& e) {
  if (e == http::error::header_limit)
    return answerer_.error(431, "the header is larger than " + size_text(limits_.header_bytes));
  if (e == http::error::body_limit)
    return answerer_.error(413, "the body is larger than " + size_text(limits_.body_bytes));
  return answerer_.error(400, "this is no HTTP: " + e.message());
}

/// All of it, as long as some is taken in time.
asio::awaitable<bool> conversation::send(asio::const_buffer head, asio::const_buffer body, asio::const_buffer tail) {
  byte_stream::parts what{head, body, tail};
  while (asio::buffer_size(what) > 0) {
    lowest_.expires_after(limits_.idle);
    const auto sent = co_await stream_.write_some(what);
    if (sent.bad)
      co_return false;
    what = behind(what, sent.bytes);
  }
  co_return true;
}

asio::awaitable<bool> conversation::send_file(const http_reply& reply, bool head_only, bool goes_on) {
  const int file = reply.file->descriptor;
  struct stat there {};
  if (::fstat(file, &there) != 0)
    co_return false;
  const auto size = static_cast<std::uint64_t>(there.st_size);
  const auto head = head_of(reply, size, goes_on);
  if (!co_await send(asio::buffer(head)))
    co_return false;
  std::vector<char> turn(head_only ? 0 : file_turn_bytes);
  for (std::uint64_t at = 0; !head_only && at < size;) {
    const auto got =
        ::pread(file, turn.data(), std::min<std::uint64_t>(turn.size(), size - at), static_cast<off_t>(at));
    if (got <= 0) // it is shorter now
      co_return false;
    if (!co_await send(asio::buffer(turn.data(), static_cast<std::size_t>(got))))
      co_return false;
    at += static_cast<std::uint64_t>(got);
  }
  co_return true;
}

asio::awaitable<bool> conversation::send_body(const http_reply& reply, bool head_only, bool goes_on) {
  const auto head = head_of(reply, reply.body->size(), goes_on);
  const auto body = head_only ? asio::const_buffer() : asio::buffer(*reply.body);
  co_return co_await send(asio::buffer(head), body);
}

asio::awaitable<bool> conversation::send_stream(const http_reply& reply, bool head_only, bool chunked, bool goes_on) {
  beast::error_code ignored;
  lowest_.socket().set_option(asio::socket_base::send_buffer_size(stream_buffer_bytes), ignored);
  auto response = response_of(reply, goes_on);
  if (chunked)
    response.chunked(true);
  const auto head = text_of(response);
  if (!co_await send(asio::buffer(head)))
    co_return false;
  if (head_only)
    co_return true;
  auto& stream = *reply.stream;
  stream.is_watched_ = true;
  asio::co_spawn(lowest_.get_executor(), watch(reply.stream), asio::detached);
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
asio::awaitable<void> conversation::watch(std::shared_ptr<http_stream> stream) {
  bool has_more = true;
  while (has_more && !stream->over_) {
    lowest_.expires_never();
    const auto room = waiting_bytes - std::min(waiting_bytes, buffer_.size());
    const auto got = co_await stream_.read_some(buffer_.prepare(room));
    buffer_.commit(got.bytes);
    stream->over_ = stream->over_ || got.bad;
    has_more = got.bytes > 0;
  }
  stream->is_watched_ = false;
  stream->bell_.cancel();
}

/// Whether all were sent.
asio::awaitable<bool> conversation::send_pieces(http_stream& stream, bool chunked) {
  while (!stream.over_) {
    auto piece = stream.next();
    if (!piece && stream.ended_) {
      if (!chunked)
        co_return true;
      co_return co_await send(asio::buffer(std::string_view("0\r\n\r\n")));
    }
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

asio::awaitable<bool> conversation::send_piece(const std::string& text, bool chunked) {
  if (!chunked)
    co_return co_await send(asio::buffer(text));
  const auto head = chunk_head(text.size());
  co_return co_await send(asio::buffer(head), asio::buffer(text), asio::buffer(std::string_view("\r\n")));
}

/// What was sent is read before the end is seen, also by who still sends.
asio::awaitable<void> conversation::say_goodbye() {
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

} // namespace parcae::conversing

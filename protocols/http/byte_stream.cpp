#include "protocols/http/byte_stream.hpp"

#include "protocols/base/as_result.hpp"

#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/beast/core/read_size.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/write.hpp>

#include <algorithm>
#include <sstream>
#include <utility>

namespace parcae {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

namespace {

constexpr std::size_t most_read = 64 * 1024; // at once

template <class Header>
std::string printed(const Header& x) {
  std::ostringstream result;
  result << x;
  return std::move(result).str();
}

} // namespace

byte_stream::byte_stream(beast::tcp_stream plain) : stream_(std::move(plain)) {}

byte_stream::byte_stream(beast::tcp_stream plain, asio::ssl::context& tls) :
    stream_(std::in_place_type<secure>, std::move(plain), tls) {}

beast::tcp_stream& byte_stream::lowest() {
  auto* x = std::get_if<secure>(&stream_);
  return x ? beast::get_lowest_layer(*x) : std::get<beast::tcp_stream>(stream_);
}

void byte_stream::verify_host(const std::string& host) {
  auto& x = std::get<secure>(stream_);
  x.set_verify_callback(asio::ssl::host_name_verification(host));
  SSL_set_tlsext_host_name(x.native_handle(), host.c_str());
}

asio::awaitable<byte_stream::error_code> byte_stream::shake_hands(asio::ssl::stream_base::handshake_type as) {
  const auto [bad] = co_await std::get<secure>(stream_).async_handshake(as, as_result);
  co_return bad;
}

asio::awaitable<byte_stream::outcome> byte_stream::read_some(asio::mutable_buffer to) {
  if (auto* x = std::get_if<secure>(&stream_)) {
    const auto [bad, bytes] = co_await x->async_read_some(to, as_result);
    co_return outcome{bad, bytes};
  }
  const auto [bad, bytes] = co_await std::get<beast::tcp_stream>(stream_).async_read_some(to, as_result);
  co_return outcome{bad, bytes};
}

asio::awaitable<byte_stream::outcome> byte_stream::write_some(const parts& from) {
  if (auto* x = std::get_if<secure>(&stream_)) {
    const auto [bad, bytes] = co_await x->async_write_some(from, as_result);
    co_return outcome{bad, bytes};
  }
  const auto [bad, bytes] = co_await std::get<beast::tcp_stream>(stream_).async_write_some(from, as_result);
  co_return outcome{bad, bytes};
}

byte_stream::parts behind(byte_stream::parts x, std::size_t sent) {
  for (auto& part : x) {
    const auto of_it = std::min(sent, part.size());
    part += of_it;
    sent -= of_it;
  }
  return x;
}

template <bool IsRequest>
asio::awaitable<beast::error_code> read_message(byte_stream& from, beast::flat_buffer& buffer,
                                                http::basic_parser<IsRequest>& parser, read_until until) {
  parser.eager(until == read_until::end);
  bool is_short = buffer.size() == 0;
  while (until == read_until::end ? !parser.is_done() : !parser.is_header_done()) {
    beast::error_code bad;
    if (is_short) {
      const auto room = beast::read_size(buffer, most_read);
      if (room == 0)
        co_return http::error::buffer_overflow;
      const auto got = co_await from.read_some(buffer.prepare(room));
      buffer.commit(got.bytes);
      if (got.bad == asio::error::eof && parser.got_some())
        parser.put_eof(bad);
      else if (got.bad == asio::error::eof)
        bad = http::error::end_of_stream;
      else
        bad = got.bad;
      if (bad)
        co_return bad;
      if (got.bad)
        continue; // the end was its end
    }
    buffer.consume(parser.put(buffer.data(), bad));
    if (bad && bad != http::error::need_more)
      co_return bad;
    is_short = bad || buffer.size() == 0;
  }
  co_return beast::error_code();
}

template asio::awaitable<beast::error_code> read_message(byte_stream&, beast::flat_buffer&, http::basic_parser<true>&,
                                                         read_until);
template asio::awaitable<beast::error_code> read_message(byte_stream&, beast::flat_buffer&, http::basic_parser<false>&,
                                                         read_until);

std::string text_of(const http::request_header<>& x) {
  return printed(x);
}

std::string text_of(const http::response_header<>& x) {
  return printed(x);
}

} // namespace parcae

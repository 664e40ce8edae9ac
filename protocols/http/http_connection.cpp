#include "protocols/http/http_connection.hpp"

#include "protocols/base/as_result.hpp"
#include "protocols/base/printable.hpp"
#include "protocols/base/text.hpp"
#include "protocols/http/byte_stream.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>

#include <algorithm>
#include <optional>
#include <stdexcept>

namespace parcae {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using clock = std::chrono::steady_clock;

constexpr std::uint32_t max_header = 16 * 1024;
constexpr std::size_t turn_bytes = 256 * 1024;      // between two looks at the clock
constexpr std::chrono::milliseconds last_word{500}; // for why a server hung up while it was still sent to

/// A question under way, and what is left of its time.
struct time_budget {
  http_limits limits;
  clock::time_point end;
  const char* waits_for = "a connection"; ///< for people
  std::chrono::milliseconds last{0};      ///< what the last wait was given

  void give(beast::tcp_stream& stream, std::chrono::milliseconds most) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock::now());
    last = std::clamp(left, std::chrono::milliseconds(1), most);
    stream.expires_after(last);
  }
};

std::string reason_of(const beast::error_code& e, const time_budget& time) {
  if (e == beast::error::timeout)
    return "waited " + text_of_duration(time.last) + " for " + time.waits_for;
  if (e == http::error::body_limit || e == http::error::header_limit || e == http::error::buffer_overflow)
    return "its answer is too long";
  if (e == http::error::partial_message || e == http::error::end_of_stream || e == asio::error::eof)
    return "its answer ends too early";
  if (e.category() == http::make_error_code(http::error::bad_version).category())
    return "its answer is no HTTP (" + e.message() + ")";
  return printable(e.message(), 200);
}

http::request<http::empty_body> head_of(const http_request& x, const http_server& server) {
  http::request<http::empty_body> result;
  result.method_string(x.method);
  result.target(x.target);
  result.version(11);
  result.set(http::field::host, server.authority());
  result.set(http::field::user_agent, "parcae");
  for (const auto& [name, value] : x.headers)
    result.set(name, value);
  if (!x.body.empty() || x.method == "PUT" || x.method == "POST")
    result.content_length(x.body.size());
  return result;
}

/// This machine, or what only its link has: no services for strangers.
bool is_near(const asio::ip::address& x) {
  if (x.is_v4()) {
    const auto bytes = x.to_v4().to_bytes();
    return bytes[0] == 127 || bytes[0] == 0 || (bytes[0] == 169 && bytes[1] == 254);
  }
  const auto address = x.to_v6();
  if (address.is_v4_mapped())
    return is_near(asio::ip::make_address_v4(asio::ip::v4_mapped, address));
  // The last is where AWS has its metadata, too.
  return address.is_loopback() || address.is_unspecified() || address.is_link_local() ||
         address == asio::ip::make_address_v6("fd00:ec2::254");
}

bool may_be_sent_twice(const std::string& method) {
  return method == "GET" || method == "HEAD" || method == "PUT" || method == "DELETE";
}

} // namespace

http_trust make_http_trust(const std::filesystem::path& authorities, const std::filesystem::path& identity) {
  auto result = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_client);
  SSL_CTX_set_min_proto_version(result->native_handle(), TLS1_2_VERSION);
  result->set_verify_mode(asio::ssl::verify_peer);
  boost::system::error_code failed;
  if (authorities.empty())
    result->set_default_verify_paths(failed);
  else
    result->load_verify_file(authorities.string(), failed);
  if (failed)
    throw std::runtime_error("cannot read the certificates of authorities" +
                             (authorities.empty() ? "" : " in " + authorities.string()) + ": " + failed.message());
  if (!identity.empty()) {
    result->use_certificate_chain_file(identity.string(), failed);
    if (!failed)
      result->use_private_key_file(identity.string(), asio::ssl::context::pem, failed);
    if (failed)
      throw std::runtime_error("cannot read a certificate and its key in " + identity.string() + ": " +
                               failed.message());
  }
  return result;
}

class http_connection::implementation {
public:
  using outcome = tl::expected<http_answer, std::string>;

  implementation(asio::any_io_executor executor, http_server server, http_trust trust) :
      executor_(std::move(executor)), server_(std::move(server)), trust_(std::move(trust)) {}

  asio::awaitable<outcome> ask(const http_request& request, const http_limits& limits, std::span<std::byte> into) {
    time_budget time{limits, clock::now() + limits.whole};
    const bool is_used = stream_.has_value();
    heard_ = false;
    auto result = co_await once(request, time, into);
    if (!result && is_used && !heard_ && clock::now() < time.end && may_be_sent_twice(request.method))
      result = co_await once(request, time, into); // it had ended before it was asked
    co_return result;
  }

private:
  static auto failed(const beast::error_code& e, const time_budget& time) { return tl::unexpected(reason_of(e, time)); }

  asio::awaitable<outcome> once(const http_request& request, time_budget& time, std::span<std::byte> into) {
    if (!stream_)
      if (auto why = co_await dial(time); !why.empty()) {
        stream_.reset();
        co_return tl::unexpected(std::move(why));
      }
    bool goes_on = false;
    auto result = co_await exchange(*stream_, request, time, into, goes_on);
    if (!goes_on)
      stream_.reset();
    co_return result;
  }

  /// Why it could not; empty: connected.
  asio::awaitable<std::string> dial(time_budget& time) {
    time.waits_for = "a connection";
    std::vector<asio::ip::tcp::endpoint> places;
    beast::error_code no_address;
    const auto& name = server_.numeric.empty() ? server_.host : server_.numeric;
    if (const auto address = asio::ip::make_address(name, no_address); !no_address) {
      places.emplace_back(address, server_.port);
    } else {
      // The system's resolver has limits of its own, and no way to be given others.
      asio::ip::tcp::resolver resolver(executor_);
      const auto [bad, found] = co_await resolver.async_resolve(server_.host, std::to_string(server_.port), as_result);
      if (bad)
        co_return "cannot look up " + server_.host + ": " + bad.message();
      for (const auto& x : found)
        places.push_back(x.endpoint());
    }
    if (server_.elsewhere && std::ranges::any_of(places, [](const auto& x) { return is_near(x.address()); }))
      co_return server_.host + " is this machine, or on its link, which jobs may not ask unless --data names it";
    beast::tcp_stream stream(executor_);
    time.give(stream, time.limits.connect);
    if (const auto [bad, where] = co_await stream.async_connect(places, as_result); bad)
      co_return reason_of(bad, time);
    stream.socket().set_option(asio::ip::tcp::no_delay(true), no_address);
    buffer_ = beast::flat_buffer(2 * max_header + turn_bytes);
    if (!server_.tls) {
      stream_.emplace(std::move(stream));
      co_return "";
    }
    if (!trust_)
      trust_ = make_http_trust();
    stream_.emplace(std::move(stream), *trust_);
    time.waits_for = "TLS";
    stream_->verify_host(server_.host);
    time.give(stream_->lowest(), time.limits.connect);
    if (const auto bad = co_await stream_->shake_hands(asio::ssl::stream_base::client); bad)
      co_return "no TLS with it: " + reason_of(bad, time);
    co_return "";
  }

  asio::awaitable<beast::error_code> send(byte_stream& stream, const http_request& request, time_budget& time) {
    time.waits_for = "it to take the request";
    const auto head = text_of(head_of(request, server_));
    byte_stream::parts rest{asio::buffer(head), asio::buffer(request.body.data(), request.body.size())};
    while (asio::buffer_size(rest) > 0) {
      time.give(stream.lowest(), time.limits.idle);
      const auto sent = co_await stream.write_some(rest);
      if (sent.bad)
        co_return sent.bad;
      rest = behind(rest, sent.bytes);
    }
    co_return beast::error_code();
  }

  asio::awaitable<outcome> exchange(byte_stream& stream, const http_request& request, time_budget& time,
                                    std::span<std::byte> into, bool& goes_on) {
    const auto unsent = co_await send(stream, request, time);
    const auto sent_for = time.waits_for;
    http::response_parser<http::buffer_body> parser;
    parser.header_limit(max_header);
    parser.body_limit(boost::none); // counted below
    parser.skip(request.method == "HEAD");
    if (!unsent)
      time.waits_for = "its answer";
    time.give(stream.lowest(), unsent ? last_word : time.limits.idle);
    if (const auto bad = co_await read_message(stream, buffer_, parser, read_until::header); bad) {
      heard_ = parser.got_some() || bad == beast::error::timeout;
      time.waits_for = unsent ? sent_for : time.waits_for;
      // TLS says why.
      co_return failed(unsent && bad.category() != asio::error::get_ssl_category() ? unsent : bad, time);
    }
    heard_ = true;
    http_answer answer;
    answer.status = parser.get().result_int();
    for (const auto& field : parser.get())
      answer.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    if (answer.status != 200 && answer.status != 206)
      into = {};
    if (const auto bad = co_await read_body(stream, parser, answer, time, into); bad)
      co_return failed(bad, time);
    if (into.empty())
      answer.body.resize(answer.body_bytes);
    goes_on = !unsent && parser.keep_alive();
    co_return answer;
  }

  asio::awaitable<beast::error_code> read_body(byte_stream& stream, http::response_parser<http::buffer_body>& parser,
                                               http_answer& answer, time_budget& time, std::span<std::byte> into) {
    const auto most = into.empty() ? time.limits.body_bytes : std::uint64_t{into.size()};
    while (!parser.is_done()) {
      const auto room = std::min<std::uint64_t>(most - answer.body_bytes, turn_bytes);
      char extra = 0; // whether there is more than there may be
      char* to = &extra;
      if (room > 0 && into.empty()) {
        answer.body.resize(answer.body_bytes + room);
        to = answer.body.data() + answer.body_bytes;
      } else if (room > 0) {
        to = reinterpret_cast<char*>(into.data()) + answer.body_bytes;
      }
      const auto given = std::max<std::uint64_t>(room, 1);
      parser.get().body().data = to;
      parser.get().body().size = given;
      time.give(stream.lowest(), time.limits.idle);
      const auto bad = co_await read_message(stream, buffer_, parser, read_until::end);
      const auto got = given - parser.get().body().size;
      if (got > room)
        co_return http::error::body_limit;
      answer.body_bytes += got;
      if (bad && bad != http::error::need_buffer)
        co_return bad;
    }
    co_return beast::error_code();
  }

  const asio::any_io_executor executor_;
  const http_server server_;
  http_trust trust_;
  std::optional<byte_stream> stream_; ///< once connected
  beast::flat_buffer buffer_;
  bool heard_ = false; ///< anything of the answer
};

http_connection::http_connection(asio::any_io_executor executor, http_server server, http_trust trust) :
    implementation_(std::make_unique<implementation>(std::move(executor), std::move(server), std::move(trust))) {}

http_connection::~http_connection() = default;

asio::awaitable<tl::expected<http_answer, std::string>>
http_connection::ask(const http_request& request, const http_limits& limits, std::span<std::byte> into) {
  return implementation_->ask(request, limits, into);
}

} // namespace parcae

#include "runtime/web/server.hpp"

#include "protocols/base/as_result.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/file_posix.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/file_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/serializer.hpp>
#include <boost/beast/http/span_body.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>

#include <unistd.h>

#include <deque>
#include <list>
#include <map>
#include <optional>

namespace parcae {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

constexpr std::chrono::seconds handshake_limit{10};
constexpr std::chrono::seconds sign_of_life{15};
constexpr std::chrono::seconds goodbye_limit{1};
constexpr int event_buffer_bytes = 64 * 1024; // of the system, for a reader of events

web_head head_of(const http::request<http::string_body>& x) {
  const auto text = [&](auto name) {
    const auto value = x[name];
    return std::string(value.data(), value.size());
  };
  web_head result;
  result.method = std::string(x.method_string());
  result.target = std::string(x.target());
  if (x.count(http::field::host) == 1) // of several nobody knows which one counts for whom
    result.host = text(http::field::host);
  result.origin = text(http::field::origin);
  result.fetch_site = text("Sec-Fetch-Site");
  result.authorization = text(http::field::authorization);
  result.type = text(http::field::content_type);
  result.last_event_id = text("Last-Event-ID");
  return result;
}

template <class Response>
void set_headers(Response& to, const web_answer& x) {
  to.set(http::field::content_type, x.type);
  to.set(http::field::cache_control, "no-store");
  to.set("Content-Security-Policy",
         "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'");
  to.set("X-Content-Type-Options", "nosniff");
  to.set("Referrer-Policy", "no-referrer");
  for (const auto& [name, value] : x.headers)
    to.set(name, value);
}

/// What a reader of events has yet to be sent.
struct event_queue {
  explicit event_queue(const asio::any_io_executor& executor) : bell(executor) {}

  std::deque<std::shared_ptr<const std::string>> texts;
  std::size_t bytes = 0;
  bool too_far_behind = false;
  bool gone = false; ///< it hung up
  asio::steady_timer bell;

  bool over() const { return too_far_behind || gone; }

  void add(const web_event& x, std::size_t most) {
    texts.push_back(x.text);
    bytes += x.text->size();
    too_far_behind = too_far_behind || bytes > most;
    bell.cancel();
  }
};

/// A connection that waits for a request.
struct waiting {
  asio::ip::address from;
  beast::tcp_stream* stream; ///< null: it has given its place to another
};

/// "the answer is not there": what a request that could not be read is answered with.
web_error error_of(const beast::error_code& e) {
  if (e == http::error::header_limit)
    return {431, "the header is larger than 8 KiB"};
  if (e == http::error::body_limit)
    return {413, "the body is larger than 1 MiB"};
  return {400, "this is no HTTP: " + e.message()};
}

} // namespace

class web_server::implementation : public std::enable_shared_from_this<web_server::implementation> {
public:
  implementation(asio::io_context& context, const tcp::endpoint& where, const web_identity& identity,
                 web_routes& routes, const web_limits& limits) :
      context_(context),
      acceptor_(context), routes_(routes), limits_(limits), at_work_(routes.clusters().size()),
      workers_(limits.at_work * at_work_.size()) {
    if (!identity.certificate.empty()) {
      tls_.emplace(asio::ssl::context::tls_server);
      SSL_CTX_set_min_proto_version(tls_->native_handle(), TLS1_2_VERSION);
      tls_->use_certificate_chain_file(identity.certificate.string());
      tls_->use_private_key_file(identity.key.string(), asio::ssl::context::pem);
    }
    acceptor_.open(where.protocol());
    acceptor_.set_option(tcp::acceptor::reuse_address(true));
    acceptor_.bind(where);
    acceptor_.listen();
  }

  void start() { asio::co_spawn(context_, accept(shared_from_this()), asio::detached); }

  void stop() {
    beast::error_code ignored;
    acceptor_.close(ignored);
    workers_.join();
  }

  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

  bool certificate_ends_within(std::chrono::seconds time) {
    if (!tls_)
      return false;
    auto then = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now() + time);
    return X509_cmp_time(X509_get0_notAfter(SSL_CTX_get0_certificate(tls_->native_handle())), &then) <= 0;
  }

private:
  using pointer = std::shared_ptr<implementation>;

  static asio::awaitable<void> accept(pointer self) {
    while (self->acceptor_.is_open()) {
      auto [failed, socket] = co_await self->acceptor_.async_accept(as_result);
      if (failed) {
        asio::steady_timer pause(self->context_, std::chrono::milliseconds(100));
        co_await pause.async_wait(as_result);
        continue;
      }
      beast::error_code gone;
      const auto from = socket.remote_endpoint(gone).address();
      if (gone)
        continue;
      if (!self->has_room(from)) {
        self->forget_if_none(from);
        refuse(socket, !self->tls_);
        continue;
      }
      asio::co_spawn(self->context_, meet(self, std::move(socket), from), asio::detached);
    }
  }

  /// Browsers keep connections for what may come: where there is no other place, the one that has waited longest for a
  /// request gives its own.
  bool has_room(const asio::ip::address& from) {
    const bool many_of_it = by_address_[from] >= limits_.of_one_address;
    if (!many_of_it && open_ < limits_.connections)
      return true;
    for (auto& x : waiting_)
      if (x.stream && (!many_of_it || x.from == from)) {
        std::exchange(x.stream, nullptr)->close();
        return true;
      }
    return false;
  }

  /// In one packet or not at all.
  static void refuse(tcp::socket& socket, bool plain) {
    beast::error_code ignored;
    socket.non_blocking(true, ignored);
    constexpr std::string_view busy = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
                                      "Content-Type: application/json\r\nContent-Length: 53\r\n\r\n"
                                      "{\"error\":\"there are too many connections; try later\"}";
    if (plain)
      socket.write_some(asio::buffer(busy), ignored);
    socket.close(ignored);
  }

  void forget_if_none(const asio::ip::address& x) {
    if (const auto i = by_address_.find(x); i != by_address_.end() && i->second == 0)
      by_address_.erase(i);
  }

  static asio::awaitable<void> meet(pointer self, tcp::socket socket, asio::ip::address from) {
    ++self->open_;
    ++self->by_address_[from];
    try {
      beast::error_code gone;
      const auto local = socket.local_endpoint(gone).address().to_string(gone);
      socket.set_option(tcp::no_delay(true), gone);
      beast::tcp_stream stream(std::move(socket));
      if (!self->tls_) {
        co_await converse(self, stream, local, from);
      } else {
        beast::ssl_stream<beast::tcp_stream> secure(std::move(stream), *self->tls_);
        beast::get_lowest_layer(secure).expires_after(handshake_limit);
        const auto [bad] = co_await secure.async_handshake(asio::ssl::stream_base::server, as_result);
        if (!bad)
          co_await converse(self, secure, local, from);
      }
    } catch (const std::exception&) { // one connection's end is none of the others'
    }
    --self->open_;
    --self->by_address_[from];
    self->forget_if_none(from);
  }

  template <class Stream>
  static asio::awaitable<void> converse(pointer self, Stream& stream, std::string local, asio::ip::address from) {
    beast::flat_buffer buffer(self->limits_.header_bytes + 64 * 1024);
    for (bool goes_on = true; goes_on;) {
      http::request_parser<http::string_body> parser;
      parser.header_limit(self->limits_.header_bytes);
      parser.body_limit(self->limits_.body_bytes);
      web_answer answer;
      const auto place = self->waiting_.insert(self->waiting_.end(), {from, &beast::get_lowest_layer(stream)});
      beast::get_lowest_layer(stream).expires_after(self->limits_.idle);
      const auto [bad_head, head_bytes] = co_await http::async_read_header(stream, buffer, parser, as_result);
      self->waiting_.erase(place);
      goes_on = co_await one(self, stream, buffer, parser, bad_head, local, answer);
      if (answer.events) {
        co_await tell_events(self, stream, *answer.events);
        co_return;
      }
      if (!answer.body && !answer.file)
        co_return; // it hung up
      const auto& request = parser.get();
      goes_on = goes_on && request.keep_alive();
      if (!co_await send(self, stream, answer, request.method() == http::verb::head, goes_on))
        co_return;
    }
    co_await say_goodbye(stream);
  }

  /// Reads the rest of a request, and makes its answer; whether another may follow. No answer: it hung up, or was too
  /// slow.
  template <class Stream, class Parser>
  static asio::awaitable<bool> one(const pointer& self, Stream& stream, beast::flat_buffer& buffer, Parser& parser,
                                   beast::error_code bad_head, const std::string& local, web_answer& answer) {
    if (bad_head) {
      if (bad_head.category() == http::make_error_code(http::error::bad_version).category() &&
          bad_head != http::error::end_of_stream && bad_head != http::error::partial_message)
        answer = answer_of(error_of(bad_head));
      co_return false;
    }
    const auto head = head_of(parser.get());
    try {
      self->routes_.admit(head, local, std::chrono::steady_clock::now());
    } catch (const web_error& e) {
      answer = answer_of(e);
      co_return parser.is_done();
    }
    if (parser.get()[http::field::expect] == "100-continue") {
      constexpr std::string_view go_on = "HTTP/1.1 100 Continue\r\n\r\n";
      co_await asio::async_write(stream, asio::buffer(go_on), as_result);
    }
    beast::get_lowest_layer(stream).expires_after(self->limits_.idle);
    const auto [bad_body, body_bytes] = co_await http::async_read(stream, buffer, parser, as_result);
    if (bad_body) {
      if (bad_body == http::error::body_limit)
        answer = answer_of(error_of(bad_body));
      co_return false;
    }
    co_await make_answer(self, head, std::move(parser.get().body()), answer);
    co_return true;
  }

  static asio::awaitable<void> make_answer(const pointer& self, const web_head& head, std::string body,
                                           web_answer& answer) {
    try {
      auto result = self->routes_.take(head, std::move(body), std::chrono::steady_clock::now());
      if (result.later) {
        auto& at_work = self->at_work_[result.cluster];
        if (at_work >= self->limits_.at_work)
          throw web_error(503, "too many questions wait for the manager; try again later");
        ++at_work;
        co_await work(self, std::move(result.later), answer);
        --at_work;
      } else {
        answer = std::move(result.now);
      }
    } catch (const web_error& e) {
      answer = answer_of(e);
    }
  }

  /// On a thread that may wait.
  static asio::awaitable<void> work(const pointer& self, std::function<web_answer()> what, web_answer& answer) {
    asio::steady_timer done(self->context_, asio::steady_timer::time_point::max());
    std::shared_ptr<web_answer> made = std::make_shared<web_answer>();
    asio::post(self->workers_, [&done, made, what = std::move(what), &context = self->context_] {
      try {
        *made = what();
      } catch (const web_error& e) {
        *made = answer_of(e);
      } catch (const std::exception& e) {
        *made = answer_of(web_error(500, e.what()));
      }
      asio::post(context, [&done] { done.cancel(); });
    });
    co_await done.async_wait(as_result);
    answer = std::move(*made);
  }

  template <class Stream>
  static asio::awaitable<bool> send(const pointer& self, Stream& stream, const web_answer& answer, bool head_only,
                                    bool goes_on) {
    const auto status = static_cast<http::status>(answer.status);
    if (answer.file) {
      http::response<http::file_body> response(status, 11);
      beast::file_posix file;
      file.native_handle(::dup(answer.file->descriptor()));
      beast::error_code bad;
      response.body().reset(std::move(file), bad);
      if (bad)
        co_return false;
      response.content_length(response.body().size());
      co_return co_await send_body(self, stream, response, answer, head_only, goes_on);
    }
    http::response<http::span_body<const char>> response(status, 11);
    response.content_length(answer.body->size());
    response.body() = {answer.body->data(), head_only ? 0 : answer.body->size()};
    co_return co_await send_body(self, stream, response, answer, head_only, goes_on);
  }

  template <class Stream, class Body>
  static asio::awaitable<bool> send_body(const pointer& self, Stream& stream, http::response<Body>& response,
                                         const web_answer& answer, bool head_only, bool goes_on) {
    set_headers(response, answer);
    response.keep_alive(goes_on);
    http::response_serializer<Body> rest(response);
    rest.split(head_only);
    while (head_only ? !rest.is_header_done() : !rest.is_done()) {
      beast::get_lowest_layer(stream).expires_after(self->limits_.idle);
      const auto [bad, sent] = co_await http::async_write_some(stream, rest, as_result);
      if (bad)
        co_return false;
    }
    co_return true;
  }

  /// What was sent is read before the end is seen, also by who still sends.
  template <class Stream>
  static asio::awaitable<void> say_goodbye(Stream& stream) {
    auto& lowest = beast::get_lowest_layer(stream);
    beast::error_code ignored;
    lowest.socket().shutdown(tcp::socket::shutdown_send, ignored);
    lowest.expires_after(goodbye_limit);
    std::array<char, 16 * 1024> waste{};
    for (;;) {
      const auto [bad, got] = co_await lowest.async_read_some(asio::buffer(waste), as_result);
      if (bad)
        co_return;
    }
  }

  template <class Stream>
  static asio::awaitable<void> tell_events(pointer self, Stream& stream, events_wanted wanted) {
    auto& lowest = beast::get_lowest_layer(stream);
    const auto queue = std::make_shared<event_queue>(stream.get_executor());
    const auto most = self->limits_.behind_bytes;
    const auto is_wanted = [job = wanted.job](const web_event& x) { return job == 0 || x.job == 0 || x.job == job; };
    beast::error_code ignored;
    lowest.socket().set_option(asio::socket_base::send_buffer_size(event_buffer_bytes), ignored);
    web_answer like;
    like.type = event_stream;
    http::response<http::empty_body> head(http::status::ok, 11);
    set_headers(head, like);
    head.keep_alive(false);
    http::response_serializer<http::empty_body> serializer(head);
    lowest.expires_after(self->limits_.idle);
    if (const auto [bad, sent] = co_await http::async_write_header(stream, serializer, as_result); bad)
      co_return;
    auto& board = self->routes_.clusters()[wanted.cluster].board;
    auto before = board.events().after(wanted.after);
    std::erase_if(before, [&](const auto& x) { return !is_wanted(x); });
    const auto heard = board.listen([queue, most, is_wanted, &lowest](const web_event& x) {
      if (!is_wanted(x))
        return;
      queue->add(x, most);
      if (queue->too_far_behind) // comes back, and goes on where it was
        lowest.cancel();
    });
    lowest.socket().async_wait(tcp::socket::wait_read, [queue](beast::error_code bad) { // who reads events says no more
      queue->gone = !bad;
      queue->bell.cancel();
    });
    for (const auto& x : before) // bounded by the log
      if (!co_await say(self, stream, x.text))
        co_return;
    while (!queue->over()) {
      std::shared_ptr<const std::string> text;
      if (queue->texts.empty()) {
        queue->bell.expires_after(sign_of_life);
        const auto [rung] = co_await queue->bell.async_wait(as_result);
        if (rung)
          continue;
        text = std::make_shared<const std::string>(": \n\n");
      } else {
        text = queue->texts.front();
        queue->texts.pop_front();
      }
      const auto went_out = co_await say(self, stream, text);
      if (!went_out)
        co_return;
      queue->bytes -= std::min(queue->bytes, text->size());
    }
  }

  template <class Stream>
  static asio::awaitable<bool> say(const pointer& self, Stream& stream, std::shared_ptr<const std::string> text) {
    beast::get_lowest_layer(stream).expires_after(self->limits_.idle);
    const auto [bad, sent] = co_await asio::async_write(stream, asio::buffer(*text), as_result);
    co_return !bad;
  }

  asio::io_context& context_;
  tcp::acceptor acceptor_;
  std::optional<asio::ssl::context> tls_;
  web_routes& routes_;
  const web_limits limits_;
  std::size_t open_ = 0;
  std::map<asio::ip::address, std::size_t> by_address_;
  std::list<waiting> waiting_;       ///< the longest first
  std::vector<std::size_t> at_work_; ///< by cluster: one that is away holds up no other
  asio::thread_pool workers_;
};

web_server::web_server(asio::io_context& context, const tcp::endpoint& where, const web_identity& identity,
                       web_routes& routes, web_limits limits) try :
    implementation_(std::make_shared<implementation>(context, where, identity, routes, limits)) {
  implementation_->start();
} catch (const boost::system::system_error& e) {
  throw std::runtime_error("cannot serve on " + where.address().to_string() + ":" + std::to_string(where.port()) +
                           ": " + e.what());
}

web_server::~web_server() {
  implementation_->stop();
}

std::uint16_t web_server::port() const {
  return implementation_->port();
}

bool web_server::certificate_ends_within(std::chrono::seconds time) const {
  return implementation_->certificate_ends_within(time);
}

} // namespace parcae

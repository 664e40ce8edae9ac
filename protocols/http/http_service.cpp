#include "protocols/http/http_service.hpp"

#include "protocols/base/as_result.hpp"
#include "protocols/http/http_conversation.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ssl/context.hpp>

#include <map>
#include <stdexcept>

namespace parcae {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;

constexpr std::chrono::seconds handshake_limit{10};

/// What one connection too many is told, before it has asked.
std::string refusal_text(const http_reply& x) {
  return conversing::head_of(x, x.body->size(), false) + *x.body;
}

} // namespace

class http_service::implementation : public std::enable_shared_from_this<implementation> {
public:
  implementation(asio::io_context& context, const tcp::endpoint& where, const http_identity& identity,
                 http_answerer& answerer, const http_service_limits& limits) :
      context_(context),
      acceptor_(context), answerer_(answerer), limits_(limits),
      busy_(refusal_text(answerer.error(503, "there are too many connections; try later"))) {
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

  static asio::awaitable<void> accept(pointer self);
  static asio::awaitable<void> meet(pointer self, tcp::socket socket, asio::ip::address from);
  bool has_room(const asio::ip::address& from);
  void refuse(tcp::socket& socket);
  void forget_if_none(const asio::ip::address& x);

  asio::io_context& context_;
  tcp::acceptor acceptor_;
  std::optional<asio::ssl::context> tls_;
  http_answerer& answerer_;
  const http_service_limits limits_;
  const std::string busy_; ///< what one connection too many is told
  std::size_t open_ = 0;
  std::map<asio::ip::address, std::size_t> by_address_;
  conversing::waiting_list waiting_;
};

asio::awaitable<void> http_service::implementation::accept(pointer self) {
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
      self->refuse(socket);
      continue;
    }
    asio::co_spawn(self->context_, meet(self, std::move(socket), from), asio::detached);
  }
}

/// Clients keep connections for what may come: where there is no other place, the one that has waited longest for a
/// request gives its own.
bool http_service::implementation::has_room(const asio::ip::address& from) {
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
void http_service::implementation::refuse(tcp::socket& socket) {
  beast::error_code ignored;
  socket.non_blocking(true, ignored);
  if (!tls_)
    socket.write_some(asio::buffer(busy_), ignored);
  socket.close(ignored);
}

void http_service::implementation::forget_if_none(const asio::ip::address& x) {
  if (const auto i = by_address_.find(x); i != by_address_.end() && i->second == 0)
    by_address_.erase(i);
}

asio::awaitable<void> http_service::implementation::meet(pointer self, tcp::socket socket, asio::ip::address from) {
  ++self->open_;
  ++self->by_address_[from];
  try {
    beast::error_code gone;
    const auto local = socket.local_endpoint(gone).address().to_string(gone);
    socket.set_option(tcp::no_delay(true), gone);
    beast::tcp_stream plain(std::move(socket));
    std::optional<byte_stream> stream;
    beast::error_code bad;
    if (self->tls_) {
      stream.emplace(std::move(plain), *self->tls_);
      stream->lowest().expires_after(handshake_limit);
      bad = co_await stream->shake_hands(asio::ssl::stream_base::server);
    } else {
      stream.emplace(std::move(plain));
    }
    if (!bad) {
      conversing::conversation talk(self->answerer_, self->limits_, self->waiting_, *stream, from, local);
      co_await talk.hold();
    }
  } catch (const std::exception&) { // one connection's end is none of the others'
  }
  --self->open_;
  --self->by_address_[from];
  self->forget_if_none(from);
}

http_service::http_service(asio::io_context& context, const tcp::endpoint& where, const http_identity& identity,
                           http_answerer& answerer, const http_service_limits& limits) try :
    implementation_(std::make_shared<implementation>(context, where, identity, answerer, limits)) {
  implementation_->start();
} catch (const boost::system::system_error& e) {
  throw std::runtime_error("cannot serve on " + where.address().to_string() + ":" + std::to_string(where.port()) +
                           ": " + e.code().message());
}

http_service::~http_service() {
  implementation_->stop();
}

std::uint16_t http_service::port() const {
  return implementation_->port();
}

bool http_service::certificate_ends_within(std::chrono::seconds time) const {
  return implementation_->certificate_ends_within(time);
}

} // namespace parcae

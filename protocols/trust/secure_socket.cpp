#include "protocols/trust/secure_socket.hpp"

#include "protocols/base/as_result.hpp"
#include "protocols/base/text.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <tuple>

namespace parcae {

using boost::asio::awaitable;
using boost::asio::ip::tcp;
using boost::system::error_code;

namespace {

/// Asio's own are of 64 KiB.
std::size_t in_large_pieces(const error_code& failure, std::size_t) {
  return failure ? 0 : std::size_t{1} << 20;
}

bool is_goodbye(const error_code& x) {
  return x == boost::asio::error::eof;
}

} // namespace

void keep_from_children(int descriptor) {
  ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
}

std::string problem_of_place(const tcp::endpoint& x, bool has_bundle) {
  return has_bundle || x.address().is_loopback() ? ""
                                                 : "without a bundle there is only loopback: make one with "
                                                   "`parcae init`, and give it with --bundle";
}

std::string problem_of_listening(const error_code& x) {
  namespace error = boost::asio::error;
  if (x == error::address_in_use)
    return "something listens there already: another manager, or another node?";
  if (x == boost::system::errc::address_not_available)
    return "that is no address of this machine; 0.0.0.0 and [::] stand for all that it has";
  if (x == error::access_denied)
    return x.message() + ": ports below 1024 are for root";
  if (x == error::host_not_found || x == error::host_not_found_try_again || x == error::no_data)
    return "that name has no address: " + x.message();
  return x.message();
}

secure_socket::secure_socket(tcp::socket to, link_side side, std::shared_ptr<const credentials> shown) :
    socket(std::move(to)), here(side), own(std::move(shown)) {
  if (socket.is_open())
    use_socket();
}

void secure_socket::use_socket() {
  error_code unknown;
  socket.set_option(tcp::no_delay(true), unknown);
  keep_from_children(socket.native_handle());
  if (const auto peer_is = socket.remote_endpoint(unknown); !unknown)
    name_ = with_port(peer_is.address().to_string(), peer_is.port());
}

awaitable<std::string> secure_socket::reach(const tcp::resolver::results_type& where) {
  std::string problem = "it has no address";
  for (const auto& entry : where) {
    if (problem = problem_of_place(entry.endpoint(), own != nullptr); !problem.empty())
      continue;
    error_code failure;
    socket.close(failure);
    socket.open(entry.endpoint().protocol(), failure);
    if (!failure) {
      keep_from_children(socket.native_handle());
      std::tie(failure) = co_await socket.async_connect(entry.endpoint(), as_result);
    }
    if (closed_)
      co_return "given up";
    // Nobody listens there, and the kernel happened to give this end the same port: TCP then connects to itself.
    error_code unknown;
    if (!failure && socket.local_endpoint(unknown) == socket.remote_endpoint(unknown))
      failure = boost::asio::error::connection_refused;
    if (!failure) {
      use_socket();
      co_return std::string();
    }
    problem = failure == boost::asio::error::connection_refused ? std::string(nobody_listens) : failure.message();
  }
  co_return problem;
}

/// Until the first message of a handshake is there as a whole. It is looked at before OpenSSL, which costs tens of KiB,
/// gets it: as long as the socket has less than that it is not ready to be read.
awaitable<std::string> secure_socket::await_hello() {
  using low_watermark = boost::asio::socket_base::receive_low_watermark;
  std::array<unsigned char, hello_bytes> first{};
  error_code ignored;
  for (auto wanted = hello_bytes; wanted > 0;) {
    socket.set_option(low_watermark(static_cast<int>(wanted)), ignored);
    co_await socket.async_wait(tcp::socket::wait_read, as_result);
    if (closed_)
      co_return "given up";
    const auto there = ::recv(socket.native_handle(), first.data(), first.size(), MSG_PEEK | MSG_DONTWAIT);
    if (there != static_cast<ssize_t>(first.size()) || !is_modest_hello(first))
      co_return "no TLS handshake";
    wanted = wanted == hello_bytes ? record_bytes(first) : 0;
  }
  socket.set_option(low_watermark(1), ignored);
  co_return std::string();
}

awaitable<std::string> secure_socket::secure() {
  if (!own)
    co_return std::string();
  if (here == link_side::accepted)
    if (auto problem = co_await await_hello(); !problem.empty())
      co_return problem;
  tls_ = std::make_unique<tls_session>(own, socket.native_handle(), here);
  for (;;) {
    const auto now = tls_->shake_hands();
    if (now == tls_session::handshake::failed)
      co_return tls_->problem();
    if (now == tls_session::handshake::done && !tls_->unsent())
      break;
    co_await socket.async_wait(tls_->unsent() ? tcp::socket::wait_write : tcp::socket::wait_read, as_result);
    if (closed_)
      co_return "given up";
  }
  peer = tls_->peer();
  if (!peer)
    co_return "its certificate is not of Parcae";
  name_ += " (" + to_string(*peer) + ")";
  co_return std::string();
}

void secure_socket::widen() {
  if (tls_)
    tls_->widen();
}

awaitable<std::size_t> secure_socket::read_some(std::span<std::byte> to) {
  if (!tls_) {
    const auto [problem, size] = co_await socket.async_read_some(boost::asio::buffer(to.data(), to.size()), as_result);
    if (problem && !is_goodbye(problem))
      failure = problem.message();
    co_return problem ? 0 : size;
  }
  const iovec piece{to.data(), to.size()};
  for (;;) {
    if (closed_)
      co_return 0;
    const auto n = tls_->receive({&piece, 1});
    if (n >= 0) {
      co_await boost::asio::post(socket.get_executor(), boost::asio::use_awaitable); // let others have their turn
      co_return static_cast<std::size_t>(n);
    }
    if (errno != EAGAIN) {
      failure = tls_->problem();
      co_return 0;
    }
    co_await socket.async_wait(tcp::socket::wait_read, as_result);
  }
}

awaitable<bool> secure_socket::read(std::span<std::byte> to) {
  while (!to.empty()) {
    const auto n = co_await read_some(to);
    if (n == 0)
      co_return false;
    to = to.subspan(n);
  }
  co_return true;
}

awaitable<bool> secure_socket::write(std::span<const std::byte> bytes) {
  if (!tls_) {
    const auto [problem, size] = co_await boost::asio::async_write(
        socket, boost::asio::buffer(bytes.data(), bytes.size()), in_large_pieces, as_result);
    if (problem)
      failure = problem.message();
    co_return !problem;
  }
  while (!bytes.empty() || tls_->unsent()) {
    if (closed_)
      co_return false;
    const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()}; // it knows no const
    const auto n = tls_->send({&piece, 1});
    if (n < 0 && errno != EAGAIN) {
      failure = tls_->problem().empty() ? std::generic_category().message(errno) : tls_->problem();
      co_return false;
    }
    if (n > 0)
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    if (tls_->unsent())
      co_await socket.async_wait(tcp::socket::wait_write, as_result);
    else if (!bytes.empty())
      co_await boost::asio::post(socket.get_executor(), boost::asio::use_awaitable);
  }
  co_return true;
}

bool secure_socket::write_now(std::span<const std::byte> bytes) {
  const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  const auto n = tls_ ? tls_->send({&piece, 1})
                      : ::send(socket.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return n == static_cast<ssize_t>(bytes.size()) && !(tls_ && tls_->unsent());
}

void secure_socket::say_goodbye() {
  error_code ignored;
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

void secure_socket::close() {
  closed_ = true;
  error_code ignored;
  socket.close(ignored);
}

bool secure_socket::left() {
  char one = 0;
  const auto n = ::recv(socket.native_handle(), &one, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

} // namespace parcae

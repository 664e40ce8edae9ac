#include "runtime/link/connection.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <tuple>

namespace parcae {

using boost::asio::awaitable;
using boost::asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr auto as_result = boost::asio::as_tuple(boost::asio::use_awaitable);

} // namespace

void keep_from_children(int descriptor) {
  ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
}

awaitable<std::string> connection::reach(const tcp::resolver::results_type& where) {
  std::string problem = "it has no address";
  for (const auto& entry : where) {
    error_code failure;
    socket.close(failure);
    socket.open(entry.endpoint().protocol(), failure);
    if (!failure) {
      keep_from_children(socket.native_handle());
      std::tie(failure) = co_await socket.async_connect(entry.endpoint(), as_result);
    }
    if (over)
      co_return "given up";
    if (!failure) {
      use_socket();
      co_return std::string();
    }
    problem = failure.message();
  }
  co_return problem;
}

connection::connection(boost::asio::io_context& io, tcp::socket to, link_side side,
                       std::shared_ptr<const credentials> shown) :
    socket(std::move(to)),
    caf(io), here(side), own(std::move(shown)), gate(side) {
  use_socket();
}

void connection::use_socket() {
  error_code unknown;
  socket.set_option(tcp::no_delay(true), unknown);
  keep_from_children(socket.native_handle());
  const auto peer = socket.remote_endpoint(unknown);
  if (unknown)
    return;
  const auto ip = peer.address().to_string();
  name_ = (peer.address().is_v6() ? "[" + ip + "]" : ip) + ":" + std::to_string(peer.port());
}

awaitable<std::string> connection::secure() {
  if (!own)
    co_return std::string();
  if (here == link_side::accepted) {
    // Looked at before OpenSSL, which costs some 100 KiB, gets it, and only once it is there as a whole: as long as the
    // socket has less than that it is not ready to be read.
    using low_watermark = boost::asio::socket_base::receive_low_watermark;
    std::array<unsigned char, hello_bytes> first{};
    error_code ignored;
    for (auto wanted = hello_bytes; wanted > 0;) {
      socket.set_option(low_watermark(static_cast<int>(wanted)), ignored);
      co_await socket.async_wait(tcp::socket::wait_read, as_result);
      if (over)
        co_return "given up";
      const auto there = ::recv(socket.native_handle(), first.data(), first.size(), MSG_PEEK | MSG_DONTWAIT);
      if (there != static_cast<ssize_t>(first.size()) || !is_modest_hello(first))
        co_return "no TLS handshake";
      wanted = wanted == hello_bytes ? record_bytes(first) : 0;
    }
    socket.set_option(low_watermark(1), ignored);
  }
  tls_.emplace(socket, own->context());
  const auto as =
      here == link_side::accepted ? boost::asio::ssl::stream_base::server : boost::asio::ssl::stream_base::client;
  const auto [problem] = co_await tls_->async_handshake(as, as_result);
  if (over)
    co_return "given up";
  if (problem)
    co_return handshake_problem(tls_->native_handle(), "no TLS handshake: " + problem.message());
  peer = credentials::peer_of(tls_->native_handle());
  if (!peer)
    co_return "its certificate is not of Parcae";
  const bool is_manager = peer->role == membership::manager;
  if (is_manager != (here == link_side::dialled))
    co_return "it is " + to_string(*peer) + (is_manager ? ", which dials nobody" : ", and not the manager");
  name_ += " (" + to_string(*peer) + ")";
  co_return std::string();
}

awaitable<std::size_t> connection::read_some(std::span<char> to) {
  const auto buffer = boost::asio::buffer(to.data(), to.size());
  error_code problem;
  std::size_t size = 0;
  if (tls_)
    std::tie(problem, size) = co_await tls_->async_read_some(buffer, as_result);
  else
    std::tie(problem, size) = co_await socket.async_read_some(buffer, as_result);
  if (problem && problem != boost::asio::error::eof && problem != boost::asio::ssl::error::stream_truncated)
    failure = problem.message();
  co_return problem ? 0 : size;
}

awaitable<bool> connection::write(std::span<const char> bytes) {
  const auto buffer = boost::asio::buffer(bytes.data(), bytes.size());
  error_code problem;
  std::size_t size = 0;
  if (tls_)
    std::tie(problem, size) = co_await boost::asio::async_write(*tls_, buffer, as_result);
  else
    std::tie(problem, size) = co_await boost::asio::async_write(socket, buffer, as_result);
  co_return !problem;
}

void connection::say_goodbye() {
  error_code ignored;
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

void connection::close() {
  error_code ignored;
  if (resolver)
    resolver->cancel();
  socket.close(ignored);
  caf.close(ignored);
}

bool connection::left() {
  char one = 0;
  const auto n = ::recv(socket.native_handle(), &one, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

} // namespace parcae

#include "runtime/link/connection.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <fcntl.h>
#include <sys/socket.h>

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

connection::connection(boost::asio::io_context& io, tcp::socket to, link_side side) :
    socket(std::move(to)), caf(io), here(side), gate(side) {
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

awaitable<std::size_t> connection::read_some(std::span<char> to) {
  auto [failure, size] = co_await socket.async_read_some(boost::asio::buffer(to.data(), to.size()), as_result);
  co_return failure ? 0 : size;
}

awaitable<bool> connection::write(std::span<const char> bytes) {
  auto [failure, size] =
      co_await boost::asio::async_write(socket, boost::asio::buffer(bytes.data(), bytes.size()), as_result);
  co_return !failure;
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

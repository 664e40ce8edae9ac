#include "gpu/dataplane/handshake.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <tuple>

namespace parcae {

using boost::asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr auto as_result = boost::asio::as_tuple(boost::asio::use_awaitable);

/// Enough for a message to leave while the other side computes. The kernel's own tuning starts at 16 KiB.
constexpr int buffer_bytes = 4 << 20;

} // namespace

template <class Socket>
void size_buffers(Socket& x) {
  error_code ignored; // a smaller buffer is only slower
  x.set_option(boost::asio::socket_base::send_buffer_size(buffer_bytes), ignored);
  x.set_option(boost::asio::socket_base::receive_buffer_size(buffer_bytes), ignored);
}

template void size_buffers(tcp::socket&);
template void size_buffers(tcp::acceptor&);

boost::asio::awaitable<introduction> introduce(tcp::socket& socket, std::string host, std::uint16_t port,
                                               greeting hello) {
  error_code failure;
  tcp::endpoint where(boost::asio::ip::make_address(host, failure), port);
  if (failure) {
    tcp::resolver resolver(socket.get_executor());
    auto [problem, found] = co_await resolver.async_resolve(host, std::to_string(port), as_result);
    if (problem)
      co_return introduction{false, false, problem.message()};
    where = found.begin()->endpoint();
  }
  socket.open(where.protocol(), failure);
  if (failure)
    co_return introduction{false, false, failure.message()};
  size_buffers(socket);
  std::tie(failure) = co_await socket.async_connect(where, as_result);
  if (failure)
    co_return introduction{false, false, failure.message()};
  // Nobody listens there, and the kernel happened to give this end the same port: TCP then connects to itself.
  if (socket.local_endpoint(failure) == socket.remote_endpoint(failure))
    co_return introduction{false, false, "nobody listens"};
  socket.set_option(tcp::no_delay(true), failure);

  auto bytes = encode(hello);
  std::size_t moved = 0;
  std::tie(failure, moved) = co_await boost::asio::async_write(socket, boost::asio::buffer(bytes), as_result);
  if (failure)
    co_return introduction{false, false, failure.message()};
  std::array<std::byte, verdict_size> answer;
  std::tie(failure, moved) = co_await boost::asio::async_read(socket, boost::asio::buffer(answer), as_result);
  if (failure)
    co_return introduction{false, false, failure.message()};
  auto verdict = decode_verdict(answer);
  if (!verdict)
    co_return introduction{false, true, "malformed answer"};
  auto final = *verdict == refusal::protocol || *verdict == refusal::token;
  co_return introduction{*verdict == refusal::none, final, render(*verdict)};
}

std::string remote_name(const tcp::socket& x) {
  error_code failure;
  auto where = x.remote_endpoint(failure);
  return failure ? "?" : where.address().to_string() + ":" + std::to_string(where.port());
}

} // namespace parcae

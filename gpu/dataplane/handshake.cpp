#include "gpu/dataplane/handshake.hpp"

#include "protocols/base/as_result.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>

namespace parcae {

using boost::asio::ip::tcp;

namespace {

/// The kernel's own tuning starts at 16 KiB.
constexpr int room_bytes = 4 << 20;

/// By its address, or its name.
boost::asio::awaitable<std::string> reach(secure_socket& socket, const participant& to) {
  boost::system::error_code failure;
  const auto ip = boost::asio::ip::make_address(to.host, failure);
  if (!failure)
    co_return co_await socket.reach(
        tcp::resolver::results_type::create(tcp::endpoint(ip, to.port), to.host, std::to_string(to.port)));
  tcp::resolver resolver(socket.socket.get_executor());
  const auto [problem, found] = co_await resolver.async_resolve(to.host, std::to_string(to.port), as_result);
  if (problem || socket.closed())
    co_return problem ? "the name " + to.host + " is not resolved: " + problem.message() : std::string("given up");
  co_return co_await socket.reach(found);
}

} // namespace

void give_room(secure_socket& x) {
  const int file = x.socket.native_handle();
  ::setsockopt(file, SOL_SOCKET, SO_SNDBUF, &room_bytes, sizeof room_bytes); // less is only slower
  ::setsockopt(file, SOL_SOCKET, SO_RCVBUF, &room_bytes, sizeof room_bytes);
  ::setsockopt(file, IPPROTO_TCP, TCP_WINDOW_CLAMP, &room_bytes, sizeof room_bytes); // else that of the first buffer
  x.widen();
}

std::string problem_of_guest(const secure_socket& x) {
  if (!x.peer || joins(x.peer->role))
    return {};
  return "it is " + to_string(*x.peer) + ", and no node";
}

bool may_be(const secure_socket& x, const std::string& instance) {
  return !x.own || (x.peer && may_join_as(*x.peer, instance));
}

boost::asio::awaitable<introduction> introduce(secure_socket& socket, participant to, greeting hello) {
  if (auto problem = co_await reach(socket, to); !problem.empty())
    co_return introduction{false, false, problem};
  if (auto problem = co_await socket.secure(); !problem.empty())
    co_return introduction{false, false, problem};
  if (auto problem = problem_of_guest(socket); !problem.empty())
    co_return introduction{false, true, problem};
  if (!may_be(socket, to.slot.instance))
    co_return introduction{false, true, to_string(*socket.peer) + " is not " + to.slot.instance};
  give_room(socket);

  const auto bytes = encode(hello);
  std::array<std::byte, verdict_size> answer;
  if (!co_await socket.write(bytes) || !co_await socket.read(answer)) {
    if (socket.failure.empty())
      co_return introduction{false, false, "it closed the connection"};
    // TLS 1.3 tells who dialled only now that its certificate is refused.
    co_return introduction{false, false,
                           (socket.own ? "it refuses " + to_string(socket.own->self()) + ": " : "") + socket.failure};
  }
  const auto verdict = decode_verdict(answer);
  if (!verdict)
    co_return introduction{false, true, "malformed answer"};
  const bool final = *verdict == refusal::protocol || *verdict == refusal::token || *verdict == refusal::name;
  co_return introduction{*verdict == refusal::none, final, render(*verdict)};
}

} // namespace parcae

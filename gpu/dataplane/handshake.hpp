#pragma once

// How a data connection begins, seen from the side that dials. All on the I/O thread.

#include "gpu/dataplane/frames.hpp"
#include "protocols/choreography/choreography.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <string>

namespace parcae {

/// What became of dialling.
struct introduction {
  bool accepted = false;
  bool final = false;  ///< refused for a reason that will not go away
  std::string problem; ///< why it was not accepted
};

/// Socket options of every data connection; before connect or listen, since TCP agrees on windows when it connects.
template <class Socket>
void size_buffers(Socket& x);

extern template void size_buffers(boost::asio::ip::tcp::socket&);
extern template void size_buffers(boost::asio::ip::tcp::acceptor&);

/// Dials `to`, sends the greeting, and waits for the verdict, which may take as long as the other side takes to
/// prepare; closing the socket ends it. `socket` must not be open yet, and must outlive the call.
boost::asio::awaitable<introduction> introduce(boost::asio::ip::tcp::socket& socket, std::string host,
                                               std::uint16_t port, greeting hello);

/// "address:port" of the other end, for messages.
std::string remote_name(const boost::asio::ip::tcp::socket& x);

} // namespace parcae

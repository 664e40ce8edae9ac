#pragma once

// How a data connection begins, seen from the side that dials, and what both sides look at. All on the I/O thread.

#include "gpu/dataplane/frames.hpp"
#include "protocols/choreography/choreography.hpp"
#include "protocols/trust/secure_socket.hpp"

#include <boost/asio/awaitable.hpp>

#include <string>

namespace parcae {

/// What became of dialling.
struct introduction {
  bool accepted = false;
  bool final = false;  ///< refused for a reason that will not go away
  std::string problem; ///< why it was not accepted
};

/// Dials `to`, which its certificate must allow it to be, sends the greeting, and waits for the verdict, which may take
/// as long as the other side takes to prepare; closing the socket ends it. `socket` must not be open yet, and must
/// outlive the call.
boost::asio::awaitable<introduction> introduce(secure_socket& socket, participant to, greeting hello);

/// Why the other end may not be on the data plane, by its certificate; empty: it may. Without certificates there is
/// nothing to say.
std::string problem_of_guest(const secure_socket& x);
/// Whether it may be that instance.
bool may_be(const secure_socket& x, const std::string& instance);

/// For a connection whose other side is known: room for a message to leave while that side computes. Not before: a
/// stranger gets little of this machine.
void give_room(secure_socket& x);

} // namespace parcae

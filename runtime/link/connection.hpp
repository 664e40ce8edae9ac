#pragma once

// One connection of the hub: the network on one side, CAF on the other. All on the hub's thread.

#include "protocols/trust/secure_socket.hpp"
#include "runtime/link/allowance.hpp"
#include "runtime/link/conversation.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace parcae {

/// What who dialled says first: so that nobody is taken for one of us by accident, and a connection that says nothing
/// costs nothing.
inline constexpr std::string_view link_greeting{"parcae control 1"};

/// Most bytes read at once.
inline constexpr std::size_t link_piece = 16 * 1024;

class connection : public secure_socket {
public:
  static constexpr std::chrono::milliseconds no_limit = std::chrono::milliseconds::max();

  /// `own`: what this side shows; null: it is plain TCP.
  connection(boost::asio::io_context& io, boost::asio::ip::tcp::socket socket, link_side here,
             std::shared_ptr<const credentials> own);

  /// As secure_socket's; also says so if the other side may not be there: only the manager is dialled, by all others.
  boost::asio::awaitable<std::string> secure();
  /// It is known who is there: from now on bytes may be passed on. `questions`: per second.
  void open(double questions);
  /// It has asked so much. How long it has to wait before the next.
  std::chrono::milliseconds pay(double questions);
  /// At once; whatever is under way fails.
  void close();

  std::optional<boost::asio::ip::tcp::resolver> resolver; ///< while dialling
  boost::asio::local::stream_protocol::socket caf;        ///< the end here of the socket pair
  std::optional<frame_gate> gate;                         ///< of what comes in; from open() on, as the next three
  std::optional<conversation> talk;                       ///< what was said
  std::optional<allowance> allowed;                       ///< how much may be
  boost::asio::steady_timer answered;                     ///< never due; cancelled with each answer that goes out
  std::shared_ptr<allowance> together;            ///< and on all of its certificate's holder; null: there is none
  outgoing speech;                                ///< of what goes out
  std::string step;                               ///< what it is waited for, for the log
  std::chrono::milliseconds due = no_limit;       ///< end of the step, on the hub's clock
  std::chrono::milliseconds write_due = no_limit; ///< end of what is being written
  std::string node;                               ///< that it says to be
  bool trusted = false;                           ///< went through the gate
  bool elsewhere = false;                         ///< then: to another host
  bool expired = false;                           ///< was closed since a limit passed
  bool over = false;                              ///< was closed
  bool peer_ended = false;                        ///< nothing more comes in
  bool caf_ended = false;                         ///< nothing more goes out
};

} // namespace parcae

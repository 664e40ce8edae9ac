#pragma once

// One connection of the hub: the network on one side, CAF on the other. All on the hub's thread.

#include "protocols/trust/credentials.hpp"
#include "runtime/link/frame_gate.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/ssl/stream.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace parcae {

/// What who dialled says first: so that nobody is taken for one of us by accident, and a connection that says nothing
/// costs nothing.
inline constexpr std::string_view link_greeting{"parcae control 1"};

/// Most bytes read at once.
inline constexpr std::size_t link_piece = 16 * 1024;

/// Closes it in programs that this process starts: a node's guardian would end its parent's connections. Asio does not.
void keep_from_children(int descriptor);

class connection {
public:
  static constexpr std::chrono::milliseconds no_limit = std::chrono::milliseconds::max();

  /// `own`: what this side shows; null: it is plain TCP.
  connection(boost::asio::io_context& io, boost::asio::ip::tcp::socket socket, link_side here,
             std::shared_ptr<const credentials> own);

  /// Connects to the first of these that takes it. Returns why none does, or nothing.
  boost::asio::awaitable<std::string> reach(const boost::asio::ip::tcp::resolver::results_type& where);
  /// TLS, where it is to be. Returns what is wrong with the other side, or nothing: then `peer` tells who it is.
  boost::asio::awaitable<std::string> secure();
  /// Bytes read; none: the end, an error, or closed.
  boost::asio::awaitable<std::size_t> read_some(std::span<char> to);
  /// All of them went out.
  boost::asio::awaitable<bool> write(std::span<const char> bytes);
  /// The other side gets what was written, and then the end. Frames say how long they are: TLS needs no goodbye of its
  /// own, and whoever can cut the connection needs no lie.
  void say_goodbye();
  /// At once; whatever is under way fails.
  void close();
  /// The other end has left, as far as is known here. Nothing is read.
  bool left();

  /// "address:port" of the other end.
  const std::string& name() const { return name_; }
  void use_socket(); ///< once it is connected

  boost::asio::ip::tcp::socket socket;
  std::optional<boost::asio::ip::tcp::resolver> resolver; ///< while dialling
  boost::asio::local::stream_protocol::socket caf;        ///< the end here of the socket pair
  const link_side here;
  const std::shared_ptr<const credentials> own;
  std::optional<identity> peer; ///< by its certificate
  frame_gate gate;
  std::string step;                               ///< what it is waited for, for the log
  std::chrono::milliseconds due = no_limit;       ///< end of the step, on the hub's clock
  std::chrono::milliseconds write_due = no_limit; ///< end of what is being written
  std::string node;                               ///< that it says to be
  bool trusted = false;                           ///< went through the gate
  bool expired = false;                           ///< was closed since a limit passed
  bool over = false;                              ///< was closed
  bool peer_ended = false;                        ///< nothing more comes in
  bool caf_ended = false;                         ///< nothing more goes out

  std::string failure; ///< why a read ended, if not by the other side's goodbye

private:
  std::optional<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> tls_;
  std::string name_;
};

} // namespace parcae

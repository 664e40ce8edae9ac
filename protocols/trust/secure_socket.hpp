#pragma once

// A TCP connection between processes of a cluster: in TLS where there is a bundle, and then it is known who is at the
// other end. What control and data connections have in common.

#include "protocols/trust/tls_session.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace parcae {

/// Closes it in programs that this process starts: a node's guardian would end its parent's connections. Asio does not.
void keep_from_children(int descriptor);

/// Of somewhere to listen or to dial: empty, or what is wrong, in one line.
std::string problem_of_place(const boost::asio::ip::tcp::endpoint& x, bool has_bundle);

/// Why that cannot be listened on, and what to do.
std::string problem_of_listening(const boost::system::error_code& x);

/// What secure_socket::reach says of an address where a machine answers, and no program.
inline constexpr std::string_view nobody_listens{"nobody listens there"};

/// All on one thread. Whatever is under way must hold it. Reads and writes may be under way together, one of each.
class secure_socket {
public:
  /// `own`: what this side shows; null: it is plain TCP.
  secure_socket(boost::asio::ip::tcp::socket socket, link_side here, std::shared_ptr<const credentials> own);

  /// Connects to the first of these that takes it. Returns why none does, or nothing.
  boost::asio::awaitable<std::string> reach(const boost::asio::ip::tcp::resolver::results_type& where);
  /// TLS, where it is to be. Returns what is wrong with the other side, or nothing: then `peer` tells who it is, if
  /// there are certificates.
  boost::asio::awaitable<std::string> secure();

  /// Bytes read; none: the end, an error, or closed.
  boost::asio::awaitable<std::size_t> read_some(std::span<std::byte> to);
  /// All of them came; else as above.
  boost::asio::awaitable<bool> read(std::span<std::byte> to);
  /// All of them went out.
  boost::asio::awaitable<bool> write(std::span<const std::byte> bytes);
  /// Likewise, at once or not at all: for what surely fits into the socket's buffer.
  bool write_now(std::span<const std::byte> bytes);

  /// The other side gets what was written, and then the end. Frames say how long they are: TLS needs no goodbye of its
  /// own, and an attacker who can cut the connection needs no lie.
  void say_goodbye();
  /// At once; whatever is under way fails. For good.
  void close();
  bool closed() const { return closed_; }
  /// The other end has left, as far as is known here. Nothing is read.
  bool left();

  /// "address:port" of the other end, and who it is.
  const std::string& name() const { return name_; }
  void widen(); ///< see tls_session

  /// The TLS on it, null if it is plain, for use with the descriptor; this object is then of no further use.
  std::unique_ptr<tls_session> release_tls() { return std::move(tls_); }

  boost::asio::ip::tcp::socket socket;
  const link_side here;
  const std::shared_ptr<const credentials> own;
  std::optional<identity> peer; ///< by its certificate
  std::string failure;          ///< why a read or a write ended, if not by the other side's goodbye

private:
  void use_socket();
  boost::asio::awaitable<std::string> await_hello();

  std::unique_ptr<tls_session> tls_;
  std::string name_;
  bool closed_ = false;
};

} // namespace parcae

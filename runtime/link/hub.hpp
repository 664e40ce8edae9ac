#pragma once

// The thread that all control connections of a process pass through, on their way to CAF and from it. Per connection:
//
//   accepted   TLS → greeting → socket pair, its other end to CAF → first frame → open → goodbye → over
//   dialled    connect → TLS → greeting → the other's first word → socket pair → first frame → open → goodbye → over
//
// Each step has a limit, counted while this process runs: one that stood still has not used up its peers' time. Each
// 100 ms the kernel is asked which hosts owe an answer for too long.

#include "protocols/base/line_limit.hpp"
#include "protocols/trust/credentials.hpp"
#include "protocols/trust/strangers.hpp"
#include "runtime/link/frame_gate.hpp"
#include "runtime/link/holders.hpp"
#include "runtime/link/link.hpp"
#include "runtime/link/node_claims.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>

namespace parcae {

class connection;
using connection_ptr = std::shared_ptr<connection>;

class hub {
public:
  /// Throws std::runtime_error with one line if the bundle cannot be used.
  explicit hub(const link_options& options);

  /// CAF's ends must be closed, or the actor system gone. Lets what CAF wrote last go out.
  ~hub();

  /// Frames are read with the types of this system; null: it is about to end, and nothing more is let through.
  void serve(caf::actor_system* x);

  /// Gets the end of a connection for CAF (a descriptor, not blocking), and the peer's address. On the hub's thread.
  using arrival = std::function<void(int descriptor, const std::string& host, std::uint16_t port)>;

  struct listener {
    std::uint64_t number = 0; ///< for stop_listening
    std::uint16_t port = 0;
    std::string problem; ///< empty: it listens
  };
  listener listen(const std::string& host, std::uint16_t port, arrival on_arrival);
  void stop_listening(std::uint64_t number);

  struct dialled {
    int descriptor = -1;  ///< for CAF; not blocking
    bool silent = false;  ///< it said nothing in time
    bool refused = false; ///< one of both did not like the other's certificate; else nobody listens there
    std::string problem;
  };
  /// Blocks until the other side has said its first word. Not on the hub's thread.
  dialled dial(const std::string& host, std::uint16_t port);

  /// Who a node of CAF is, as the certificate of its connection says; empty: there is none. Any thread.
  std::optional<identity> identity_of(const caf::node_id& x) const;

  /// See problem_of_end. Any thread.
  std::string certificate_problem() const {
    const lock held(mutex_);
    return self_ ? problem_of_end(*self_, std::chrono::system_clock::now()) : std::string();
  }

  /// See network_side. Any thread.
  std::string other_build() const {
    const lock held(mutex_);
    return other_build_;
  }

  bool has_bundle() const { return !options_.bundle.empty(); }
  /// Reads the bundle again, and ends connections whose certificate is revoked. Returns what is wrong, in one line:
  /// then all stays as it was.
  std::string read_bundle_again();

private:
  struct acceptor;

  void read_bundle();
  void run();
  void start(boost::asio::awaitable<void> x);
  template <class Function>
  auto on_thread(Function&& f);

  boost::asio::awaitable<void> accept(std::shared_ptr<acceptor> from);
  boost::asio::awaitable<void> admit(connection_ptr x, std::shared_ptr<acceptor> from);
  boost::asio::awaitable<void> reach(connection_ptr x, std::string host, std::uint16_t port,
                                     std::function<void(dialled)> answer);
  boost::asio::awaitable<void> inbound(connection_ptr x, std::vector<char> first);
  boost::asio::awaitable<bool> let_in(connection_ptr x, std::span<const char> bytes);
  boost::asio::awaitable<void> outbound(connection_ptr x);
  boost::asio::awaitable<void> watch();
  void end_those_out_of_time();
  void end_those_vanished();
  std::chrono::milliseconds by(std::chrono::milliseconds limit) const;

  int pair_for(connection& x);
  void pump(const connection_ptr& x, std::vector<char> first);
  std::string check(connection& x, const frame_header& header, std::span<const char> payload);
  void trust(const connection_ptr& x);
  void refuse(connection& x, const std::string& why);
  void forget_node(connection& x);
  void say_goodbye_by(connection& x);
  void end(connection& x);

  const link_options options_;
  boost::asio::io_context io_{1}; ///< first, so that it goes last: the others hold sockets of it
  boost::asio::steady_timer pulse_;
  std::chrono::milliseconds awake_{0}; ///< how long this process has run, standstills left out
  bool ending_ = false;
  caf::actor_system* system_ = nullptr;
  std::uint64_t next_listener_ = 1;
  std::map<std::uint64_t, std::shared_ptr<acceptor>> acceptors_;
  strangers<connection> strangers_;        ///< accepted, and not yet through the gate
  std::list<connection_ptr> members_;      ///< the others
  node_claims nodes_;                      ///< who says to be which node of CAF
  holders holders_;                        ///< of the certificates of those connected
  std::shared_ptr<const credentials> own_; ///< null: plain TCP, on loopback
  line_limit refusals_;
  mutable mutex mutex_;
  std::optional<identity> self_ GUARDED_BY(mutex_); ///< of own_
  std::string other_build_ GUARDED_BY(mutex_);
  std::thread thread_; ///< the only one that touches the fields above, but for the guarded, once it runs
};

} // namespace parcae

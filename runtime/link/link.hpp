#pragma once

// LINK: how CAF's nodes connect here. CAF never sees the network: each connection ends in this process's hub, which
// lets whole, checked frames pass between it and a socket pair that CAF has the other end of.

#include "protocols/trust/identity.hpp"

#include <caf/fwd.hpp>
#include <caf/io/middleman_actor.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace parcae {

struct link_options {
  std::filesystem::path bundle{};            ///< what this process shows (protocols/trust); empty: only loopback, plain
  std::chrono::milliseconds dial{2'000};     ///< until the dialled side has said a word
  std::chrono::milliseconds settle{0};       ///< from that word until CAF hears of the connection
  std::chrono::milliseconds greeting{5'000}; ///< until the side that connected has said that it is one of us
  std::chrono::milliseconds first_frame{5'000}; ///< from then on, until its handshake with CAF
  std::chrono::milliseconds write{10'000};      ///< of at most 16 KiB
  std::chrono::milliseconds goodbye{1'000};     ///< from one side's end of a connection to the other's
  double questions = 200;                       ///< a second that each connection made here may ask; more wait
  std::size_t unanswered = 8; ///< questions of each such connection: while there are as many it is not read

  /// All connections made here with certificates of one name and role, whichever: how many there may be, more are
  /// refused; how many questions a second may be asked on them together.
  struct together {
    std::size_t connections;
    double questions;
  };
  together of_one{64, 1'000}, of_fleet{2'048, 4'000}; ///< of a fleet's 1,024 instances each says HELLO each second
  std::size_t strangers = 256;                        ///< connections not through the gate; more: the oldest is closed
};

/// Who a node of CAF is, as its certificate says; empty: nobody that is connected.
using peer_lookup = std::function<std::optional<identity>(const caf::node_id&)>;

class hub;

/// A thread. Make it before the actor system, destroy it after it: the system's end waits for what it has written.
class network_side {
public:
  /// Throws std::runtime_error with one line if the bundle cannot be used.
  explicit network_side(const link_options& options = {});
  ~network_side();

  /// For the bundle's files changed: new connections show the new certificate, and revoked ones' connections end.
  /// Returns what is wrong, in one line, or nothing. Any thread.
  std::string read_bundle_again();
  /// What is to be done about the certificate here, as it ends soon; else nothing. Any thread.
  std::string certificate_problem() const;
  /// Of the manager that was dialled last and has shaken hands: see problem_of_manager. Any thread.
  std::string other_build() const;
  /// Null without a bundle: then nobody is known. Any thread, as long as this lives.
  peer_lookup peers() const;

private:
  friend class caf_side;
  std::unique_ptr<hub> hub_;
};

/// CAF's end. Make it after the actor system, destroy it before it.
class caf_side {
public:
  caf_side(caf::actor_system& system, network_side& to);
  ~caf_side(); ///< listens no more; connections stay until the system ends

  /// Takes what CAF's own takes (publish_atom, connect_atom, …), but opens no port past the gate. A dial blocks it:
  /// others wait. Errors of dialling: sec::connection_timeout if nobody says a word, sec::cannot_connect_to_node.
  const caf::io::middleman_actor& middleman() const { return middleman_; }

private:
  caf::actor_system& system_;
  network_side& network_;
  caf::io::middleman_actor middleman_;
};

} // namespace parcae

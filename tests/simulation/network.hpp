#pragma once

// The control plane between the processes of a simulation, as the transport has it: connections that nodes make to the
// manager, or to one of several; each keeps its order and takes its time; one that is silent for too long is given up,
// by each end for itself; who has a handle has it of one connection, and what is sent over one that has ended is gone.

#include "tests/simulation/engine.hpp"

#include <caf/actor_control_block.hpp>
#include <caf/error.hpp>
#include <caf/mailbox_element.hpp>

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace parcae::simulation {

class network;

struct letter {
  caf::strong_actor_ptr target, from;
  caf::message_id id;
  caf::message what;
};

/// Between a node (end 0) and a manager (end 1).
struct connection {
  std::array<process_ptr, 2> ends;
  caf::strong_actor_ptr front; ///< what the manager had published
  std::array<bool, 2> open{true, true};
  std::array<time_point, 2> arrival{}; ///< of the newest message to that end
  bool cut = false;
  std::uint64_t cuts = 0;                      ///< so far
  std::array<std::deque<letter>, 2> under_way; ///< to that end, in order
  std::array<std::size_t, 2> due{};            ///< so many of these, while it is cut
  /// At each end: those actors of the other that were named over it.
  std::array<std::map<caf::actor_id, caf::strong_actor_ptr>, 2> proxies;
};
using connection_ptr = std::shared_ptr<connection>;

struct network_options {
  nanoseconds least = 100us; ///< a message takes
  nanoseconds usual = 2ms;
  nanoseconds most = 300ms;         ///< one of a hundred
  nanoseconds silence = 2s;         ///< until a peer that says nothing is given up; at most half a second later
  nanoseconds dial_limit = 4'900ms; ///< until a dial fails that nobody answers
};

/// What is sent in the place of a message to that end of the connection.
using tap = std::function<std::vector<caf::message>(const connection& over, int to, caf::message)>;

class network {
public:
  network(engine& e, const network_options& options) : engine_(e), options_(options) {}

  /// What it publishes there, once it listens. Its place has the process's name.
  void listen(const process_ptr& manager, const caf::strong_actor_ptr& front, std::set<std::string> interface);

  struct answer {
    caf::error problem;
    caf::strong_actor_ptr front; ///< as the node names it
    std::set<std::string> interface;
  };
  void dial(const process_ptr& node, const std::string& place, std::function<void(answer)> tell);

  /// The process ended. Silently: its host is gone, too, and nobody says so.
  void lose(const process_ptr& p, bool silently);
  void freeze(const process_ptr& p);
  void thaw(const process_ptr& p);
  /// Between that node and all managers, also for what is dialled meanwhile.
  void cut(const process_ptr& node);
  void heal(const process_ptr& node);
  /// Both ends hear that it is over.
  void reset(const process_ptr& node);
  /// The same, at once: what is under way, or being sent, is lost.
  void sever(const process_ptr& node);

  void send(const connection_ptr& c, int to, const caf::strong_actor_ptr& target, caf::mailbox_element_ptr what);

  bool connected(const process_ptr& node) const;
  std::size_t connections() const { return connections_.size(); }

  tap on_message; ///< may be empty
  /// What an end has been given now; may be empty.
  std::function<void(const connection& over, int to, const caf::message& what)> on_arrival;

private:
  struct listener {
    process_ptr manager;
    caf::strong_actor_ptr front;
    std::set<std::string> interface;
    std::vector<std::function<void()>> knocking; ///< ends what was dialled and is not answered
  };

  void accept(const process_ptr& node, const std::string& place,
              const std::shared_ptr<std::function<void(answer)>>& tell);
  void close(const connection_ptr& c, int end);
  void expect_silence(const connection_ptr& c, int end, const std::function<bool()>& still);
  void take_next(const connection_ptr& c, std::size_t to);
  void deliver(const connection_ptr& c, int to, const caf::strong_actor_ptr& target, const caf::strong_actor_ptr& from,
               caf::message_id id, caf::message what);
  caf::message renamed(const connection_ptr& c, int to, caf::message what);
  caf::strong_actor_ptr name_at(const connection_ptr& c, int end, const caf::strong_actor_ptr& target);
  nanoseconds delay();

  engine& engine_;
  const network_options options_;
  std::vector<connection_ptr> connections_;
  std::set<std::string> cut_;                 ///< nodes
  std::map<std::string, listener> listeners_; ///< by place: the newest there
};

} // namespace parcae::simulation

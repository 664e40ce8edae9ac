#pragma once

// CONVERSATION: what was said on one connection so far, as far as it decides what the other side may say next: which
// actors of this process it was told of, and which questions of ours are open. Decides by that and by the list in
// permissions.hpp; touches nothing else.

#include "runtime/link/frame_gate.hpp"
#include "runtime/link/permissions.hpp"

#include <caf/fwd.hpp>
#include <caf/node_id.hpp>

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace parcae {

/// All on one thread.
class conversation {
public:
  /// Most actors of the other side that are known here at once: an instance of 1,024 slots has two each.
  static constexpr std::size_t max_actors = 4'096;

  conversation(link_side here, speaker there) : here_(here), there_(there) {}

  /// Who it says to be; none before its handshake.
  const caf::node_id& node() const { return node_; }
  /// What the other side has said so far costs as many questions. A statement is a small part of one, and so is each of
  /// CAF's own frames.
  double heard() const { return heard_; }
  /// Questions of the other side that CAF here has not answered yet. Who asks as an actor that ends meanwhile is not
  /// answered: those count for ever.
  std::size_t unanswered() const { return unanswered_; }
  /// See problem_of_manager; nothing before its handshake.
  const std::string& other_build() const { return other_build_; }

  /// A frame of the other side, whole, with a header that was found good. Why it may not be said; nothing: it may.
  std::string hear(caf::actor_system& system, const frame_header& header, std::span<const char> payload);

  /// A frame of this side: how many bytes of its payload say() has to see. `begin`: as many as are there.
  std::size_t looks_at(const frame_header& header, std::span<const char> begin) const;

  /// It is about to go out. False: it shall not. `system`: null: it is about to end, and hears nothing more.
  bool say(caf::actor_system* system, const frame_header& header, std::span<const char> payload);

private:
  std::string hear_message(caf::actor_system& system, const frame_header& header, std::span<const char> payload);
  std::string know(caf::actor_id actor);
  void tell_of(caf::actor_id actor, standing what);

  const link_side here_;
  const speaker there_;
  caf::node_id node_;
  int handshakes_ = 0;
  double heard_ = 0;
  std::size_t unanswered_ = 0;
  std::string other_build_;
  std::map<caf::actor_id, standing> told_;                      ///< actors here
  std::set<std::pair<caf::actor_id, std::uint64_t>> questions_; ///< open ones: who asked, and the answer's message id
  std::set<caf::actor_id> actors_;                              ///< of the other side, that CAF remembers
};

/// Cuts what CAF here says into frames, and passes on what a conversation lets out.
class outgoing {
public:
  /// Appends to `out` what may go.
  void pass(caf::actor_system* system, std::span<const char> bytes, std::vector<char>& out, conversation& to);

private:
  std::vector<char> begin_; ///< of a frame, as much as has to be seen
  std::uint64_t left_ = 0;  ///< bytes of the frame that was decided on
  bool goes_ = true;        ///< and whether they go out
};

} // namespace parcae

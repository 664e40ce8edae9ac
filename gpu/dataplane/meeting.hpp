#pragma once

// One connect() of a data port under way.

#include "gpu/dataplane/frames.hpp"
#include "gpu/dataplane/port_side.hpp"
#include "protocols/base/locks.hpp"
#include "protocols/choreography/choreography.hpp"

#include <condition_variable>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace parcae {

/// Which connect() a greeting is for.
struct meeting_key {
  purpose what = purpose::generation;
  job_id job;
  generation of;
  std::uint32_t self = 0; ///< the participant here

  friend auto operator<=>(const meeting_key&, const meeting_key&) = default;
};

/// Fields above the mutex belong to the I/O thread.
struct meeting {
  meeting_key key;
  data_token token;
  std::vector<participant> participants;
  std::vector<bool> needed;          ///< by participant: it is to be connected
  std::vector<socket_ptr> sockets;   ///< connected, by participant; null while missing
  std::vector<socket_ptr> dialling;  ///< by participant, so that the end of the meeting can close them
  std::vector<std::string> problems; ///< last known, by participant
  bool ended = false;

  parcae::mutex mutex;
  std::condition_variable changed;
  bool complete GUARDED_BY(mutex) = false;                 ///< all sockets are there
  std::optional<std::uint32_t> hopeless GUARDED_BY(mutex); ///< this participant refuses for good

  meeting(purpose what, const prepare& x, std::uint32_t self, std::vector<bool> needed) :
      key{what, x.job, x.next, self}, token(x.token), participants(x.target.participants), needed(std::move(needed)),
      sockets(participants.size()), dialling(participants.size()), problems(participants.size(), "did not connect"),
      complete(!first_missing()) {}

  bool missing(std::uint32_t peer) const { return needed[peer] && !sockets[peer]; }

  std::optional<std::uint32_t> first_missing() const {
    for (std::uint32_t i = 0; i < sockets.size(); ++i)
      if (missing(i))
        return i;
    return std::nullopt;
  }

  std::optional<std::uint32_t> first_hopeless_or_missing() {
    const lock held(mutex);
    return hopeless ? hopeless : first_missing();
  }

  void joined(std::uint32_t peer, socket_ptr socket) {
    sockets[peer] = std::move(socket);
    const lock held(mutex);
    complete = !first_missing();
    changed.notify_all();
  }

  void give_up(std::uint32_t peer) {
    const lock held(mutex);
    hopeless = peer;
    changed.notify_all();
  }

  void close_all() {
    for (auto* all : {&dialling, &sockets})
      for (auto& x : *all)
        if (x)
          x->close();
  }
};
using meeting_ptr = std::shared_ptr<meeting>;

} // namespace parcae

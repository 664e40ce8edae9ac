#pragma once

// A communicator that copies from the memory of one device to that of another where both are of this process.

#include "gpu/dataplane/communicator.hpp"
#include "gpu/dataplane/frames.hpp"
#include "protocols/base/locks.hpp"
#include "protocols/choreography/choreography.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

namespace parcae {

class peer_end;

/// Of a participant's slot, from before it connects until its communicator goes. Closes its end.
using peer_place = std::unique_ptr<peer_end, std::function<void(peer_end*)>>;

/// The participants whose slots are of this process and have devices; of a process there is one, its data port's. Any
/// thread. Outlives the places, and the communicators that have them.
class peer_meeting {
public:
  /// To be called before the participant connects: so a peer that has a connection to it finds it here. Throws
  /// communication_error if it is none.
  peer_place enter(purpose why, const prepare& what, const slot_id& self, device& on);

  /// Why nothing is copied between the two; empty: what was copied once, each way, came as it was left. Whoever asks
  /// first waits for that; all hear the same, as both ends of a link must.
  std::string problem_between(device& one, device& other);

private:
  friend class peer_end;
  /// The last two are the generation's token.
  using place_key = std::tuple<purpose, job_id, generation, slot_id, std::uint64_t, std::uint64_t>;

  std::shared_ptr<peer_end> find(const place_key& x) const;
  void leave(const place_key& x, const peer_end& end);

  mutable mutex mutex_;
  std::map<place_key, std::weak_ptr<peer_end>> ends_ GUARDED_BY(mutex_);
  mutex trials_; ///< held during a trial
  std::map<std::pair<device*, device*>, std::string> problems_ GUARDED_BY(trials_);
};

/// Messages in memory of the device to and from participants that are in the meeting, too, when this is made, are
/// copied from device to device once both ends have posted theirs: in a stream of the receiver's, behind what both
/// compute streams were given before. wait() returns when the copy is given, and takes no time of the device. All
/// others go by `below`. All ends are in the memory of devices, or none is.
class peer_communicator : public communicator {
public:
  /// How messages of devices go within this process.
  virtual peer_copies copies() const = 0;
};
std::unique_ptr<peer_communicator> make_peer_communicator(std::unique_ptr<communicator> below, peer_place own,
                                                          peer_meeting& at);

} // namespace parcae

#pragma once

// A communicator that moves what is in the memory of devices by NCCL. Torch- and CUDA-free: over nccl_library.

#include "gpu/dataplane/communicator.hpp"
#include "gpu/device/nccl_library.hpp"
#include "protocols/base/locks.hpp"
#include "protocols/values/ids.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

struct nccl_limits {
  std::chrono::milliseconds make{20'000}; ///< until the communicator is made and warm
  std::chrono::milliseconds id{1'000};    ///< of that, until participant 0 has made what the others need
  /// For the device's and NCCL's work after abort(). Ends before the node's watch on its device, which says less.
  std::chrono::milliseconds end{1'500};
};

/// How often NCCL failed in this process, when it was made or in use, so that nobody loses steps to it for ever, and as
/// each communicator that cannot be made leaves a thread and a socket of NCCL's in the process of participant 0. After
/// three times in a row there is none until the process ends. Who was lost is no rank of the next generation: then it
/// was not NCCL, and the count begins anew. Any thread.
class nccl_failures {
public:
  static constexpr std::uint32_t max_in_a_row = 3;

  /// These ranks have NCCL from now on. What is known stays if all the last ones are among them.
  void note_use(std::vector<slot_id> ranks);
  /// And that failed, in one line.
  void note_failure(const std::string& why);
  /// Why these ranks are to do without it, in one line; empty: they need not.
  std::string problem_among(std::vector<slot_id> ranks) const;

private:
  bool has_all(const std::vector<slot_id>& ranks) const NEEDS_LOCK(mutex_);

  mutable mutex mutex_;
  std::vector<slot_id> ranks_ GUARDED_BY(mutex_); ///< that had it last, sorted
  std::uint32_t in_a_row_ GUARDED_BY(mutex_) = 0;
  std::string why_ GUARDED_BY(mutex_); ///< the last time
};

/// NCCL on a slot's device, for one communicator after the other. Any thread.
struct nccl_slot {
  nccl_slot(device& on, nccl_library& calls, std::function<void(const std::string&)> on_stuck,
            nccl_limits limits = {}) :
      on(on),
      calls(calls), on_stuck(std::move(on_stuck)), limits(limits) {}

  device& on; ///< until the process ends, as the library: NCCL's thread may be lost
  nccl_library& calls;
  /// Called once if memory may still be written after nccl_limits::end, so that nobody may use it again: the process
  /// should end, and this function not return. One line.
  std::function<void(const std::string&)> on_stuck;
  nccl_limits limits;

  std::atomic<bool> busy = false; ///< a communicator is not yet ended: no other one runs
  std::atomic<bool> lost = false; ///< a call did not return in time: no other one runs, though it may return later
  nccl_failures failures;
};

/// Who takes part.
struct nccl_ranks {
  std::uint32_t count = 0;            ///< participants, from the first on
  std::vector<std::uint32_t> peers{}; ///< of these, with whom this one will have messages
};

/// All goes as before until begin(), and while NCCL's communicator is made then and its connections are tried; from
/// take_over() on messages in memory of the device go by NCCL, when they are given (communicator::give): NCCL moves one
/// group after the other in a stream, and a group waits there for its other ends. So all give theirs in an order that
/// they know beforehand, from the schedule: nothing is said about it, and what differs between two ends is found by
/// nobody.
///
/// One thread, which begin() starts, makes all calls of NCCL. wait() of a message returns when its bytes will be moved
/// in the order of the compute stream: that takes no time of the device, and no word of the peer. abort() returns at
/// once; the destructor does what leave() does.
///
/// One thread at a time, but for what communicator allows.
class nccl_communicator : public communicator {
public:
  enum class phase : std::uint8_t { waiting, making, ready, in_use, failed };
  struct report {
    phase now = phase::waiting;
    std::string problem; ///< failed: why, one line
    bool own = false;    ///< failed: by what went wrong here, not because another one has left
  };

  /// To be called once, by all ranks between the same two messages; before that nothing of NCCL is called. Participant
  /// 0 may need nccl_limits::id for it. Another communicator of the slot's is waited for.
  virtual void begin() = 0;

  /// Not `making` any more after twice nccl_limits::make. To be asked for again and again: that is when what
  /// participant 0 says is heard.
  virtual report state() = 0;

  /// All participants call it between the same two messages, when all are `ready`. Throws communication_error if this
  /// one is not.
  virtual void take_over() = 0;
  /// NCCL is not used any more, by nobody: all know that the others have what they were sent, as they do behind a
  /// commit exchange. Waits until nothing is moved by it, at most nccl_limits::end, and then leaves NCCL's thread
  /// behind.
  virtual void leave() = 0;
};

/// `below` has all messages until take_over(), and for ever those of the host, and those with other participants.
std::unique_ptr<nccl_communicator> make_nccl_communicator(std::unique_ptr<communicator> below, nccl_ranks ranks,
                                                          std::shared_ptr<nccl_slot> slot);

} // namespace parcae

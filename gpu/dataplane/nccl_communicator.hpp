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
  std::chrono::milliseconds end{2'000};   ///< for the device's and NCCL's work after abort()
};

/// How often NCCL broke in use, so that nobody loses steps to it for ever. Who was lost is no rank of the next
/// generation; if all are, it was NCCL, or what it goes along. Any thread.
class nccl_breaks {
public:
  static constexpr std::uint32_t max_in_a_row = 3;

  /// NCCL moves something between these ranks from now on. What is known stays if all the last ones are among them.
  void note_use(std::vector<slot_id> ranks);
  /// And that ended as it should not, in one line.
  void note_break(const std::string& why);
  /// Why these ranks are to do without it, in one line; empty: they need not.
  std::string problem_among(std::vector<slot_id> ranks) const;

private:
  bool has_all(const std::vector<slot_id>& ranks) const NEEDS_LOCK(mutex_);

  mutable mutex mutex_;
  std::vector<slot_id> ranks_ GUARDED_BY(mutex_); ///< that used it last, sorted
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
  nccl_breaks breaks;
};

/// Of the process. Each communicator that could not be made leaves a thread and a socket of NCCL's in the process of
/// participant 0, so that no more are tried after so many.
class nccl_allowance {
public:
  static constexpr std::uint32_t max_failed = 16;

  void note_failed() { ++failed_; }
  std::uint32_t failed() const { return failed_; }
  bool spent() const { return failed_ >= max_failed; }

private:
  std::atomic<std::uint32_t> failed_ = 0;
};

/// All goes as before until begin(), and while NCCL's communicator is made then and its connections are tried; from
/// take_over() on messages in memory of the device go by NCCL. They have an order of their own then: the n-th receive
/// posted there for a peer takes the n-th message which that peer sends from memory of its device.
///
/// One thread, which begin() starts, makes all calls of NCCL; others, one for each peer, hear what it has posted.
/// wait() of a message returns when its bytes will be moved in the order of the compute stream: that takes no time of
/// the device. abort() returns at once; the destructor does what leave() does.
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

  /// To be called once, and by all; before that nothing of NCCL is called. Another communicator of the slot's is waited
  /// for.
  virtual void begin() = 0;

  virtual report state() const = 0;
  /// Returns what state() says once it is not `making`, which is twice nccl_limits::make after begin() at most.
  virtual report wait_until_made() = 0;

  /// All participants call it between the same two messages, when all are `ready`. Throws communication_error if this
  /// one is not.
  virtual void take_over() = 0;
  /// The contrary: all are `ready` again. Throws communication_error if what came may be anything.
  virtual void give_back() = 0;

  /// NCCL is not used any more, by nobody: others go on. Waits until nothing is moved by it, at most nccl_limits::end,
  /// and then leaves NCCL's thread behind. Without abort() it first lets peers have what they waited for.
  virtual void leave() = 0;
};

/// `below` has all messages until take_over(), and for ever those of the host, and those with participants that
/// `notes` has not. `notes` are connections between the first of the same participants, with nothing else on them.
/// `names` are the participants', for error messages.
/// Who leaves in the midst of a group ends all messages by NCCL, as there is no other way to end those of the group;
/// who leaves otherwise, or does not agree with this participant on a message, only its own.
std::unique_ptr<nccl_communicator> make_nccl_communicator(std::unique_ptr<communicator> below,
                                                          std::unique_ptr<communicator> notes,
                                                          std::vector<std::string> names,
                                                          std::shared_ptr<nccl_slot> slot,
                                                          std::shared_ptr<nccl_allowance> allowed);

} // namespace parcae

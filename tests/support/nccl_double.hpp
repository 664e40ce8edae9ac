#pragma once

// NCCL for tests: its participants are threads of this process, with a fake device each. It does late what NCCL may do
// late, does what NCCL does when it is cut off, takes time and memory as NCCL does, in less, and notes every use that
// NCCL does not allow.

#include "gpu/device/nccl_library.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace parcae::rig {

enum class nccl_call : std::uint8_t { make_id, begin, state, start_group, end_group, send, receive, abort };
inline constexpr std::size_t nccl_calls = 8;

enum class nccl_fault : std::uint8_t {
  freeze, ///< the call does not return before release()
  die,    ///< nor does any other of that participant, and its work in streams moves nothing any more
  fail,   ///< the call returns an error
  spoil,  ///< the call returns, and the communicator's state is an error from now on
  garble, ///< of a send: what arrives is not what was sent, and nobody says so
};

/// Memory of a participant's device: of each communicator, and of each other end that it is connected with.
inline constexpr std::size_t nccl_own_bytes = std::size_t{1} << 20, nccl_pair_bytes = std::size_t{1} << 18;

/// All participants of communicators with ids of one another. Any thread.
class nccl_double {
public:
  /// The pauses before what is late is done are drawn from `seed`.
  explicit nccl_double(std::uint64_t seed);
  /// release(); waits for calls and work under way.
  ~nccl_double();
  nccl_double(const nccl_double&) = delete;

  /// What a participant calls, which computes there; lives as long as this object.
  nccl_library& library(std::uint32_t rank, device& on);

  /// In the n-th such call (from 1) of that participant, counted from now on.
  void plan(std::uint32_t rank, nccl_call where, std::uint64_t nth, nccl_fault what);
  /// Called when a planned fault has come, with whose and in which call.
  void on_fault(std::function<void(std::uint32_t rank, nccl_call where)> f);
  /// Calls that do not return do, work in streams ends, and all calls fail.
  void release();

  /// What was not allowed; one line each.
  std::vector<std::string> violations();
  /// Threads that NCCL would have left, with a socket each: ids with which no communicator was made.
  std::size_t listeners();
  /// Of each communicator, by id: who was connected with whom, from both ends.
  std::map<std::uint64_t, std::set<std::pair<std::uint32_t, std::uint32_t>>> connected();
  std::uint64_t calls_of(std::uint32_t rank, nccl_call which);

private:
  class world;
  const std::unique_ptr<world> world_;
};

} // namespace parcae::rig

#pragma once

// NCCL's functions, as far as they are used: by the plug-in (gpu/cuda) with the library, by a double in tests. Neither
// NCCL nor CUDA is included.

#include "gpu/device/device.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace parcae {

/// ncclResult_t.
enum class nccl_result : int {
  success = 0,
  cuda_error,
  system_error,
  internal_error,
  invalid_argument,
  invalid_usage,
  remote_error,
  in_progress, ///< of a communicator: what it was asked for last is not yet done
};

/// What the processes of a communicator find each other by.
using nccl_id = std::array<std::byte, 128>;

/// ncclComm_t.
struct nccl_handle;

/// On one device. Communicators do not block: what begin, end_group and send may leave in_progress is done when
/// state() no longer says so, and nothing else is called before. Any call may nevertheless never return.
///
/// One thread at a time calls about a communicator, and always the same one; nothing is called beside abort().
class nccl_library {
public:
  virtual ~nccl_library() = default;

  /// Starts a thread that listens in this process, until a communicator was made with the id: for ever, if none is.
  virtual nccl_result make_id(nccl_id& id) = 0;
  /// Of `ranks` processes, each with another `rank`, that have been given the id.
  virtual nccl_result begin(nccl_handle*& made, std::uint32_t ranks, const nccl_id& id, std::uint32_t rank) = 0;
  /// How the communicator is.
  virtual nccl_result state(nccl_handle* x) = 0;
  virtual nccl_result start_group() = 0;
  /// Once it is done all that the group has is in the stream: an event before that is one of other work.
  virtual nccl_result end_group() = 0;
  /// Within a group. `on` is a stream of the device, the same in a group.
  virtual nccl_result send(nccl_handle* x, std::uint32_t to, const void* bytes, std::size_t n, stream& on) = 0;
  virtual nccl_result receive(nccl_handle* x, std::uint32_t from, void* bytes, std::size_t n, stream& on) = 0;
  /// Not within a group. Gives up what the communicator has in the stream, which ends without error and with anything
  /// in what was to be received, and the communicator.
  virtual nccl_result abort(nccl_handle* x) = 0;
  /// Of the last thing that went wrong, one line; empty: it says nothing.
  virtual std::string last_error(nccl_handle* x) = 0;
};

std::string render(nccl_result x);

} // namespace parcae

#pragma once

// A communicator for a device's memory over one that takes the host's.

#include "gpu/dataplane/communicator.hpp"

#include <memory>

namespace parcae {

/// Messages in memory of the device go through pinned memory, frame by frame, so that copying, sending and receiving
/// overlap; those in the host's memory go as they are, and on the wire all look alike. The device outlives this object.
/// Its calls throw device_error, too; after one, as after communication_error, it is of no further use.
std::unique_ptr<communicator> make_staged_communicator(std::unique_ptr<communicator> below, device& on);

} // namespace parcae

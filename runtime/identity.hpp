#pragma once

#include "protocols/messages.hpp"

#include <cstdint>
#include <string>

namespace parcae {

/// What decides about bits, on one line: vendor, family, model and instruction set of the processor, LibTorch version,
/// device type ("cpu"). Slots with equal facts compute equal bits.
std::string processor_facts(const std::string& device);

/// A name for this node that is unique on its machine: host name and process id.
std::string default_node_name();

/// Memory of this machine.
std::uint64_t machine_bytes();

/// This machine, and the cores that this process may use: of those that the system has, that its affinity allows, and
/// that its control group has time for. Processes with other cores, or a share of their own, are on another "machine".
machine_facts this_machine();

} // namespace parcae

#pragma once

// The machine that this process is on, as the manager is told. Without LibTorch.

#include "protocols/choreography/messages.hpp"

#include <chrono>
#include <cstdint>
#include <string>

namespace parcae {

/// A name for this node that is unique on its machine: host name and process id.
std::string default_node_name();

/// Memory of this machine.
std::uint64_t machine_bytes();

/// This machine, and the cores that this process may use: of those that the system has, that its affinity allows, and
/// that its control group has time for. Processes with other cores, or a share of their own, are on another "machine".
machine_facts this_machine();

/// Of this process and its machine. Reads /proc.
instance_ages ages_now();

/// The same some time later.
instance_ages ages_after(instance_ages x, std::chrono::nanoseconds passed);

} // namespace parcae

#pragma once

#include <string>

namespace parcae {

/// What decides about bits, on one line: vendor, family, model and instruction set of the processor, LibTorch version,
/// device type ("cpu"). Slots with equal facts compute equal bits.
std::string processor_facts(const std::string& device);

} // namespace parcae
